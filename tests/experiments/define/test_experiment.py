"""The words of an experiment file; over several tasks, what a task changes, and what is refused in
one line.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import Claim, Contrast, Experiment, better
from attnlab.experiments.define import Changes, load_experiment
from attnlab.experiments.define.experiment import Mode, on_task
from tests.experiments.plans import EXPERIMENT, defined, experiment_file
from tests.refusals import check_refused


def test_five_seeds_by_default() -> None:
    assert Experiment("Which?", EXPERIMENT.config, EXPERIMENT.compare).seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("mode", "sign"), [("max", 1.0), ("min", -1.0)])
def test_better_goes_the_way_of_the_measure(mode: Mode, sign: float) -> None:
    """A loss that is lower by 0.05 is better by 0.05; weights written out are taken as they are,
    whatever the measure.
    """
    raw = Contrast({"additive": 1.0, "general": -1.0}, 0.05)
    # of which less is better, whatever the measure
    cheaper = better("additive", "general", on="flops")
    claim = Claim("It is better.", (better("additive", "general", by=0.05), raw, cheaper))
    assert defined(claim=claim, measure=("score", mode))["claim"]["contrasts"] == [
        {"weights": {"additive": sign, "general": -sign}, "at_least": 0.05},
        {"weights": {"additive": 1.0, "general": -1.0}, "at_least": 0.05},
        {"weights": {"additive": -1.0, "general": 1.0}, "at_least": 0.0, "on": "flops"},
    ]


COMPARE = "compare=rows({'additive': {}, 'dot': {'system.attention.score': 'dot'}})"
TASKS: dict[str, dict[str, Any]] = {
    "short": {"base": {"training": {"steps": 6}}, "measure": ("exact", "max")},
    "sounds": {"config": "configs/g2p.py:rnnsearch"},
}


def test_a_task_lays_its_base_over_that_of_all_and_replaces_other_fields() -> None:
    whole = dataclasses.replace(EXPERIMENT, tasks=TASKS, base={"training.steps": 12, "seed": 1})
    short, sounds = (on_task(whole, name) for name in TASKS)
    assert short.base == {"training.steps": 6, "seed": 1} and sounds.base == whole.base
    assert (short.measure, sounds.measure) == (("exact", "max"), EXPERIMENT.measure)
    assert (short.config, sounds.config) == (EXPERIMENT.config, "configs/g2p.py:rnnsearch")
    assert short.question == "Which score? (short)"
    assert not short.tasks and on_task(whole, "") is whole


def test_the_command_line_changes_every_task_and_hashes_stay(tmp_path: Path) -> None:
    assert "tasks" not in defined()
    file = experiment_file(tmp_path / "which.py", COMPARE, f"tasks={TASKS!r}")
    changes = Changes(("training.steps=7",))
    assert load_experiment(file, changes).tasks == TASKS
    short = load_experiment(file, dataclasses.replace(changes, task="short"))
    assert short.base["training.steps"] == 7


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ({"short": {}}, "task 'short': two tasks or more are needed"),
        ({"a": {}, "b": {}}, "task 'a': is {}; fields that no other task has"),
        ({"a": {"mesure": ("loss", "min")}, "b": {}}, "'mesure'; did you mean 'measure'"),
        ({"a": {"measure": "loss"}, "b": {}}, "task 'a': measure is 'loss'"),
        ({"a/b": {"base": {}}, "b": {}}, "task 'a/b': cannot name a folder"),
    ],
)
def test_what_is_refused_names_the_task(tmp_path: Path, tasks: Any, words: str) -> None:
    file = experiment_file(tmp_path / "which.py", COMPARE, f"tasks={tasks!r}")
    check_refused(re.escape(words), load_experiment, file)
