"""What is due at a step, and what a run's files then say; a whole run is in test_loop.py."""

import io
import json
from contextlib import closing
from pathlib import Path

import pytest

from attnlab.progress import Progress
from attnlab.records.measures import declared
from attnlab.training.journal import Follower, Journal, format_shapes, shapes_of
from tests.training.toy import Line, points, settings

VALUES = {"loss": 1.0, "grad_norm": 2.0, "tokens": 8.0}


def journal(kind: type[Journal], folder: Path) -> Journal:
    """Of a run of six steps that logs every second one and evaluates every third."""
    config = settings()
    config.training.update({"steps": 6, "log_every": 2, "evaluate_every": 3})
    folder.mkdir(exist_ok=True)
    progress = Progress(6, stream=io.StringIO())
    return kind(config, folder, lambda step: 0.5, progress, declared(Line()))


def test_what_is_due_at_a_step_and_at_the_last(tmp_path: Path) -> None:
    with closing(journal(Journal, tmp_path)) as kept:
        assert [step for step in range(1, 7) if kept.evaluates(step)] == [3, 6]
        for step in range(1, 7):
            assert kept.stepped(step, VALUES, {"step_seconds": 0.1}) == ""
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]
    assert {json.loads(line)["learning_rate"] for line in lines} == {0.5}


def test_of_equal_evaluations_the_first_is_the_best(tmp_path: Path) -> None:
    with closing(journal(Journal, tmp_path)) as kept:
        actual = [
            kept.scored(3 * one, {"loss": loss}) for one, loss in enumerate((2.0, 2.0, 1.0), 1)
        ]
    assert actual == [True, False, True]


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
