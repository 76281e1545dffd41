"""What a model remembers of the rows of a batch, where trials are stacked; for devices and stops
see test_parallel and test_loop.
"""

from __future__ import annotations

from pathlib import Path

from tests.training.test_stacked import (
    Lines,
    alone,
    assert_alike,
    assert_alike_but_for_steps_saved,
    together,
)
from tests.training.toy import Trailing, settings


class TrailingLines(Trailing, Lines):
    """`Trailing`, several at once."""


def test_every_trial_remembers_its_own_rows(tmp_path: Path) -> None:
    """Stopped together and gone on with alone; one learns faster than the other, and does not end
    for it.
    """
    configs = [settings(seed=seed, schedule__peak=0.1 / (1 + seed)) for seed in range(2)]
    alone(tmp_path / "alone", configs, TrailingLines())
    together(tmp_path / "stacked", configs, TrailingLines(), stop=5)
    assert [one.state for one in alone(tmp_path / "stacked", configs, TrailingLines())] == [
        "done"
    ] * 2
    together(tmp_path / "whole", configs, TrailingLines(), devices=2)
    assert_alike(tmp_path / "whole", tmp_path / "alone", configs, TrailingLines())
    assert_alike_but_for_steps_saved(
        tmp_path / "stacked", tmp_path / "alone", configs, TrailingLines()
    )
