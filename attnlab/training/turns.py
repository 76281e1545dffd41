"""Which of several stacked trials move next, and the input of their common program."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from attnlab.training.step import Params, Tree

if TYPE_CHECKING:
    from attnlab.tasks import AnyTask

Batch = dict[str, np.ndarray]


def stack_batches(batches: Mapping[int, Batch], slots: int) -> dict[str, Tree]:
    """The inputs of the program besides the state: the batches of the moving trials, padded to the
    largest, and which trials move.

    Args:
      batches: of the trials that move, by number.
      slots: length of the trial axis; idle slots after the trials give all devices equally many.
    """
    first = next(iter(batches.values()))
    room = {
        name: tuple(map(max, zip(*(batch[name].shape for batch in batches.values()), strict=True)))
        for name in first
    }
    together = {name: np.zeros((slots, *shape), first[name].dtype) for name, shape in room.items()}
    moves = np.zeros(slots, bool)
    for i, batch in batches.items():
        moves[i] = True
        for name, rows in batch.items():
            corner: tuple[int | slice, ...] = (i, *map(slice, rows.shape))
            together[name][corner] = rows
    return {"batch": together, "moves": moves}


def uses_randomness(task: AnyTask, params: Params, batch: Batch) -> bool:
    """Whether the loss draws random numbers."""
    state = {"carried": task.carried(), "remembered": task.remembered()}
    loss = functools.partial(
        task.loss, **{name: value for name, value in state.items() if value is not None}
    )
    return "random_bits" in str(jax.make_jaxpr(loss)(params, batch, jax.random.key(0)))


def choose_trials(waiting: Mapping[int, tuple[int, ...]], pads: bool) -> list[int]:
    """Which of the waiting trials move next.

    Args:
      waiting: the shapes of their batches, those of all arrays end to end.
      pads: batches may be padded.
    """
    largest = max(waiting.values(), key=math.prod)
    if pads and all(
        size <= most
        for shape in waiting.values()
        for size, most in zip(shape, largest, strict=True)
    ):
        return list(waiting)
    ((most_wanted, _),) = collections.Counter(waiting.values()).most_common(1)
    return [i for i, shape in waiting.items() if shape == most_wanted]
