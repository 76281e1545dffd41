"""A sweep from Python: records of the report, and the command's one line where it is refused."""

import io
import json
import sys
from pathlib import Path

import pytest

import attnlab
from attnlab.api import sweeping
from attnlab.errors import UserError
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.export import as_json
from tests.experiments.synthetic import sweep


def test_rows_and_verdict_are_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the command reports on its way is shown, also where stderr is not that of the process."""
    directory = sweep(tmp_path)
    (directory / "report.json").write_text(as_json(gather(directory)))
    wide = "x" * 100_000  # more than a pipe holds
    program = f"import sys; print({wide!r}); print(*sys.argv[1:], sep='\\n', file=sys.stderr)"
    monkeypatch.setattr(sweeping, "_COMMAND", program)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    found = attnlab.sweep(
        "e.py", {"training.steps": 3}, directory=directory, flags="--slots=1 '--seeds=2'"
    )
    assert capfd.readouterr().err == ""
    assert shown.getvalue().splitlines() == [
        "sweep",
        "e.py",
        f"--dir={directory}",
        "--config.training.steps=3",
        "--slots=1",
        "--seeds=2",
    ]
    report = json.loads((directory / "report.json").read_text())
    assert [row["name"] for row in found.rows] == [row["name"] for row in report["rows"]]
    assert found.trials and all("scores" in trial for trial in found.trials)
    (directory / "report.html").write_text('<table class="wide">')
    assert 'srcdoc="&lt;table class=&quot;wide&quot;&gt;"' in found._repr_html_()
    assert "verdict=" in repr(found) and "trials" not in repr(found)
    with pytest.raises(UserError, match="no report was written"):  # the earlier one is not it
        attnlab.sweep("e.py", directory=directory, flags="--dry-run")


def test_a_refusal_is_the_line_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^(?!.*error: ).*none\.py"):
        attnlab.sweep(tmp_path / "none.py", directory=tmp_path / "sweep")
    with pytest.raises(UserError, match="no report was written; the command: A"):
        attnlab.sweep(tmp_path / "none.py", directory=tmp_path / "sweep", flags="--help")
    assert not (tmp_path / "sweep").exists()
