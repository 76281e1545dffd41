"""Translation tasks small enough for a test: both systems on dates, with the config file that users have."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax

from attnlab import config as configs
from attnlab.data.batching import Batch
from attnlab.tasks.translation import Translation
from attnlab.training.step import first_state, make_step

SMALL = {
    "rnnsearch": ["system.embedding=8", "system.encoder=8", "system.decoder=8", "system.maxout=6", "system.attention.hidden=8"],
    "transformer": ["system.width=16", "system.hidden=16", "system.layers=1", "system.dropout=0.0"],
}
DATA = ["data.examples=64", "data.valid=11", "data.test=9", "batch.size=16", "batch.buckets=32", "batch.max_length=32"]
SEARCH = ["decoding.max_ratio=0.4", "decoding.max_extra=4", "decoding.batch=8"]


def load(system: str, *overrides: str, splits: tuple[str, ...] = ("train", "valid", "test")) -> Translation:
    """The task of `configs/translation.py:<system>`, shrunk, with overrides "a.b=value" on top."""
    config = configs.load(f"configs/translation.py:{system}", [*SMALL[system], *DATA, *SEARCH, *overrides])
    return Translation.load(config, None, splits)


def batch_of(task: Translation, rows: int = 13) -> Batch:
    """A training batch of 16 rows, of which the first `rows` are sentences and the others padding."""
    batch = task.batches(1)(0)
    return {name: np.where(np.arange(len(ids))[:, None] < rows, ids, 0) for name, ids in batch.items()}


def trained(task: Translation, steps: int = 60) -> Any:
    """Parameters after a little training: far from uniform, far from perfect."""
    optimizer = optax.adam(1e-2)
    step = jax.jit(make_step(task.loss, task.weight, optimizer, seed=0), donate_argnums=0)
    state, batches = first_state(jax.jit(task.init)(jax.random.key(1)), optimizer, 0.0), task.batches(1)
    for number in range(steps):
        state, _ = step(state, batches(number))
    return state.params
