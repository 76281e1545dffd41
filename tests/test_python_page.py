"""What `docs/python.md` shows, run block by block, and what it says of other libraries, held
against their formulas.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlab
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import Window, longformer
from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.recurrent import ContextGRUCell
from tests.commands.tiny import Runs
from tests.rounding import assert_close

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
GIVEN = np.random.default_rng(0)


@pytest.fixture(scope="module")
def page(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the blocks leave behind, run in order in a folder that has the run the page
    speaks of.
    """
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(runs("rnnsearch")[0], folder / "runs" / "first")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(folder)
        for number, block in enumerate(BLOCKS, start=1):
            exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    return names


def test_every_block_runs_in_order(page: dict[str, Any]) -> None:
    """The run that is loaded is the one that was trained, and its picture is drawn."""
    assert len(BLOCKS) >= 12 and page["run"].step == 12 and not jax.config.jax_enable_x64
    assert "".join(page["search"].queries) == "1967-03-03</s>" and len(page["most"]) == 11


def given(*shape: int) -> np.ndarray:
    return GIVEN.normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def heads(x: np.ndarray, count: int) -> np.ndarray:
    """[B,T,n D] to [B,n,T,D], heads side by side."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | bool) -> np.ndarray:
    """softmax(q k^T / sqrt(D)) v of heads [B,H,T,D] where `mask` is True, side by side again."""
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = weights / weights.sum(axis=-1, keepdims=True) @ v
    return context.transpose(0, 2, 1, 3).reshape(context.shape[0], context.shape[2], -1)


def test_torchs_multihead_attention_with_its_masks(page: dict[str, Any]) -> None:
    """torch's: y = softmax(...) with x W^T + b, W [out, in], the rows of `in_proj` q, k, v; True in
    a mask of it is what is hidden.
    """
    state = {
        "in_proj_weight": given(24, 8),
        "in_proj_bias": given(24),
        "out_proj.weight": given(8, 8),
        "out_proj.bias": given(8),
    }
    # their key_padding_mask
    x, hidden = (given(2, 5, 8), np.array([[False] * 5, [False] * 3 + [True] * 2]))
    q, k, v = np.split(x @ state["in_proj_weight"].T + state["in_proj_bias"], 3, axis=-1)
    later = np.triu(np.ones((5, 5), bool), 1)  # their attn_mask
    mask = ~(hidden[:, None, None] | later)
    y = attended(heads(q, 2), heads(k, 2), heads(v, 2), mask)
    expected = y @ state["out_proj.weight"].T + state["out_proj.bias"]
    module = attnlab.mechanism("multihead", heads=2, bias=True)(width=8)
    found = module.apply({"params": page["multihead_of_torch"](state)}, x, x, CAUSAL, ~hidden)
    assert_close(found.context, expected, eps=8)  # type: ignore[union-attr]


def test_key_heads_are_read_by_neighbours_as_repeat_kv_gives_them() -> None:
    """transformers' `repeat_kv` and torch's `enable_gqa` repeat every key head in place,
    `np.repeat`.
    """
    params = {
        name: {"kernel": given(8, n)}
        for name, n in (("w_query", 8), ("w_key", 4), ("w_value", 4), ("out", 8))
    }
    x = given(1, 5, 8)
    q, k, v = (
        heads(x @ params[name]["kernel"], n)
        for name, n in (("w_query", 4), ("w_key", 2), ("w_value", 2))
    )
    k, v = (np.repeat(one, 2, axis=1) for one in (k, v))
    expected = attended(q, k, v, True) @ params["out"]["kernel"]
    module = attnlab.mechanism("multihead", heads=4, key_heads=2)(width=8)
    found = module.apply({"params": params}, x, x)
    assert_close(found.context, expected, eps=8)  # type: ignore[union-attr]


def test_rope_in_halves_is_that_of_transformers() -> None:
    """x cos + rotate_half(x) sin, rotate_half(x) = [-second half, first half], angles p / 10000^(2
    m / D) written twice.
    """
    params = {name: {"kernel": given(8, 8)} for name in ("w_query", "w_key", "w_value", "out")}
    x = given(1, 5, 8)
    angles = np.tile(np.arange(5)[:, None] / 10000 ** (np.arange(0, 4, 2) / 4), 2)

    def turned(y: np.ndarray) -> np.ndarray:
        rotated = np.concatenate([-y[..., 2:], y[..., :2]], axis=-1)
        return y * np.cos(angles) + rotated * np.sin(angles)

    q, k, v = (heads(x @ params[name]["kernel"], 2) for name in ("w_query", "w_key", "w_value"))
    expected = attended(turned(q), turned(k), v, True) @ params["out"]["kernel"]
    for layout, equal in (("half", True), ("interleaved", False)):
        rope = {"name": "rope", "layout": layout}
        module = attnlab.mechanism("multihead", heads=2, positions=rope)(width=8)
        found = module.apply({"params": params}, x, x).context  # type: ignore[union-attr]
        assert np.allclose(found, expected, atol=1e-5) == equal


def test_windows_count_the_query_and_the_last_query_stands_on_the_last_key() -> None:
    """transformers' sliding window: key > query - w. Longformer's: w / 2 on each side. Two queries
    of five stand at 3 and 4.
    """
    i, j = np.mgrid[:9, :9]
    assert np.array_equal((CAUSAL & Window(4)).mask(9, 9, 9)[0, 0], (j <= i) & (j > i - 4))
    assert np.array_equal(View(longformer(4)).mask(9, 9, 9)[0, 0], abs(i - j) <= 2)
    assert np.array_equal(CAUSAL.mask(2, 5, 5)[0, 0], np.tril(np.ones((5, 5), bool))[3:])


def test_a_query_that_sees_nothing_gets_zeros_and_maps_are_of_every_head() -> None:
    module, x = attnlab.mechanism("multihead", heads=2)(width=8), jnp.asarray(given(2, 3, 8))
    params = module.init(jax.random.key(0), x, x)["params"]
    nobody = jnp.array([[True] * 3, [False] * 3])
    reading, _ = module.apply({"params": params}, x, x, valid=nobody, mutable=[MAPS])  # type: ignore[misc]
    assert not reading.context[1].any()
    assert reading.context[0].all()
    assert reading.weights.shape == (2, 2, 3, 3)


def test_neighbouring_heads_of_differential_make_a_pair() -> None:
    """With everything in the second head of each pair at zero, its map is uniform: what is
    subtracted of a pair's map.
    """
    module, x = attnlab.mechanism("differential", heads=4)(width=8), jnp.asarray(given(1, 3, 8))
    params = jax.tree.map(np.array, module.init(jax.random.key(0), x, x)["params"])
    for odd in ("w_query", "w_key"):
        kernel = params[odd]["kernel"].reshape(8, 4, 2) * np.array([1, 0, 1, 0])[:, None]
        params[odd]["kernel"] = kernel.reshape(8, 8)
    reading, _ = module.apply({"params": params}, x, x, mutable=[MAPS])  # type: ignore[misc]
    single = attnlab.mechanism("multihead", heads=4)(width=8)
    shared = {name: params[name] for name in ("w_query", "w_key", "w_value", "out")}
    both = single.apply({"params": shared}, x, x, mutable=[MAPS])[0]
    strength = np.exp(params["a1"] @ params["b1"]) - np.exp(params["a2"] @ params["b2"]) + 0.2
    expected = np.asarray(both.weights)[:, [0, 2]] - strength / 3  # type: ignore[union-attr]
    np.testing.assert_allclose(reading.weights, expected, atol=1e-5)


def test_torchs_lstm(page: dict[str, Any]) -> None:
    """Its gates stand i, f, g, o in the rows of both matrices, and both biases count."""
    state = {
        "weight_ih_l0": given(12, 4),
        "weight_hh_l0": given(12, 3),
        "bias_ih_l0": given(12),
        "bias_hh_l0": given(12),
    }
    w_x, w_h, b_x, b_h = state.values()
    x, h, c = given(2, 5, 4), np.zeros((2, 3)), np.zeros((2, 3))
    for t in range(5):
        rows = x[:, t] @ w_x.T + b_x + h @ w_h.T + b_h
        i, f, g, o = np.split(rows, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    outputs, last = LSTMLayer(3).apply(
        {"params": page["lstm_of_torch"](state)}, x, jnp.ones((2, 5), bool)
    )  # type: ignore[misc]
    np.testing.assert_allclose(outputs[:, -1], h, atol=1e-5)
    np.testing.assert_allclose(last.c, c, atol=1e-5)


def test_torchs_gru_is_the_context_gru_with_the_update_gate_turned_round() -> None:
    """Its n = tanh(p_n + r (h U_n)) and h' = (1 - z) n + z h: with the blocks of z negated it is
    ours.
    """
    past, p, h = given(3, 9), given(2, 9), given(2, 3)
    r, z = sigmoid(p[:, :3] + h @ past[:, :3]), sigmoid(p[:, 3:6] + h @ past[:, 3:6])
    n = np.tanh(p[:, 6:] + r * (h @ past[:, 6:]))
    turned = np.repeat(np.array([1, -1, 1], np.float32), 3)
    found = ContextGRUCell(3).apply({"params": {"past": past * turned}}, h, p * turned)
    np.testing.assert_allclose(found, (1 - z) * n + z * h, atol=1e-5)  # type: ignore[arg-type]
