"""Reading texts side by side gives what reading each alone gives; the parts classifiers end with
against NumPy.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.sentences import SentenceReader, Verdict, compared
from attnlab.training.drawing import first_params

IDS = np.array([[5, 6, 7, 0, 0], [4, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.int32)
OTHER = np.array([[8, 4, 0], [0, 0, 0], [6, 5, 4]], np.int32)


@pytest.mark.quick
def test_two_texts_are_read_as_each_alone() -> None:
    reader = SentenceReader(9, 4, 3)
    variables = first_params(reader.init, jax.random.key(0), [IDS])
    read: Any = jax.jit(reader.apply)
    both = read(variables, [IDS, OTHER])
    for one, ids in zip(both, (IDS, OTHER), strict=True):
        (alone,) = read(variables, [ids])
        assert (
            one.states.shape == (3, ids.shape[1], 6) and one.valid.tolist() == (ids != 0).tolist()
        )
        np.testing.assert_allclose(
            np.where(one.valid[..., None], one.states, 0),
            np.where(one.valid[..., None], alone.states, 0),
            atol=1e-6,
        )
        np.testing.assert_allclose(one.last, alone.last, atol=1e-6)
        for row, length in enumerate((ids != 0).sum(axis=1)):
            ends = (
                [one.states[row, length - 1, :3], one.states[row, 0, 3:]]
                if length
                else [np.zeros(6)]
            )
            np.testing.assert_allclose(one.last[row], np.concatenate(ends), atol=1e-6)


def test_another_id_may_be_padding() -> None:
    reader = SentenceReader(9, 4, 3, padding=8)
    (read,) = reader.apply(reader.init(jax.random.key(0), [IDS]), [np.where(IDS == 0, 8, IDS)])  # type: ignore[misc]
    assert read.valid.tolist() == (IDS != 0).tolist()


def test_verdict_and_comparison_by_hand() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    layer = Verdict(4, 2)
    variables = layer.init(jax.random.key(0), x)
    first, last = (variables["params"][name] for name in ("first", "last"))
    expected = np.maximum(x @ first["kernel"] + first["bias"], 0) @ last["kernel"] + last["bias"]
    np.testing.assert_allclose(layer.apply(variables, x), expected, atol=1e-6)  # type: ignore[arg-type]
    p, h = jnp.array([[1.0, -2.0]]), jnp.array([[3.0, 4.0]])
    assert compared(p, h).tolist() == [[1, -2, 3, 4, 2, 6, 3, -8]]
