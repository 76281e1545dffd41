"""Rules of visibility show what predicates say of every (query, key) pair, and tell blockwise kernels
what brute force tells.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.attention.visibility import (
    Causal,
    Dense,
    Everything,
    Global,
    Local,
    PerHead,
    RandomBlocks,
    Rule,
    Segments,
    Stride,
    Summary,
    Window,
    bigbird,
    dilated,
    longformer,
)
from attnlab.attention.visibility.sparse import draw
from attnlab.errors import UserError
from tests.attention.visibility_oracles import DENSE, HEADS, IDS, MARKS, T, cases, mask

CASES = cases()
RULES = {name: rule for name, (rule, _) in CASES.items()}
EXACT = {"everything", "causal", "window", "stride", "local", "neighbours", "summary", "prefix"}
EXACT |= {"turned summary", "global", "random", "dilated", "sliding"}
every_rule = pytest.mark.parametrize("name", CASES)


@functools.partial(jax.jit, static_argnames=("queries", "keys"))
def masks(
    rules: dict[str, Rule], length: Any, offset: Any = None, *, queries: int, keys: int
) -> dict[str, Any]:
    """The masks of many rules in one program; arrays, length and offset are traced."""
    return {name: View(rule, offset).mask(queries, keys, length) for name, rule in rules.items()}


@functools.cache
def computed(length: int, offset: int | None, queries: int, keys: int) -> dict[str, Any]:
    return masks(RULES, jnp.asarray(length), offset, queries=queries, keys=keys)


def assert_same(result: Any, expected: np.ndarray) -> None:
    """A mask (None: all allowed) broadcasts to the expected one."""
    assert result is None or (result.ndim == 4 and result.dtype == bool)
    np.testing.assert_array_equal(
        np.broadcast_to(True if result is None else result, expected.shape), expected
    )


def full(rule: Rule | View) -> np.ndarray:
    """[T,T] of a rule that knows neither rows nor heads."""
    result = (rule if isinstance(rule, View) else View(rule)).mask(T, T, T)
    return np.ones((T, T), bool) if result is None else np.broadcast_to(result, (1, 1, T, T))[0, 0]


TRIANGLE = np.tril(np.ones((T, T), bool))


@pytest.mark.quick
@every_rule
@pytest.mark.parametrize(
    ("length", "offset", "queries"),
    [(T, None, T), (6, None, 3), (T, 4, 3)],
    ids=["full", "cached", "offset"],
)
def test_masks_equal_the_predicate_of_every_pair(
    name: str, length: int, offset: int | None, queries: int
) -> None:
    first = length - queries if offset is None else offset
    expected = mask(CASES[name][1], range(first, first + queries))
    assert_same(computed(length, offset, queries, T)[name], expected)


@every_rule
def test_blocks_are_called_empty_or_full_only_if_they_are(name: str) -> None:
    rule, predicate = CASES[name]
    view, pairs = View(rule), mask(predicate)
    ranges = list(itertools.combinations(range(T + 1), 2))
    for (i0, i1), (j0, j1) in itertools.product(ranges, ranges):
        block = pairs[:, :, i0:i1, j0:j1]
        touches, everywhere = view.touches(i0, i1, j0, j1), view.everywhere(i0, i1, j0, j1)
        assert type(touches) is bool and type(everywhere) is bool
        assert touches >= block.any() and everywhere <= block.all(), (i0, i1, j0, j1)
        if name in EXACT:
            assert (touches, everywhere) == (block.any(), block.all()), (i0, i1, j0, j1)


@every_rule
def test_what_is_called_causal_is(name: str) -> None:
    rule, predicate = CASES[name]
    known = name in ("causal", "sliding", "strided", "fixed", "factorised", "packed", "mixed")
    assert View(rule).is_causal is known
    assert not known or not np.triu(mask(predicate), 1).any()
    assert Window(1).is_causal and Local(1).is_causal and not (Causal() | Window(2)).is_causal


def test_blocks_far_from_a_causal_window_are_skipped() -> None:
    view = CAUSAL & (Window(4) | Global((0,)))
    assert not view.touches(0, 4, 4, 8) and not view.touches(12, 16, 4, 8)
    assert view.touches(12, 16, 0, 4) and view.touches(4, 8, 4, 8)
    assert (CAUSAL & Window(8)).everywhere(4, 8, 0, 4) is (7 - 0 < 8)
    assert not (CAUSAL & Window(7)).everywhere(4, 8, 0, 4)


# Combining


def test_and_or_laws() -> None:
    rules = [Causal(), Window(2), Stride(3), Global((4,))]
    for a, b, c in itertools.permutations(rules, 3):
        assert (a & b) & c == a & (b & c) and (a | b) | c == a | (b | c)
        np.testing.assert_array_equal(full(a & (b | c)), full((a & b) | (a & c)))
        np.testing.assert_array_equal(full(a | (b & c)), full((a | b) & (a | c)))
    assert Causal() & Everything() == Causal() == Everything() & Causal()
    assert Causal() | Everything() == Everything() == Everything() & Everything()


@pytest.mark.quick
def test_simple_uses_stay_simple() -> None:
    assert View() == EVERYTHING == View(Everything()) and EVERYTHING.mask(3, 4, 4) is None
    assert CAUSAL == View(Causal()) == EVERYTHING & Causal()
    assert View(Causal() & Window(3)) == CAUSAL & Window(3) == Causal() & View(Window(3))
    assert isinstance(Local(2) | CAUSAL, View) and (Local(2) | CAUSAL).rule == Local(2) | Causal()
    assert (CAUSAL | EVERYTHING) == EVERYTHING
    np.testing.assert_array_equal(full(CAUSAL & Window(2)), TRIANGLE & ~np.tril(TRIANGLE, -2))
    with pytest.raises(TypeError):
        CAUSAL & 3  # type: ignore[operator]


def test_positions_survive_combining() -> None:
    for view in (
        View(Causal(), 2) & Window(3),
        Window(3) & View(Causal(), 2),
        CAUSAL & View(Window(3), 2),
    ):
        assert view.positions == 2
        assert_same(view.mask(2, 5, 99), np.array([[[[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]]], bool))
    with pytest.raises(UserError, match="positions"):
        View(Causal(), 2) & View(Causal(), 3)


@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (5, 3), (4, 4)])
def test_arrays_of_a_cross_attention_are_taken_as_they_come(queries: int, keys: int) -> None:
    rng = np.random.default_rng(1)
    allowed = rng.random((2, 1, queries, keys)) < 0.5
    mine, theirs = (rng.integers(3, size=(2, length)) for length in (queries, keys))
    expected = np.array([[mine[b][:, None] == theirs[b]] for b in range(2)])
    room = ((0, 0), (0, 0), (0, 0), (0, 2))
    rules = {"dense": Dense(allowed), "segments": Segments(mine, theirs)}
    result = masks(rules, keys, queries=queries, keys=keys + 2)
    assert_same(result["dense"], np.pad(allowed, room))
    assert_same(result["segments"], np.pad(expected, room))


@pytest.mark.parametrize(
    "rule",
    [
        Dense(np.ones((T, T), bool)),
        Segments(np.zeros((1, T), int)),
        Global(marked=np.ones((1, T), bool)),
    ],
)
def test_positions_an_array_does_not_cover_are_seen_by_nothing(rule: Rule) -> None:
    result = View(rule).allows(np.array([-1, 0, T]), np.array([-2, -1, T - 1, T]))  # type: ignore[arg-type]
    # a global token sees what no array covers, and is seen from there
    known = isinstance(rule, Global)
    assert_same(
        result, np.array([[[[0, 0, known, 0], [known, known, 1, known], [0, 0, known, 0]]]], bool)
    )


# Under transformations


def test_equal_rules_share_a_program_whatever_their_arrays_hold() -> None:
    traces = []

    @jax.jit
    def look(rules: Any, length: Any, offset: Any) -> Any:
        traces.append(1)
        return [View(rule, offset).mask(2, T, length) for rule in rules.values()]

    def made(window: int, flip: bool) -> dict[str, Rule]:
        marks, ids = (~MARKS, IDS + 1) if flip else (MARKS, IDS)
        joined = Segments(ids) & bigbird(T, HEADS, 1, 2)
        return {"a": Window(window) | Global((0,), marks), "b": joined}

    look(made(3, False), jnp.asarray(5), jnp.asarray(1))
    look(made(3, True), jnp.asarray(6), jnp.asarray(2))
    assert len(traces) == 1
    look(made(4, True), jnp.asarray(6), jnp.asarray(2))
    assert len(traces) == 2


def test_rules_without_arrays_hash() -> None:
    make = lambda: (
        CAUSAL & (Local(4) | Global((0,)) | PerHead((Window(2), Stride(3))) | bigbird(40, 2))
    )
    assert make() == make() and hash(make()) == hash(make()) and not jax.tree.leaves(make())
    masked = jax.jit(lambda view: view.mask(2, 4, 4), static_argnums=0)(make())
    assert masked.shape == (1, 2, 2, 4)


def test_vmap_and_scan() -> None:
    rows = jax.vmap(lambda ids: View(Segments(ids[None]) & Causal()).mask(T, T, T))(IDS)
    expected = mask(cases()["packed"][1])
    assert_same(rows[:, 0], expected)
    view = CAUSAL & Segments(IDS)
    step = lambda length, _: (length + 1, view.mask(1, T, length))
    _, steps = jax.lax.scan(step, jnp.asarray(1), None, length=T)
    assert_same(jnp.moveaxis(steps[:, :, :, 0], 0, 2), expected)


# Patterns


@pytest.mark.parametrize("length", [1, 2, T])
def test_bigbird_with_all_blocks_drawn_is_full_attention(length: int) -> None:
    look = jax.jit(
        lambda: [
            View(bigbird(length, 2, block, random=length)).mask(length, length, length)
            for block in (1, 2, 4, 20)
        ]
    )
    for result in look():
        np.testing.assert_array_equal(result, np.ones((1, 2, length, length), bool))


def test_windows_are_counted_as_jax_counts_them() -> None:
    zeros, values = jnp.zeros((1, T, 1, T)), jnp.eye(T)[None, :, None]
    for rule, size in ((Causal() & Window(3), (2, 0)), (Window(3), (2, 2))):
        weights = jax.nn.dot_product_attention(zeros, zeros, values, local_window_size=size)
        np.testing.assert_array_equal(full(rule), weights[0, :, 0] > 0)


# BigBird's draw


@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_random_blocks_are_as_many_as_asked_and_never_seen_anyway(count: int) -> None:
    blocks = draw(8, count, 3, 5)
    for head, row in itertools.product(range(3), range(8)):
        free = [column for column in range(1, 7) if abs(column - row) > 1] if 0 < row < 7 else []
        columns = np.flatnonzero(blocks[head, row])
        assert len(columns) == min(count, len(free)) and set(columns) <= set(free)


def test_the_draw_is_fixed_by_its_seed() -> None:
    first = draw(12, 3, 2, 5).copy()
    draw.cache_clear()
    np.testing.assert_array_equal(draw(12, 3, 2, 5), first)
    assert (draw(12, 3, 2, 6) != first).any() and (first[0] != first[1]).any()
    assert bigbird(50, 2, 4, seed=1) == bigbird(50, 2, 4, seed=1) != bigbird(50, 2, 4, seed=2)


# Mistakes


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Window(0), "Window: width=0"),
        (lambda: CAUSAL & Window(0), "Window: width=0"),
        (lambda: Stride(0), "Stride: stride=0"),
        (lambda: dilated(0, 2), "dilated: width=0"),
        (lambda: dilated(2, 0), "dilated: dilation=0"),
        (lambda: Local(0), "Local: block=0"),
        (lambda: Local(2, -1), "Local: reach=-1"),
        (lambda: Summary(4, 3, 1), "stride=4"),
        (lambda: Global([1]), "tuple"),  # type: ignore[arg-type]
        (lambda: longformer(5), "nearest even one is 4"),
        (lambda: RandomBlocks(8, 2, -1), "RandomBlocks: count=-1"),
        (
            lambda: PerHead((Causal(), Dense(DENSE))).allows(jnp.arange(T), jnp.arange(T)),
            "2 heads of its own",
        ),
    ],
)
def test_mistakes_are_named(make: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()
