"""What a model remembers of the rows of a batch stays with each of several stacked trials; for
devices and stops of one see test_parallel and test_loop.
"""

from pathlib import Path

from tests.training.test_stacked import Lines, alone, assert_alike, together
from tests.training.toy import Trailing, settings


class TrailingLines(Trailing, Lines):
    """`Trailing`, several at once."""


def test_every_trial_remembers_its_own_rows(tmp_path: Path) -> None:
    """Each is stopped together with the other, on two devices, and goes on alone; one learns faster
    than the other, and does not end for it.
    """
    configs = [settings(seed=seed, schedule__peak=0.1 / (1 + seed)) for seed in range(2)]
    alone(tmp_path / "alone", configs, TrailingLines())
    together(tmp_path / "stacked", configs, TrailingLines(), stop=5, devices=2)
    ended = alone(tmp_path / "stacked", configs, TrailingLines())
    assert [outcome.state for outcome in ended] == ["done"] * 2
    folders = tmp_path / "stacked", tmp_path / "alone"
    assert_alike(*folders, configs, TrailingLines(), stopped=True)
