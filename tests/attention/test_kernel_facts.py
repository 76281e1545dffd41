"""Kernels equal plain in what they meet in use: garbage in padding, room to spare, queries that see
nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.kernels import blocks
from attnlab.attention.view import CAUSAL, EVERYTHING
from attnlab.attention.visibility import Window
from tests.attention.cases import WIDTH, inputs, make, parameters
from tests.rounding import assert_close

ALIGNMENTS = ("softmax", "sigmoid", "scalable_softmax")
VIEWS = {"causal": CAUSAL, "near": CAUSAL & Window(2)}


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three: eight positions take three of them, the last padded."""
    monkeypatch.setattr(blocks, "LONGEST", 3)


def read(config: dict[str, Any], kernel: str, query: Any, source: Any, *rest: Any) -> Any:
    """The context by one kernel, nothing of it traced, so that what is known may be used."""
    module = make("multihead", {"heads": 3, **config, "kernel": kernel})
    return module.apply({"params": parameters(module)}, query, source, *rest).context


@pytest.mark.parametrize("case", ["xla-softmax", *(f"blockwise-{name}" for name in ALIGNMENTS)])
def test_garbage_in_padding_changes_nothing(case: str) -> None:
    kernel, alignment = case.split("-")
    query, source, valid = inputs(queries=8)
    dirty = np.where(valid[..., None], source, np.float32(1e4))
    actual = read({"alignment": alignment}, kernel, query, dirty, EVERYTHING, valid)
    assert_close(
        actual, read({"alignment": alignment}, "plain", query, source, EVERYTHING, valid), eps=8
    )


@pytest.mark.parametrize("case", ["causal-blockwise", "causal-xla", "near-blockwise", "near-xla"])
def test_a_memory_with_room_to_spare_is_read_to_its_length(case: str) -> None:
    """The last query stands on the last slot written, not on the last there is."""
    view, kernel = case.split("-")
    query, source, _ = inputs(queries=4, keys=7)
    module = make("multihead", {"heads": 3})
    params = {"params": parameters(module)}
    memory = module.apply(params, source, None, 12, method="remember")
    actual, expected = (
        module.clone(kernel=name).apply(params, query, memory, VIEWS[view], method="read").context
        for name in (kernel, "plain")
    )
    assert_close(actual, expected, eps=8)


@pytest.mark.parametrize("kernel", ["blockwise", "xla"])
def test_queries_that_see_nothing_get_exactly_nothing(kernel: str) -> None:
    query, source, _ = inputs(queries=8, keys=5)
    valid = np.array([[True] * 5, [False] * 5, [False] * 3 + [True] * 2])
    # of eight queries on five keys the first three stand before the first key
    actual = read({}, kernel, query, source, CAUSAL, valid)
    assert_close(actual, read({}, "plain", query, source, CAUSAL, valid), eps=8)
    assert not (actual[1].any() or actual[:, :3].any() or actual[2, :6].any())


def test_the_kernel_of_a_config_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name falls back to another in silence."""
    from attnlab.attention.kernels import blockwise, fused

    x = jnp.zeros((1, 3, WIDTH))
    for kernel, owner in (("blockwise", blockwise.Blockwise), ("xla", fused.Xla)):
        ran: list[str] = []
        plain = owner.__call__
        called = lambda self, look, plain=plain, ran=ran: ran.append("yes") or plain(self, look)
        monkeypatch.setattr(owner, "__call__", called)
        jax.eval_shape(lambda x, kernel=kernel: read({}, kernel, x, x), x)
        assert ran == ["yes"]
