"""What is due at a step, and what a run's files then say; a whole run is in test_loop.py."""

import io
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
