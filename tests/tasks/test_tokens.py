"""Losses of tokens are those of float64, scores and rows are made of their sums, and the output bias
starts as the config says.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.data.vocabulary import EOS
from attnlab.tasks.pairs import Translation
from attnlab.tasks.tokens import TokenTask, check_output_bias, cross_entropy, with_output_bias
from tests.refusals import check_refused
from tests.tasks.tiny import APART, load


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


def test_a_ratio_of_a_sum_that_is_not_there_is_refused() -> None:
    task: Any = object.__new__(TokenTask)
    words = (
        "ratios: 'loss' needs the sum 'tokens', which the task does not give; did you mean 'token'"
    )
    check_refused(words, task.averaged, {"loss": 1.0, "token": 2.0})


def test_the_output_bias_starts_where_the_config_says() -> None:
    """log((n + 1) / (N + V)) of every token; as drawn by "zeros", and where a config says
    nothing.
    """
    out = {"bias": np.full(4, 0.5, np.float32), "kernel": np.ones((2, 4))}
    drawn = {"out": out, "h": np.ones(1)}
    node = ConfigDict({"system": {"name": "mine"}, "training": {"output_bias": "unigram"}})
    actual = with_output_bias(node, drawn, np.array([3, 1, 3, 3]), 4)
    np.testing.assert_allclose(actual["out"]["bias"], np.log(np.array([1, 2, 1, 4]) / 8), rtol=1e-6)
    assert actual["out"]["kernel"] is drawn["out"]["kernel"] and drawn["out"]["bias"][0] == 0.5
    for training in ({"output_bias": "zeros"}, {}):
        config = ConfigDict({"training": training})
        assert with_output_bias(config, drawn, np.array([3]), 4) is drawn
        check_output_bias(config, {"h": np.ones(1)}, 4)
    check_output_bias(node, drawn, 4)
    for other in ({"out": {"kernel": np.ones((2, 4))}}, {"out": {"bias": np.ones((2, 4))}}):
        words = "output_bias='unigram': mine has no parameter out/bias with a number for each"
        check_refused(words, check_output_bias, node, other, 4)


def test_the_output_bias_begins_at_the_frequencies_of_the_target() -> None:
    """Of all target tokens, ends of sentences among them, in the ids of the target's vocabulary; a
    run without its data may draw it.
    """
    task = load("rnnsearch", *APART)
    vocabulary = task.vocabularies[1]
    tokens = [EOS for _ in task.data.rows["train"]]
    for _, target in task.data.rows["train"]:
        tokens += vocabulary.encode_all([target])[0].tolist()
    ids, size = task.target_ids()  # type: ignore[misc]
    assert sorted(ids.tolist()) == sorted(tokens) and size == vocabulary.size
    assert task.config.training.output_bias == "unigram"
    bare = Translation(task.config, dataclasses.replace(task.data, examples={}))
    assert bare.target_ids() is None
