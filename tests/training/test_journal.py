"""What is due at a step, and what a run's files then say; a whole run is in test_loop.py. Training
ends early where a measure does not improve, at the same step after any interruption.
"""

import dataclasses
import io
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.progress import Progress
from attnlab.records.measures import declared
from attnlab.records.stream import read_records
from attnlab.tasks import TASKS
from attnlab.training.journal import Follower, Journal, format_shapes, shapes_of, why_ended
from attnlab.training.run import check
from attnlab.training.settings import Stop
from tests.training.toy import Line, points, run, settings

VALUES = {"loss": 1.0, "grad_norm": 2.0, "tokens": 8.0}


def journal(kind: type[Journal], folder: Path) -> Journal:
    """Of a run of six steps that logs every second one and evaluates every third."""
    config = settings()
    config.training.update({"steps": 6, "log_every": 2, "evaluate_every": 3})
    folder.mkdir(exist_ok=True)
    progress = Progress(6, stream=io.StringIO())
    return kind(config, folder, lambda step: 0.5, progress, declared(Line()))


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_what_is_not_finite_is_told_by_all_processes(name: str, tmp_path: Path) -> None:
    for kind in (Journal, Follower):
        with closing(journal(kind, tmp_path / kind.__name__)) as kept:
            wrong = kept.stepped(2, {**VALUES, name: float("nan")}, {})
            assert "nan" in wrong and "at step 2" in wrong


def test_a_follower_evaluates_nothing(tmp_path: Path) -> None:
    with closing(journal(Follower, tmp_path)) as kept:
        assert not kept.evaluates(6) and kept.stepped(2, VALUES, {}) == ""
    assert not (tmp_path / "metrics.jsonl").exists()


def test_shapes_in_words() -> None:
    assert format_shapes(((64, 16), (64,), (64, 8), (64, 16))) == "64x16 and 64x8"
    assert (8, 3) in shapes_of(points(0))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("stop", "scores", "end"),
    [
        (Stop(measure="loss", patience=2), [3, 2, 2, 2, 1], 4),
        (Stop(measure="loss", patience=2), [3, 2, 2, 1, 1], None),
        (Stop(measure="loss", patience=2, min_delta=0.5), [3, 2.6, 2.5, 1, 1], 3),
        (Stop(measure="fit", patience=1), [1, 2, 3, 2, 4], 4),
        (Stop(measure="loss", patience=2), [math.nan, math.nan, 1, 1, 1], 2),
    ],
)
def test_when_training_ends(stop: Stop, scores: list[float], end: int | None) -> None:
    """After so many evaluations in a row without an improvement; up to the step of a parent
    nothing ends.
    """
    better = "max" if stop.measure == "fit" else "min"
    for after, expected in (([], end), ([5], None)):
        ends = [
            number
            for number in range(1, 6)
            if why_ended(stop, better, list(enumerate(scores[:number], start=1)), after)
        ]
        assert (ends or [None])[0] == expected


@pytest.mark.quick
@pytest.mark.parametrize(
    ("after", "end"),
    [([1], 4), ([2], 4), ([3], 4), ([4], 7), ([5], 8), ([6], 9), ([4, 6], 7), ([4, 5, 7], 10)],
)
def test_patience_begins_anew_behind_a_parent_that_would_have_ended(
    after: list[int], end: int
) -> None:
    """Before that the evaluations of the parent count, as in the long run, which ends at 4; behind
    [4, 6], where that run of 4 was gone on with to 6, as in that one if it is longer.
    """
    scores = list(enumerate([1.0, 2, 2, 2, 2, 2, 2, 2, 2, 2], start=1))
    stop = Stop(measure="loss", patience=3)
    ends = [n for n in range(1, 11) if why_ended(stop, "min", scores[:n], after)]
    assert ends[0] == end


def test_a_stopped_run_is_done_and_repeats_after_an_interruption(tmp_path: Path) -> None:
    losses = [5.0, 4.0, 4.5, 4.2, 3.0]
    stop = Stop(measure="loss", patience=2)
    config: Any = settings(training__evaluate_every=1, training__stop=stop, checkpoint__every=0)
    outcome = run(tmp_path / "whole", config, Line(list(losses)))
    assert (outcome.state, outcome.step) == ("done", 4)
    assert "step 4: loss has not improved on 4 of step 2 in 2 evaluations" in outcome.message
    task = Line(list(losses))
    assert run(tmp_path / "parts", config, task, until=3).state == "interrupted"
    for first in (True, False):  # the second time there is nothing left to do
        repeated = run(tmp_path / "parts", config, task)
        assert dataclasses.replace(repeated, seconds_to_first_step=None) == dataclasses.replace(
            outcome, seconds_to_first_step=None
        ), first
    long, parts = (tmp_path / name / "metrics.jsonl" for name in ("whole", "parts"))
    assert long.read_bytes() == parts.read_bytes()
    assert read_records(long)[-1]["step"] == 4
    assert (tmp_path / "whole" / "checkpoints" / "4").is_dir()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.stop.measure=los", "training.stop.measure='los'; did you mean 'loss'"),
        ("training.stop.patience=0", "training.stop.patience=0"),
        ("training.evaluate_every=0", "is looked at in evaluations; set training.evaluate_every"),
    ],
)
def test_what_cannot_be_watched_is_refused(override: str, words: str) -> None:
    overrides = ["training.stop.measure=loss", override]
    with pytest.raises(UserError, match=words.replace(".", r"\.")):
        config: Any = configs.load("configs/translation.py:rnnsearch", overrides)
        check(TASKS.resolve(config.task), config)
