"""A sweep that is killed at any moment ends as one that is not: the short form of `kill_sweep.py`,
whose comparison can fail.
"""

import json
import re
from pathlib import Path

import pytest

from tests.experiments import real, stub
from tests.experiments.kill_sweep import compared, content, doubled, torn


@pytest.mark.full
def test_kill_minus_nine_of_launcher_and_trials_changes_nothing() -> None:
    """At least two kills come in a sweep of two variants."""
    flags = ("--kills=2", "--variants=2", "--seeds=1")
    done = real.python("-m", "tests.experiments.kill_sweep", *flags, cwd=real.ROOT)
    counts = re.fullmatch(r"2 trials, (\d+) kills: equal\n", done.stdout)
    assert done.returncode == 0 and counts and int(counts[1]) >= 2, done.stdout + done.stderr


@pytest.mark.quick
def test_what_the_comparison_sees(tmp_path: Path) -> None:
    """A trial that ran twice, a torn file, a file left behind; times apart, any other value."""
    plan = stub.finished(tmp_path)
    workdir = plan.trials()[0].workdir(tmp_path)
    name = str(workdir.relative_to(tmp_path))
    assert doubled(tmp_path) == [] and torn(tmp_path) == []
    (workdir / "valid.json").write_text('{"loss": 1.')
    (workdir / ".valid.json.tmp").touch()
    assert torn(tmp_path) == [f"{name}/valid.json is torn", f"{name}/.valid.json.tmp"]
    stub.finish(plan.trials()[0], tmp_path)
    assert doubled(tmp_path) == [f"{name} done 2 times", f"{name}: attempts of one process"]
    for values, same in (
        ({"exact": 1.0, "decoding_seconds": 3.0}, True),
        ({"exact": 0.5, "decoding_seconds": 1.0}, False),
    ):
        (tmp_path / "results.json").write_text(json.dumps(values))
        assert (content(tmp_path / "results.json") == {"exact": 1.0}) == same
    assert compared(Path("a/metrics.jsonl")) and compared(Path("maps/test0.npz"))
    assert not compared(Path("timing.jsonl"))
