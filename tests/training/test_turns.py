"""Which of several stacked trials moves next, and what their program is fed."""

from __future__ import annotations

import jax
import numpy as np

from attnlab.training.turns import choose_trials, stack_batches, uses_randomness
from tests.training.toy import Line, Noisy, points


def test_who_moves_next() -> None:
    assert choose_trials({0: (8, 4), 3: (8, 6), 4: (8, 6)}, pads=False) == [3, 4]
    assert choose_trials({0: (8, 4), 3: (8, 6)}, pads=False) == [0]
    assert choose_trials({0: (8, 4), 3: (8, 6)}, pads=True) == [0, 3]
    # neither fits into the other
    assert choose_trials({0: (32, 4), 3: (8, 16), 5: (8, 16)}, pads=True) == [3, 5]


def test_a_loss_that_draws_is_known() -> None:
    key_free, drawing = Line(), Noisy()
    params = key_free.init(jax.random.key(0))
    assert not uses_randomness(key_free, params, points(0)) and uses_randomness(
        drawing, params, points(0)
    )


def test_smaller_batches_are_padded_and_who_waits_has_zeros() -> None:
    first, second = np.ones((2, 3), np.int32), np.full((1, 4), 7, np.int32)
    fed = stack_batches({0: {"ids": first}, 2: {"ids": second}}, 3)
    assert fed["moves"].tolist() == [True, False, True] and fed["batch"]["ids"].shape == (3, 2, 4)
    assert fed["batch"]["ids"][0].tolist() == [[1, 1, 1, 0]] * 2
    assert not fed["batch"]["ids"][1].any()
    assert fed["batch"]["ids"][2].tolist() == [[7] * 4, [0] * 4]
