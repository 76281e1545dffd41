"""Positions that are more than a place in a row. In dependency trees they are what the oracle makes of
head indices; on a grid one number is a row and a column; schemes, mixers and slots read them.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.needs import Need
from attnlab.attention.positions import syntax
from attnlab.attention.positions.grid import Rope2D, Sinusoidal2D, on_grid, row_and_column
from attnlab.attention.positions.relative import Shaw
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import Window
from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from tests.attention.position_oracles import edges, path, structural
from tests.rounding import assert_close


def random_trees(batch: int, length: int, seed: int = 0) -> np.ndarray:
    """Heads [B,T] of trees with a root anywhere: each word hangs from one that comes before it in a
    random order.
    """
    rng = np.random.default_rng(seed)
    heads = np.full((batch, length), -1, np.int32)
    for row in heads:
        order = rng.permutation(length)
        for n in range(1, length):
            row[order[n]] = order[rng.integers(n)]
    return heads


@jax.jit
def relations(heads: Any, valid: Any) -> tuple[jax.Array, ...]:
    """Depths, ancestors, tree distances, and signed distances of both modes."""
    signed = [syntax.structural_distance(heads, valid, mode=mode) for mode in ("ancestor", "edge")]
    return (
        syntax.depth(heads, valid),
        syntax.ancestors(heads, valid),
        syntax.tree_distance(heads, valid),
        *signed,
    )


def oracle(heads: list[int]) -> list[np.ndarray]:
    """The same of one tree."""
    words = range(len(heads))
    deep = np.array([len(path(heads, i)) - 1 for i in words])
    pairs = (
        lambda i, j: j in path(heads, i),
        lambda i, j: edges(heads, i, j),
        lambda i, j: structural(heads, i, j, "ancestor"),
        lambda i, j: structural(heads, i, j, "edge"),
    )
    return [deep, *(np.array([[of(i, j) for j in words] for i in words]) for of in pairs)]


@pytest.mark.quick
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_relations_equal_the_oracle(length: int) -> None:
    heads = random_trees(6, length)
    actual = relations(heads, None)
    for every, *rows in zip(actual, *map(oracle, heads.tolist()), strict=True):
        np.testing.assert_array_equal(every, rows)
    for signed in actual[3:]:  # the sign changes with the order
        np.testing.assert_array_equal(signed, -signed.mT)


@pytest.mark.parametrize("garbage", [-1, 0, 3, 10_000, -10_000])
def test_padding_holds_nothing_and_changes_nothing(garbage: int) -> None:
    """Trees of different sizes in one batch, compiled; whatever stands behind them."""
    lengths, longest = (7, 1, 4), 9
    valid = np.arange(longest) < np.array(lengths)[:, None]
    heads = np.full((3, longest), garbage, np.int32)
    for row, length in enumerate(lengths):
        heads[row, :length] = random_trees(1, length, seed=row)[0]
    actual = relations(heads, valid)
    for row, length in enumerate(lengths):
        alone = oracle(heads[row, :length].tolist())
        for number, (every, inside) in enumerate(zip(actual, alone, strict=True)):
            expected = np.pad(inside, [(0, longest - length)] * inside.ndim)
            if number == 1:  # padding is above nothing but itself
                expected = expected | np.diag(~valid[row])
            np.testing.assert_array_equal(every[row], expected)


def test_a_root_may_name_itself_and_there_may_be_several() -> None:
    heads = np.array([[-1, 0, 2, 2, 3]], np.int32)
    deep, _, between, _, _ = relations(heads, None)
    assert deep.tolist() == [[0, 1, 0, 1, 2]]
    np.testing.assert_array_equal(between[0], oracle(heads[0].tolist())[2])
    assert between[0, 1, 4] == 1 + 1 + 1 + 2  # up to the root, up and down the one above both, down


def test_the_scheme_sees_place_and_depth() -> None:
    heads = random_trees(2, 6)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    scheme = syntax.Syntax()
    deep = relations(heads, None)[0]
    params = jax.jit(functools.partial(scheme.init, method="embed"))(jax.random.key(0), x, deep)
    assert jax.tree.map(jnp.shape, params) == {"params": {"merge": (16, 8)}}
    embed = jax.jit(functools.partial(scheme.apply, method="embed"))
    gain, other = embed(params, x, deep) - x, embed(params, x, np.zeros((2, 6), np.int32)) - x
    assert (np.abs(gain - other).max(-1) > 1e-3).tolist() == (np.asarray(deep) > 0).tolist()
    # places count where depths are equal
    assert np.abs(np.diff(other, axis=1)).max(-1).min() > 1e-3
    np.testing.assert_array_equal(embed(jax.tree.map(np.zeros_like, params), x, deep), x)


def test_places_are_not_taken_for_depths() -> None:
    x = jnp.zeros((2, 6, 8))
    for positions in (jnp.arange(6), jnp.zeros((2, 5), jnp.int32)):
        words = (
            r"syntax: wants a depth for each word, \(2, 6\), and was given positions"
            r" .*'sinusoidal'"
        )
        with pytest.raises(UserError, match=words):
            syntax.Syntax().init(jax.random.key(0), x, positions, method="embed")


def test_the_relative_scheme_adds_what_the_trees_say() -> None:
    """Its bias and values are Shaw's and the parts of the tree's distances, of any block of queries
    and keys.
    """
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, 3, 2, 4)).astype(np.float32)
    weights = rng.dirichlet(np.ones(3), size=(2, 3, 2)).astype(np.float32)
    params = {
        name: rng.normal(size=(5, 4)).astype(np.float32)
        for name in ("keys", "values", "tree_keys", "tree_values")
    }
    heads = random_trees(2, 6)
    trees = relations(heads, None)[3]
    view = View(trees=trees).among(jnp.array([2, 5]), jnp.array([1, 4, 7]))
    scheme, plain = syntax.SyntaxRelative(clip=2), Shaw(clip=2)
    near = {name: params[name] for name in ("keys", "values")}

    @jax.jit
    def gained() -> Any:
        new, old = (
            (
                one.apply({"params": given}, q, view, 0.5, method="bias"),
                one.apply({"params": given}, weights, view, 4, method="values"),
            )
            for one, given in ((scheme, params), (plain, near))
        )
        return new[0] - old[0], new[1] - old[1]

    scores, more = gained()
    for b, h, i in np.ndindex(2, 3, 2):
        # no tree at place 7
        far = [
            structural(heads[b].tolist(), (2, 5)[i], j, "ancestor") if j < 6 else 0
            for j in (1, 4, 7)
        ]
        rows = [max(-2, min(2, one)) + 2 for one in far]
        assert_close(scores[b, h, i], 0.5 * params["tree_keys"][rows] @ q[b, h, i], eps=16)
        assert_close(more[b, h, i], weights[b, h, i] @ params["tree_values"][rows], eps=16)


def test_trees_come_with_the_view_in_a_full_pass_and_in_cached_decoding() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, 12)).astype(np.float32)
    positions = {"name": "syntax_relative", "clip": 2}
    module, blocks = (
        MultiHead(width=12, heads=3, positions=positions, kernel=kernel)
        for kernel in ("plain", "blockwise")
    )
    trees = relations(random_trees(2, 6), None)[3]
    view = Window(4) & View(trees=trees) & CAUSAL
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, x)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    call = functools.partial(module.apply, params)

    @jax.jit
    def looks(x: Any) -> Any:
        memory, steps = call(x[:, :4], capacity=7, method="remember"), []
        for t in (4, 5):
            memory = call(memory, x[:, t : t + 1], method="extend")
            steps.append(call(x[:, t : t + 1], memory, view, method="read").context)
        treeless = call(x, x, Window(4) & CAUSAL).context
        return call(x, x, view).context, treeless, jnp.concatenate(steps, axis=1)

    full, treeless, steps = looks(x)
    assert np.abs(full - treeless).max() > 1e-2
    assert_close(steps, full[:, 4:], eps=8)
    assert_close(jax.jit(blocks.apply)(params, x, x, view).context, full, eps=8)


STRIDE = 2**15


def test_a_number_is_a_row_and_a_column() -> None:
    at = on_grid(3, 4)
    assert at.dtype == np.int32 and len(set(at.tolist())) == 12
    rows, columns = row_and_column(at)
    np.testing.assert_array_equal(rows.reshape(3, 4), np.arange(3)[:, None] + np.zeros(4, int))
    np.testing.assert_array_equal(columns.reshape(3, 4), np.arange(4) + np.zeros((3, 1), int))
    moved = row_and_column(jnp.asarray(at) - 5 * STRIDE - 7)
    for one, other in zip(moved, (rows - 5, columns - 7), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(on_grid(1, 9), np.arange(9))
    with pytest.raises(UserError, match="1 x 16385 tokens; positions on a grid end at 16384"):
        on_grid(1, 2**14 + 1)


def test_scores_depend_on_how_far_apart_rows_and_columns_are() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 2, 12, 8)).astype(np.float32)

    @jax.jit
    def scores(at: Any, to: Any) -> jax.Array:
        of_query = Rope2D(base=20.0).apply({}, q, at, method="of_query")
        of_key = Rope2D(base=20.0).apply({}, k, to, method="of_key")
        return jnp.einsum("bhqd,bhkd->bhqk", of_query, of_key)

    at = on_grid(3, 4)
    here = scores(at, at)
    for rows, columns in ((3, -4), (-2, 100)):
        both = at + rows * STRIDE + columns
        assert_close(scores(both, both), here, eps=8)
        for alone in (rows * STRIDE, columns):
            assert np.abs(scores(at + alone, at) - here).max() > 1e-2
    np.testing.assert_array_equal(
        Rope2D().apply({}, q, np.zeros(12, np.int32), method="of_query"), q
    )


def test_halves_are_of_the_row_and_of_the_column() -> None:
    zeros = np.zeros((1, 12, 8), np.float32)
    at = on_grid(3, 4)
    actual = np.asarray(Sinusoidal2D().apply({}, zeros, at, method="embed")).reshape(3, 4, 8)
    for part, axis in ((actual[..., :4], 0), (actual[..., 4:], 1)):
        for i in range(part.shape[axis]):
            one = np.take(part, i, axis)
            np.testing.assert_array_equal(one, np.broadcast_to(one[:1], one.shape))
        first, second = (np.take(part, i, axis) for i in (0, 1))
        assert np.abs(first - second).max() > 0.5


def turns(name: str) -> bool:
    """Whether a mechanism turns queries and keys of one sequence, both ways."""
    can = MECHANISMS.resolve(name).capabilities
    return "query_key" in can.positions and "bidirectional" in can.directions


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("multihead", "latent") else pytest.param(name, marks=pytest.mark.full)
        for name in filter(turns, MECHANISMS.names())
    ],
)
def test_a_mixer_reads_the_places_of_its_view(name: str) -> None:
    """A whole text stands where the view says: tokens in another order, with their places, are the
    same text, and tokens at other places are not.
    """
    fields = {"rotary": 4} if name == "latent" else {}
    mixer = MECHANISMS.resolve(name)(width=16, **fields, positions=Rope2D)
    x = np.random.default_rng(1).normal(size=(1, 6, 16)).astype(np.float32)
    at, order = on_grid(2, 3), np.array([3, 5, 0, 1, 4, 2])
    init = jax.jit(lambda x, at: mixer.init(jax.random.key(0), x, View(positions=at), method="mix"))
    variables = init(x, at[None])
    mix = jax.jit(lambda x, at: mixer.apply(variables, x, View(positions=at), method="mix")[0])
    there = mix(x, at[None])
    np.testing.assert_allclose(mix(x[:, order], at[None, order]), there[:, order], atol=1e-5)
    assert np.abs(mix(x, np.arange(6, dtype=np.int32)[None]) - there).max() > 1e-4


def test_mixers_that_count_by_themselves_know_no_grid() -> None:
    chosen = {"positions": "rope_2d"}
    need = Need(role="self", direction="causal", places="grid", maps=False, mixes=True)
    with pytest.raises(UserError, match="Rope2D needs rows and columns"):
        need.check(MIXERS.resolve("retention"), "slot", chosen)


def test_bases_and_widths_that_turn_nothing() -> None:
    x = np.zeros((1, 1, 2, 6), np.float32)
    for scheme, words in (
        (Rope2D(), "a head width of 6, .* so that it is 8"),
        (Rope2D(base=1.0), "base=1.0, must be above 1"),
    ):
        with pytest.raises(UserError, match=words):
            scheme.apply({}, x, np.arange(2), method="of_query")
