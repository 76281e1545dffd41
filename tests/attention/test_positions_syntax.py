"""Positions in dependency trees are what the oracle makes of head indices, and schemes read them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.positions import shaw, syntax
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import Window
from attnlab.errors import UserError
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
    scheme, plain = syntax.SyntaxRelative(clip=2), shaw.Shaw(clip=2)
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
    module = MultiHead(
        width=12, heads=3, positions={"name": "syntax_relative", "clip": 2}, kernel="plain"
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
    blocks = MultiHead(
        width=12, heads=3, positions={"name": "syntax_relative", "clip": 2}, kernel="blockwise"
    )
    assert_close(jax.jit(blocks.apply)(params, x, x, view).context, full, eps=8)
