"""kill -9 and the same command again change nothing, in the short form of `kill_resume.py`, whose
comparison can fail.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.config import read_config_file
from attnlab.tasks import TASKS
from tests.training.kill_resume import STEPS, differences, every
from tests.training.toy import run, settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("system", "backend", "devices", "kills", "processes"),
    [
        ("lstm_lm", "mesh", 1, 1, 1),
        pytest.param("transformer", "pmap", 4, 2, 1, marks=pytest.mark.full),
        pytest.param("lstm_lm", "mesh", 2, 1, 2, marks=pytest.mark.full),
        pytest.param("lstm_lm", "fsdp", 2, 1, 2, marks=pytest.mark.full),
    ],
)
def test_kill_minus_nine_changes_nothing(
    system: str, backend: str, devices: int, kills: int, processes: int
) -> None:
    """Kills at random moments, of one of several processes too; parameters, optimizer and metric
    stream equal those of the undisturbed run of one process.
    """
    flags = [f"--system={system}", f"--backend={backend}", f"--devices={devices}"]
    flags += [f"--kills={kills}", f"--processes={processes}"]
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.kill_resume", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    line = rf"{system} +{devices} device\(s\) {backend} +(\d+) kills: equal\n"
    actual = re.fullmatch(line, process.stdout)
    assert actual is not None and int(actual[1]) >= kills, process.stdout


def test_a_difference_is_seen(tmp_path: Path) -> None:
    """Another seed differs in metrics, parameters and moments; a changed metric alone is seen too;
    equal runs are equal, unless both end before the step that they must reach.
    """
    whole = {"training__steps": STEPS, "checkpoint__every": 0, "training__evaluate_every": 0}
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        run(tmp_path / name, settings(**whole, seed=seed))
    assert differences(tmp_path / "one", tmp_path / "same") == []
    assert {"metrics.jsonl", "params/w"} <= set(differences(tmp_path / "one", tmp_path / "other"))
    early = differences(tmp_path / "one", tmp_path / "same", last=STEPS + 1)
    assert early == [f"last step {STEPS}"]
    path = tmp_path / "same" / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.1", b"0.2", 1))
    assert differences(tmp_path / "one", tmp_path / "same") == ["metrics.jsonl"]


@pytest.mark.quick
def test_every_task_is_killed() -> None:
    files = {f"configs/{name.partition(':')[0]}.py" for name in every()}
    assert {read_config_file(file)["task"] for file in files} == set(TASKS.names())
