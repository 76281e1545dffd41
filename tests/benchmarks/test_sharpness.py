"""Entropies of weights and norms of gradients, as `benchmarks.sharpness` has them."""

import json

import numpy as np
import pytest

from attnlab.systems.protocol import AttentionMap
from benchmarks.sharpness import gradients, place, sharpness
from tests.refusals import check_refused

pytestmark = pytest.mark.quick


def test_entropy_is_a_share_of_the_most_that_it_could_be() -> None:
    """Of two heads, one even and one of a single word; a causal query sees its own words only."""
    even, sharp = np.full((3, 4), 0.25), np.eye(4)[:3]
    weights = np.stack([even, sharp])
    assert sharpness(AttentionMap(weights, "target", "source")) == pytest.approx([1.0, 0.0] * 3)
    causal = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None]
    found = sharpness(AttentionMap(causal[None], "target_in", "target_in"))
    assert found == pytest.approx([1.0, 1.0])  # the first query sees one word
    half = np.array([[[0.5, 0.5, 0.0, 0.0]]])
    assert sharpness(AttentionMap(half, "source", "source")) == pytest.approx([0.5])


def test_names_lose_their_layer() -> None:
    assert place("decoder_11/cross_attention") == "decoder/cross_attention"
    assert place("attention") == "attention"


def test_gradients_of_the_first_and_the_last_fifth() -> None:
    lines = [json.dumps({"step": 10 * n, "grad_norm": float(n)}) for n in range(1, 11)]
    assert gradients([*lines, '{"step": 100, "loss": 1.0}']) == {"first": 1.5, "last": 9.5}
    assert gradients(lines[:1]) == {"first": 1.0, "last": 1.0}
    check_refused("no norm", gradients, ['{"step": 1, "loss": 2.0}'])
