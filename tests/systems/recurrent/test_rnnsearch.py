"""What is said of RNNsearch beyond its equations: how it starts, and what it is when it may only
look at the last word.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.mechanisms.single import Single
from attnlab.attention.protocol import Attention, Reading
from attnlab.systems.recurrent.rnnsearch import RNNsearch
from attnlab.training.drawing import first_params
from tests.systems.checks import SPECS, VOCABULARY, batch, make, parameters
from tests.systems.oracles.parts import sigmoid


class Last(Attention):
    """All weight on the last real word."""

    def remember(self, source: Any, valid: Any = None, capacity: int | None = None) -> Any:
        return jnp.take_along_axis(source, (valid.sum(axis=1) - 1)[:, None, None], axis=1)

    def read(self, query: Any, memory: Any, visibility: Any = None) -> Reading:
        return Reading(memory)


def gru(cell: Any, state: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """r, z = sigmoid(.), n = tanh(W x + U (r * s) + C c), s' = (1 - z) s + z n."""
    width = len(state)
    r, z = np.split(sigmoid(inputs[: 2 * width] + state @ cell["gates"]), 2)
    return (1 - z) * state + z * np.tanh(inputs[2 * width :] + (r * state) @ cell["candidate"])


def test_looking_at_the_last_word_only_it_is_the_encoder_decoder_it_came_from() -> None:
    """One that reads from left to right and is fed c = h_S at every step: RNNencdec as its authors
    released it, from s_0 = 0.
    """
    system = RNNsearch(VOCABULARY, VOCABULARY, Last, embedding=6, encoder=5, decoder=7, maxout=4)
    source, target_in = batch()
    shapes = jax.eval_shape(system.init, jax.random.key(0), source, target_in)["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: 0.5 * rng.normal(size=leaf.shape), shapes)
    params["reader"]["backward"] = jax.tree.map(
        np.zeros_like, params["reader"]["backward"]
    )  # its states stay zero
    expected = np.zeros((3, 5, VOCABULARY))
    for b in range(3):
        layer, c = params["reader"]["forward"], np.zeros(5)
        for word in source[b][source[b] != 0]:
            inputs = (
                params["embed_source"]["embedding"][word] @ layer["of_input"]["kernel"]
                + layer["of_input"]["bias"]
            )
            c = gru(layer["cell"], c, inputs)
        s = np.zeros(7)
        for i, token in enumerate(target_in[b]):
            word = params["embed_target"]["embedding"][token]
            inputs = (
                word @ params["of_word"]["kernel"]
                + params["of_word"]["bias"]
                + c @ params["of_context"]["kernel"][:5]
            )
            s = gru(params["cell"], s, inputs)
            units = (
                s @ params["out_state"]["kernel"]
                + params["out_state"]["bias"]
                + word @ params["out_word"]["kernel"]
            )
            units = units + c @ params["out_context"]["kernel"][:5]
            expected[b, i] = (
                units.reshape(4, 2).max(axis=1) @ params["out"]["kernel"] + params["out"]["bias"]
            )
    low = jax.tree.map(np.float32, params)
    found = jax.jit(lambda params: system.apply({"params": params}, source, target_in))(low)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_published_start() -> None:
    """N(0, 0.01^2), orthogonal recurrences, biases at zero; the alignment model N(0, 0.001^2) with
    v at zero, so that it is uniform.
    """
    system = RNNsearch(40, 40, Single, embedding=32, encoder=32, decoder=32, maxout=32, normal=0.01)
    params = jax.device_get(first_params(system.init, jax.random.key(0), *batch())["params"])
    fit = params["attention"]["score"]
    assert (fit["v"] == 0.0).all() and all(
        0.0008 < fit[name]["kernel"].std() < 0.0012 for name in ("w_query", "w_key")
    )
    found = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    for name, leaf in found.items():
        if name.endswith(("kernel", "embedding")) and not name.startswith("attention"):
            assert 0.009 < leaf.std() < 0.011 and abs(leaf.mean()) < 0.001, name
        elif name.endswith("bias"):
            assert (leaf == 0.0).all(), name
        elif "cell" in name:
            for square in np.split(leaf, leaf.shape[1] // 32, axis=1):
                np.testing.assert_allclose(square.T @ square, np.eye(32), atol=1e-5)


def test_without_the_context_the_source_comes_by_the_first_state_alone() -> None:
    """C = 0 and C_o = 0: annotations have no gradient, but for the backward state at the first
    word, which s_0 is made of.
    """
    system, (source, target) = make(SPECS["rnnsearch"]), batch()
    params = parameters(system)
    for way in ("of_context", "out_context"):
        params[way] = jax.tree.map(np.zeros_like, params[way])

    def total(params: Any, seen: jax.Array) -> jax.Array:
        memory = system.apply({"params": params}, source, method="encode")
        changed = memory.replace(
            attended=jax.tree.map(
                lambda x: x + seen if x.dtype == jnp.float32 else x, memory.attended
            )
        )  # type: ignore[attr-defined]
        return (system.apply({"params": params}, changed, target, method="decode") ** 2).sum()  # type: ignore[operator]

    slopes = jax.jit(jax.grad(total, argnums=(0, 1)))
    slope, of_seen = slopes(params, jnp.zeros(()))
    assert float(of_seen) == 0.0
    assert np.abs(jax.tree.leaves(slope["first_state"])[0]).max() > 1e-4
    assert all((np.asarray(leaf) == 0.0).all() for leaf in jax.tree.leaves(slope["attention"]))
    whole, _ = slopes(parameters(system), jnp.zeros(()))
    assert all(np.abs(leaf).max() > 0.0 for leaf in jax.tree.leaves(whole["attention"]))
