"""Positions in dependency trees: integers from head indices, and the scheme that reads depths."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.positions import shaw
from attnlab.attention.positions.syntax import (
    Syntax,
    SyntaxRelative,
    ancestors,
    depth,
    structural_distance,
    tree_distance,
)
from attnlab.attention.view import CAUSAL, EVERYTHING, View
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
    signed, of_edges = (
        structural_distance(heads, valid),
        structural_distance(heads, valid, mode="edge"),
    )
    return (
        depth(heads, valid),
        ancestors(heads, valid),
        tree_distance(heads, valid),
        signed,
        of_edges,
    )


def pairwise(heads: np.ndarray, function: Any) -> np.ndarray:
    length = heads.shape[1]
    return np.array(
        [
            [[function(row.tolist(), i, j) for j in range(length)] for i in range(length)]
            for row in heads
        ]
    )


@pytest.mark.quick
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_relations_equal_the_oracle(length: int) -> None:
    heads = random_trees(6, length)
    deep, up, between, signed, of_edges = relations(heads, None)
    np.testing.assert_array_equal(
        deep, [[len(path(row, i)) - 1 for i in range(length)] for row in heads.tolist()]
    )
    np.testing.assert_array_equal(up, pairwise(heads, lambda row, i, j: j in path(row, i)))
    np.testing.assert_array_equal(between, pairwise(heads, edges))
    np.testing.assert_array_equal(
        signed, pairwise(heads, lambda row, i, j: structural(row, i, j, "ancestor"))
    )
    np.testing.assert_array_equal(
        of_edges, pairwise(heads, lambda row, i, j: structural(row, i, j, "edge"))
    )
    for found in (signed, of_edges):  # the sign changes with the order
        np.testing.assert_array_equal(found, -found.mT)


@pytest.mark.quick
def test_a_chain_is_the_sequence_and_a_star_is_flat() -> None:
    chain = np.arange(-1, 8, dtype=np.int32)[None]
    i, j = np.arange(9)[:, None], np.arange(9)
    deep, _, between, signed, _ = relations(chain, None)
    np.testing.assert_array_equal(deep[0], np.arange(9))
    np.testing.assert_array_equal(signed[0], i - j)
    np.testing.assert_array_equal(between[0], abs(i - j))
    deep, _, between, signed, _ = (
        x.tolist()[0] for x in relations(np.array([[2, 2, -1, 2, 2]], np.int32), None)
    )
    assert deep == [1, 1, 0, 1, 1]
    for n, m in itertools.product(range(5), range(5)):
        assert between[n][m] == (0 if n == m else 1 if 2 in (n, m) else 2)
    assert signed[0] == [0, -2, 1, -2, -2] and signed[4] == [2, 2, 1, 2, 0]


@pytest.mark.parametrize("garbage", [-1, 0, 3, 10_000, -10_000])
def test_padding_holds_nothing_and_changes_nothing(garbage: int) -> None:
    """Trees of different sizes in one batch, compiled; whatever stands behind them."""
    lengths, longest = (7, 1, 4), 9
    valid = np.arange(longest) < np.array(lengths)[:, None]
    heads = np.full((3, longest), garbage, np.int32)
    for row, length in enumerate(lengths):
        heads[row, :length] = random_trees(1, length, seed=row)[0]
    found = relations(heads, valid)
    for row, length in enumerate(lengths):
        tree = heads[row : row + 1, :length]
        alone = (
            np.array([len(path(tree[0].tolist(), i)) - 1 for i in range(length)]),
            pairwise(tree, lambda row, i, j: j in path(row, i))[0],
            pairwise(tree, edges)[0],
            pairwise(tree, lambda row, i, j: structural(row, i, j, "ancestor"))[0],
            pairwise(tree, lambda row, i, j: structural(row, i, j, "edge"))[0],
        )
        for which, (all_rows, inside) in enumerate(zip(found, alone, strict=True)):
            expected = np.pad(inside, [(0, longest - length)] * inside.ndim)
            expected = (
                expected | np.diag(~valid[row]) if which == 1 else expected
            )  # padding is above nothing but itself
            np.testing.assert_array_equal(all_rows[row], expected)


def test_a_root_may_name_itself_and_there_may_be_several() -> None:
    heads = np.array([[-1, 0, 2, 2, 3]], np.int32)
    deep, _, between, _, _ = relations(heads, None)
    assert deep.tolist() == [[0, 1, 0, 1, 2]]
    np.testing.assert_array_equal(between, pairwise(heads, edges))
    assert between[0, 1, 4] == 1 + 1 + 1 + 2  # up to the root, up and down the one above both, down


def test_the_scheme_sees_place_and_depth() -> None:
    heads = random_trees(2, 6)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    scheme = Syntax()
    deep = relations(heads, None)[0]
    params = jax.jit(functools.partial(scheme.init, method="embed"))(jax.random.key(0), x, deep)
    assert jax.tree.map(jnp.shape, params) == {"params": {"merge": (16, 8)}}
    embed = jax.jit(functools.partial(scheme.apply, method="embed"))
    gain, other = embed(params, x, deep) - x, embed(params, x, np.zeros((2, 6), np.int32)) - x
    assert (np.abs(gain - other).max(-1) > 1e-3).tolist() == (np.asarray(deep) > 0).tolist()
    assert (
        np.abs(np.diff(other, axis=1)).max(-1).min() > 1e-3
    )  # places count where depths are equal
    np.testing.assert_array_equal(embed(jax.tree.map(np.zeros_like, params), x, deep), x)


def test_places_are_not_taken_for_depths() -> None:
    x = jnp.zeros((2, 6, 8))
    for positions in (jnp.arange(6), jnp.zeros((2, 5), jnp.int32)):
        with pytest.raises(
            UserError,
            match=(
                r"syntax: wants a depth for each word, \(2, 6\), and was given positions"
                r" .*'sinusoidal'"
            ),
        ):
            Syntax().init(jax.random.key(0), x, positions, method="embed")


def test_relative_form_with_the_parts_of_shaw() -> None:
    """On a chain the structural distance is i - j, so its tables are those of Shaw the other way
    round; on other trees, the loops.
    """
    rng = np.random.default_rng(0)
    q, weights, tables = (
        rng.normal(size=(2, 3, 5, 4)),
        rng.dirichlet(np.ones(5), size=(2, 3, 5)),
        rng.normal(size=(2, 7, 4)),
    )
    q, weights, tables = (np.asarray(x, np.float32) for x in (q, weights, tables))
    heads = np.stack([np.arange(-1, 4, dtype=np.int32), random_trees(1, 5)[0]])
    rows = np.clip(relations(heads, None)[3], -3, 3) + 3
    keys = jax.jit(jax.vmap(shaw.key_part, (0, None, 0)))(q, tables[0], rows)
    values = jax.jit(jax.vmap(shaw.value_part, (0, None, 0)))(weights, tables[1], rows)
    sequence = shaw.Shaw(clip=3).apply(
        {"params": {"keys": tables[0][::-1]}},
        q[:1],
        EVERYTHING.over(5, 5),
        method="bias",
    )
    np.testing.assert_allclose(keys[:1], sequence, atol=1e-6)
    for b, h, i in np.ndindex(2, 3, 5):
        row = [
            max(-3, min(3, structural(heads[b].tolist(), i, j, "ancestor"))) + 3 for j in range(5)
        ]
        assert_close(keys[b, h, i], tables[0][row] @ q[b, h, i], eps=8)
        np.testing.assert_allclose(values[b, h, i], weights[b, h, i] @ tables[1][row], atol=1e-6)


def test_the_relative_scheme_adds_what_the_trees_say() -> None:
    """Its bias and values are Shaw's and the parts of the tree's distances, of any block of queries
    and keys.
    """
    rng = np.random.default_rng(0)
    q, weights = (
        rng.normal(size=(2, 3, 2, 4)).astype(np.float32),
        rng.dirichlet(np.ones(3), size=(2, 3, 2)).astype(np.float32),
    )
    params = {
        name: rng.normal(size=(5, 4)).astype(np.float32)
        for name in ("keys", "values", "tree_keys", "tree_values")
    }
    heads = random_trees(2, 6)
    trees = relations(heads, None)[3]
    view = View(trees=trees).among(jnp.array([2, 5]), jnp.array([1, 4, 7]))
    scheme, plain = SyntaxRelative(clip=2), shaw.Shaw(clip=2)
    near = {name: params[name] for name in ("keys", "values")}
    scores = scheme.apply({"params": params}, q, view, 0.5, method="bias") - plain.apply(
        {"params": near}, q, view, 0.5, method="bias"
    )
    more = scheme.apply({"params": params}, weights, view, 4, method="values")
    more = more - plain.apply({"params": near}, weights, view, 4, method="values")
    for b, h, i in np.ndindex(2, 3, 2):
        far = [
            structural(heads[b].tolist(), (2, 5)[i], j, "ancestor") if j < 6 else 0
            for j in (1, 4, 7)
        ]  # no tree at place 7
        rows = [max(-2, min(2, one)) + 2 for one in far]
        np.testing.assert_allclose(
            scores[b, h, i], 0.5 * params["tree_keys"][rows] @ q[b, h, i], atol=2e-6
        )
        np.testing.assert_allclose(
            more[b, h, i], weights[b, h, i] @ params["tree_values"][rows], atol=2e-6
        )


def test_trees_come_with_the_view_in_a_full_pass_and_in_cached_decoding() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, 12)).astype(np.float32)
    module = MultiHead(
        width=12, heads=3, positions={"name": "syntax_relative", "clip": 2}, kernel="plain"
    )
    trees = relations(random_trees(2, 6), None)[3]
    view = Window(4) & View(trees=trees) & CAUSAL
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32),
        module.init(jax.random.key(0), x, x),
    )
    call = functools.partial(module.apply, params)
    full = jax.jit(call)(x, x, view).context
    assert np.abs(full - jax.jit(call)(x, x, Window(4) & CAUSAL).context).max() > 1e-2
    memory = call(x[:, :4], capacity=7, method="remember")
    for t in (4, 5):
        memory = call(memory, x[:, t : t + 1], method="extend")
        assert_close(
            call(x[:, t : t + 1], memory, view, method="read").context[:, 0], full[:, t], eps=8
        )
    blocks = MultiHead(
        width=12, heads=3, positions={"name": "syntax_relative", "clip": 2}, kernel="blockwise"
    )
    assert_close(jax.jit(blocks.apply)(params, x, x, view).context, full, eps=8)
