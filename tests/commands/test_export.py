"""`export DIR --to=TRACKER`: what it says, and mistakes in one line."""

from pathlib import Path

import pytest

from attnlab.commands.export import TRACKERS as CHOICES
from attnlab.experiments.report import TRACKERS
from tests.commands.tiny import refused, run_command
from tests.experiments.synthetic import sweep


@pytest.mark.quick
def test_export_writes_and_says_so(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"additive": (0.9, 0.8)})
    for said in (
        "2 runs written, 0 replaced because their records have changed, 0 left",
        "0 runs written, 0 replaced because",
    ):
        out = run_command(["export", str(directory), "--to=tensorboard"]).out
        assert said in out and "look:   tensorboard --logdir" in out
    assert len(list((directory / "exports" / "tensorboard").rglob("*tfevents*"))) == 3


def test_every_tracker_has_its_word() -> None:
    assert set(CHOICES) == set(TRACKERS)


def test_a_card_of_a_sweep_names_a_trial(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"additive": (0.9, 0.8)})
    for kind in ("card", "npz"):
        line = refused("export", str(directory), f"--to={kind}")
        assert f"{directory} is a sweep" in line and "trials/CANDIDATE" in line
    assert not (directory / "exports").exists()
