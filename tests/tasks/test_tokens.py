"""Losses of tokens are those of float64, and scores and rows are made of their sums."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.records.items import Items
from attnlab.tasks.tokens import TokenTask, cross_entropy, tokens_or_rows


@pytest.mark.quick
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_cross_entropy_is_that_of_the_smoothed_target(smoothing: float) -> None:
    """-sum_v q_v log p_v with q = (1 - e) onehot + e / V, in float64, also for huge logits."""
    rng = np.random.default_rng(0)
    for scale in (1.0, 300.0):
        logits = (scale * rng.normal(size=(3, 4, 7))).astype(np.float32)
        target = rng.integers(0, 7, (3, 4))
        wide = logits.astype(np.float64)
        top = wide.max(-1, keepdims=True)
        log_p = wide - top - np.log(np.exp(wide - top).sum(-1, keepdims=True))
        q = (1 - smoothing) * np.eye(7)[target] + smoothing / 7
        # a number, and an array whose value is not known
        for how in (cross_entropy, jax.jit(cross_entropy)):
            np.testing.assert_allclose(
                how(logits, target, smoothing), -(q * log_p).sum(-1), atol=2e-6 * scale, rtol=1e-6
            )


def test_cross_entropy_of_one_class_and_of_a_smoothed_one() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25]], np.float32))
    np.testing.assert_allclose(cross_entropy(logits, np.array([1]), 0.0), [np.log(4)], rtol=1e-6)  # type: ignore[arg-type]
    smooth = 0.7 * np.log(4) + 0.1 * (np.log(2) + 2 * np.log(4))
    np.testing.assert_allclose(cross_entropy(logits, np.array([1]), 0.3), [smooth], rtol=1e-6)  # type: ignore[arg-type]


def test_a_loss_is_divided_by_tokens_or_by_rows_that_have_any() -> None:
    real = np.array([[True, True, False], [True, False, False], [False, False, False]])
    assert float(tokens_or_rows(real, "token")) == 3.0  # type: ignore[arg-type]
    assert float(tokens_or_rows(real, "sentence")) == 2.0  # type: ignore[arg-type]


def test_scores_of_a_split_are_those_of_its_rows() -> None:
    """Sums by hand: 6 nats over 4 tokens, 3 of them right."""
    sums = {"loss": [2.0, 4.0], "tokens": [1.0, 3.0], "correct": [1.0, 2.0]}
    arrays = {name: np.array(each) for name, each in sums.items()}
    task: Any = object.__new__(TokenTask)
    scores = task.averaged({name: each.sum() for name, each in arrays.items()})
    assert scores == pytest.approx({"loss": 1.5, "perplexity": np.exp(1.5), "accuracy": 0.75})
    items = Items.of(task.ratio_rows(arrays))
    assert {name: items.score(name) for name in scores} == pytest.approx(scores)
