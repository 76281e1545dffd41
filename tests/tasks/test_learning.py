"""Every kind of task learns: within some steps the loss of its batches falls, and the statistics of
norms move.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest

from attnlab.training.step import first_state, make_step
from attnlab.training.updates import first_params
from tests.tasks import (
    test_captioning,
    test_detection,
    test_images,
    test_segmentation,
    test_visual_questions,
    tiny_language,
)

full = pytest.mark.full
TASKS = [
    pytest.param(test_segmentation.load, 0.01, 40, id="segmentation"),
    pytest.param(test_detection.load, 0.01, 40, id="detection", marks=full),
    pytest.param(test_captioning.load, 0.01, 40, id="captioning", marks=full),
    pytest.param(test_visual_questions.load, 0.02, 60, id="questions", marks=full),
    pytest.param(test_images.load, 0.01, 60, id="images", marks=full),
    pytest.param(lambda: tiny_language.apart()[0], 0.01, 120, id="language", marks=full),
]


@pytest.mark.parametrize(("load", "rate", "steps"), TASKS)
def test_the_loss_falls(load: Callable[[], Any], rate: float, steps: int) -> None:
    """Rows of padding in the last batch of an epoch are no rows."""
    task, optimizer = load(), optax.adam(rate)
    assert task.carried() is None
    step, batches = jax.jit(make_step(task.loss, task.weight, optimizer)), task.batches(1)
    state = first_state(first_params(task.init, jax.random.key(0)), optimizer, 0.0)
    losses, rows = [], 0
    for number in range(steps):
        state, metrics = step(state, batches(number))
        losses.append(float(metrics["loss"]))
        rows += int(metrics.get("rows", 0)) if number < batches.batches_per_epoch else 0
        assert np.isfinite(float(metrics["grad_norm"]))
    assert np.median(losses[-6:]) < 0.8 * np.mean(losses[:3])
    if "rows" in metrics:
        assert rows == task.size("train")
    assert {"loss", "tokens", "grad_norm"} <= metrics.keys()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.params):
        if path[-1].key == "variance":
            assert (leaf != 1).all(), path
