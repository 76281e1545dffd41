"""Trackio's local store, where its client is installed, read back with that client."""

from pathlib import Path

import pytest

from attnlab.experiments.report.trackers import export
from tests.commands.tiny import alone
from tests.experiments.report.trackers.offline import made

READ = """
import sys, trackio
from trackio.sqlite_storage import SQLiteStorage
project = SQLiteStorage.get_projects()[0]
runs = trackio.Api().runs(project)
(run,) = (run for run in runs if run.name.startswith("additive-peak-0.003-0a1b2c3d/seed1-"))
rows = SQLiteStorage.get_logs(project, run.name, run_id=run.id)
print(len(runs), run.config["variant"], run.config["training.steps"])
print([row["step"] for row in rows], rows[-1]["final/test/exact"], rows[-1]["state"])
"""


def test_what_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second export adds no step, and changes no number of runs."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "out" / "trackio"))  # read by the import
    pytest.importorskip("trackio")
    directory = made(tmp_path / "sweep")
    for _ in range(2):
        export(directory, "trackio", tmp_path / "out")
        assert capsys.readouterr().out == ""
        counts, numbers = alone(READ).splitlines()
        assert counts == "8 additive 12"
    assert numbers == "[3, 6, 9, 12, 12, 12] 0.8 done"
