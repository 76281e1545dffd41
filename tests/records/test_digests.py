"""Which records are no longer what a run left."""

from pathlib import Path

import pytest

from attnlab.records.digests import altered_records, write_results
from tests.refusals import check_refused


@pytest.mark.quick
def test_records_that_were_edited_or_removed_are_named(tmp_path: Path) -> None:
    assert altered_records(tmp_path) is None
    for name in ("items.npz", "metrics.jsonl"):
        (tmp_path / name).write_text(name)
    write_results(tmp_path, "results.json", {"answers.txt": "answers"})
    assert altered_records(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text("metrics.jsonl ")
    (tmp_path / "results.json").write_text("Results.json")
    (tmp_path / "answers.txt").unlink()
    assert altered_records(tmp_path) == ["metrics.jsonl", "answers.txt", "results.json"]
    (tmp_path / "digests.json").write_text("{")
    check_refused(r"digests.json is damaged", altered_records, tmp_path)
