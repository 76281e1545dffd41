"""Blocks: which are skipped, which need no mask, how memory grows, and when "auto" takes them. Windows
that are gathered give what plain gives, with less work.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.analysis.work import flops
from attnlab.attention.alignments.protocol import Softmax
from attnlab.attention.kernels import blocks
from attnlab.attention.kernels.blockwise import Blockwise
from attnlab.attention.kernels.plain import LEAST, AttentionInputs, Auto, Plain
from attnlab.attention.protocol import Memory
from attnlab.attention.scores.protocol import inner
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.attention.visibility import Causal, Segments, Stride, Window, longformer
from attnlab.layers.dense import Dropout
from tests.attention.cases import inputs, make, parameters
from tests.attention.test_kernels import assert_agree, sloped


def look(
    length: int, view: View, *, queries: int = 0, valid: Any = None, heads: int = 1, **changes: Any
) -> AttentionInputs:
    """A look of `queries` (0: as many as keys) at `length` keys, all ones, 4 wide."""
    many = queries or length
    valid = np.ones((1, length), bool) if valid is None else valid
    memory = Memory(valid, np.asarray(length, np.int32))
    q, k = jnp.ones((1, heads, many, 4)), jnp.ones((1, heads, length, 4))
    score, seen = lambda q, k, i, j: inner(q, k), view.onto(memory, jnp.zeros((1, many, 0)))
    made = AttentionInputs(q, k, k, score, seen, Softmax(parent=None), Dropout(0.0, parent=None))
    return made.replace(**{"product": True, **changes})


def listed(of: blocks.Listed) -> list[list[int]]:
    """The columns of each row."""
    return [of.columns[a:b].tolist() for a, b in zip(of.starts[:-1], of.starts[1:], strict=True)]


@pytest.mark.quick
def test_blocks_nobody_sees_are_left_out_and_blocks_all_see_need_no_mask() -> None:
    grid = blocks.cut(look(10, CAUSAL), 3)  # 10 in blocks of 3: the last of either side is padded
    assert (grid.rows, grid.columns, grid.height, grid.width) == (4, 4, 3, 3)
    assert listed(grid.full) == [[], [0], [0, 1], [0, 1, 2]]
    assert listed(grid.partial) == [[0], [1], [2], [3]]
    grid = blocks.cut(look(12, CAUSAL & Window(3)), 3)
    assert listed(grid.full) == [[]] * 4 and listed(grid.partial) == [[0], [0, 1], [1, 2], [2, 3]]
    grid = blocks.cut(look(12, View(longformer(2, (0,)))), 3)
    assert listed(grid.partial) == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [0, 2, 3]]
    grid = blocks.cut(look(9, EVERYTHING), 3)
    assert listed(grid.full) == [[0, 1, 2]] * 3 and not len(grid.partial.columns)
    grid = blocks.cut(look(9, CAUSAL, queries=3), 3)  # the last query stands on the last key
    assert listed(grid.full) == [[0, 1]] and listed(grid.partial) == [[2]]
    grid = blocks.cut(look(9, View(CAUSAL.rule, 2), queries=3), 3)
    assert listed(grid.full) == [[0]] and listed(grid.partial) == [[1]]


def test_what_is_not_known_is_masked_and_not_skipped() -> None:
    padding = np.arange(9)[None] < 7
    grid = blocks.cut(look(9, CAUSAL, valid=padding), 3)
    assert listed(grid.full) == [[]] * 3 and listed(grid.partial) == [[0], [0, 1], [0, 1, 2]]
    grid = blocks.cut(look(9, View(Segments(jnp.zeros((1, 9), jnp.int32)))), 3)
    assert not len(grid.full.columns) and listed(grid.partial) == [[0, 1, 2]] * 3
    counts = []

    @jax.jit
    def traced(at: jax.Array) -> jax.Array:
        counts.append(len(blocks.cut(look(9, View(CAUSAL.rule, at)), 3).partial.columns))
        return at

    traced(jnp.int32(0))
    assert counts == [9]


@pytest.mark.quick
def test_sides_of_blocks() -> None:
    sizes = {1: 1, 256: 256, 257: 136, 300: 152, 1000: 256, 16384: 256}
    assert {length: blocks.size(length, 256) for length in sizes} == sizes
    longest = {1: 512, 8: 256, 32: 128, 10_000: 64}
    assert {n: blocks.longest(look(2, EVERYTHING, heads=n)) for n in longest} == longest
    assert blocks.longest(look(2, EVERYTHING, heads=8, product=False)) < 256


def test_computed_blocks_are_the_visible_ones() -> None:
    """Counted while the program runs, forward and backward."""
    seen: list[tuple[int, int]] = []

    def counted(queries: Any, i: jax.Array, j: jax.Array) -> jax.Array:
        jax.debug.callback(lambda i, j: seen.append((int(i) // 3, int(j) // 3)), i[0], j[0])
        return jnp.zeros((1, 1, i.shape[0], j.shape[0]))

    asked = look(12, CAUSAL & Window(3), bias=counted)
    total = lambda values: Blockwise(3)(asked.replace(values=values)).sum()
    jax.block_until_ready(jax.grad(total)(asked.values))
    jax.effects_barrier()
    visible = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]
    assert sorted(seen) == sorted(2 * visible)


def test_memory_is_linear_in_length() -> None:
    """Temporary memory of the compiled forward and backward pass: four times the length, at most
    four times the bytes.
    """

    def temporary(length: int) -> int:
        asked = look(length, CAUSAL)

        def total(q: Any, k: Any, v: Any) -> jax.Array:
            return (Blockwise(32)(asked.replace(queries=q, keys=k, values=v)) ** 2).sum()

        program = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
        compiled = program.lower(asked.queries, asked.keys, asked.values).compile()
        return int(compiled.memory_analysis().temp_size_in_bytes)

    short, long = temporary(1024), temporary(4096)
    assert long <= 4 * short and long < 4096 * 4096 * 4 / 20


@pytest.mark.quick
def test_auto_takes_blockwise_for_long_looks_it_can_honour() -> None:
    auto, least = Auto(), LEAST
    assert isinstance(auto.chosen(look(least, CAUSAL)), Blockwise)
    assert isinstance(auto.chosen(look(least - 1, CAUSAL)), Plain)
    assert isinstance(auto.chosen(look(least, CAUSAL, queries=1)), Plain)
    assert isinstance(auto.chosen(look(least, CAUSAL, align=lambda *a: a[0])), Plain)
    assert isinstance(auto.chosen(look(least, CAUSAL, drop=lambda x: x)), Plain)


KEYS = 23
M, P = ({"name": name, "reach": 2} for name in ("local_m", "local_p"))
VIEWS = {
    "everything": EVERYTHING,
    "causal": CAUSAL,
    "placed": View(positions=3),
    "placed by row": View(Causal() & Stride(2), positions=np.array([3, 0, 11])),
}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("single", {"score": {"name": "additive", "hidden": 5}, "alignment": P}, "everything"),
    ("single", {"score": "dot", "alignment": {**P, "name": "local_p_renormalised"}}, "everything"),
    ("single", {"score": {"name": "location", "limit": 9}, "alignment": M}, "placed"),
    ("multihead", {"heads": 3, "alignment": M, "positions": "alibi"}, "causal"),
    ("multihead", {"heads": 2, "key_heads": 1, "alignment": M}, "placed by row"),
]


@pytest.mark.parametrize(("name", "config", "view"), CASES)
def test_windows_equal_plain_in_values_and_gradients(
    name: str, config: dict[str, Any], view: str
) -> None:
    query, source, _ = inputs(keys=KEYS)
    valid = np.arange(KEYS)[None] < np.array([KEYS, 0, 6])[:, None]
    module, params = make(name, config), parameters(make(name, config))
    actual, expected = (
        jax.jit(sloped(module.clone(kernel=kernel), VIEWS[view], valid))(params, query, source)
        for kernel in ("auto", "plain")
    )
    assert_agree(actual, expected)


@pytest.mark.quick
def test_less_is_computed_where_the_window_is_small_and_nothing_else_where_it_is_not() -> None:
    query, source, _ = inputs(batch=1, queries=16, keys=200)

    def work(reach: int, kernel: str) -> float:
        alignment = {"name": "local_m", "reach": reach}
        module = make("multihead", {"heads": 3, "alignment": alignment, "kernel": kernel})
        call = lambda params, *given, **method: module.apply({"params": params}, *given, **method)
        memory = call(parameters(module), source, method="remember")
        look = lambda *given: call(*given, View(positions=0), method="read").context
        return flops(look, parameters(module), query, memory)

    assert work(2, "auto") < 0.3 * work(2, "plain")
    assert work(60, "auto") == work(60, "plain")
