"""What `docs/python.md` shows, run block by block; what its functions make of the weights of other
libraries computes their formulas. The conventions that it names are held by the oracles.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlab
from attnlab.attention.view import CAUSAL
from attnlab.layers.lstm import LSTMLayer
from tests.commands.tiny import Runs
from tests.rounding import assert_close

PAGES = Path(__file__).resolve().parents[1] / "docs"


def blocks(page: str) -> list[str]:
    """The blocks of Python of a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


BLOCKS = blocks("python.md")
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


def test_the_blocks_of_the_page_on_the_inside(runs: Runs, tmp_path: Path) -> None:
    """They run in order, and leave the atlas behind."""
    shutil.copytree(runs("transformer")[0], tmp_path / "runs" / "transformer")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(tmp_path)
        for number, block in enumerate(blocks("inside.md"), start=1):
            exec(compile(block, f"docs/inside.md, block {number}", "exec"), names)
    assert (tmp_path / "atlas.html").is_file() and names["inside"].examples == 8


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
