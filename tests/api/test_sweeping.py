"""A sweep from Python: records of the report, and the command's one line where it is refused."""

from __future__ import annotations

import json
import subprocess
import types
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.errors import UserError
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.export import as_json
from tests.experiments.synthetic import sweep


def test_rows_and_verdict_are_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sweep(tmp_path)
    (directory / "report.json").write_text(as_json(gather(directory)))
    words: list[str] = []

    def run(command: list[str], **how: Any) -> Any:
        words.extend(command[3:])
        return types.SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    found = attnlab.sweep(
        "e.py", {"training.steps": 3}, directory=directory, flags="--slots=1 '--seeds=2'"
    )
    assert words == [
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


def test_a_refusal_is_the_line_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^(?!.*error: ).*none\.py"):
        attnlab.sweep(tmp_path / "none.py", directory=tmp_path / "sweep")
    with pytest.raises(UserError, match="no report was written; the command: A"):
        attnlab.sweep(tmp_path / "none.py", directory=tmp_path / "sweep", flags="--help")
    assert not (tmp_path / "sweep").exists()
