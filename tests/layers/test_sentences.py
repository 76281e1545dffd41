"""Texts side by side are read as each alone; the parts that classifiers end with equal NumPy."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.layers.sentences import SentenceReader, Verdict, compared

IDS = np.array([[5, 6, 7, 0, 0], [4, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.int32)
OTHER = np.array([[8, 4, 0], [0, 0, 0], [6, 5, 4]], np.int32)


@functools.cache
def reader(padding: int = 0) -> Any:
    """A compiled reader with parameters N(0, 1): texts to what it reads of each."""
    module, rng = SentenceReader(9, 4, 3, padding=padding), np.random.default_rng(0)
    shapes = jax.eval_shape(module.init, jax.random.key(0), [IDS])
    variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    return jax.jit(functools.partial(module.apply, variables))


@pytest.mark.quick
def test_two_texts_are_read_as_each_alone() -> None:
    for text, ids in zip(reader()([IDS, OTHER]), (IDS, OTHER), strict=True):
        (alone,) = reader()([ids])
        real = text.valid[..., None]
        assert text.states.shape == (3, ids.shape[1], 6)
        assert text.valid.tolist() == (ids != 0).tolist()
        np.testing.assert_allclose(text.states * real, alone.states * real, atol=1e-6)
        np.testing.assert_allclose(text.last, alone.last, atol=1e-6)
        for row, length in enumerate((ids != 0).sum(axis=1)):
            states = np.asarray(text.states[row])
            ends = [states[length - 1, :3], states[0, 3:]] if length else [np.zeros(6)]
            np.testing.assert_allclose(text.last[row], np.concatenate(ends), atol=1e-6)


def test_another_id_may_be_padding() -> None:
    (read,) = reader(padding=8)([np.where(IDS == 0, 8, IDS)])
    assert read.valid.tolist() == (IDS != 0).tolist()


def test_verdict_and_comparison_by_hand() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    layer = Verdict(4, 2)
    shapes, rng = jax.eval_shape(layer.init, jax.random.key(0), x), np.random.default_rng(1)
    variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    first, last = (variables["params"][name] for name in ("first", "last"))
    expected = np.maximum(x @ first["kernel"] + first["bias"], 0) @ last["kernel"] + last["bias"]
    np.testing.assert_allclose(jax.jit(layer.apply)(variables, x), expected, atol=2e-6)
    p, h = np.array([[1.0, -2.0]], np.float32), np.array([[3.0, 4.0]], np.float32)
    assert jax.jit(compared)(p, h).tolist() == [[1, -2, 3, 4, 2, 6, 3, -8]]
