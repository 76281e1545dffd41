"""No keys give zeros, no queries or no rows give empty arrays: of every mechanism, alignment, score,
position scheme and kernel; nobody fails, nothing is NaN.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.kernels import KERNELS
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from tests.attention import cases, test_alignments, test_positions, test_scores

EMPTY = [(2, 3, 0), (2, 0, 4), (2, 0, 0), (0, 3, 4)]  # rows, queries, keys
FIRST = cases.first_settings()
# that a default run looks at
SEVERAL = [case for case in FIRST if case[0] in ("single", "multihead", "linear", "latent")]


def looked(module: Any, rows: int, queries: int, keys: int, view: Any = EVERYTHING) -> Any:
    """A function of (params, query, source) to context and weights, and ones to hand it; padding is
    possible, so that there is a mask.
    """

    def run(params: Any, query: Any, source: Any) -> Any:
        given = query, source, view, jnp.ones((rows, keys), bool)
        reading, _ = module.apply({"params": params}, *given, mutable=[MAPS])
        return reading.context, reading.weights

    sides = (jnp.ones((rows, length, cases.WIDTH)) for length in (queries, keys))
    return run, (cases.parameters(module), *sides)


def shapes(module: Any, view: Any = EVERYTHING, looks: Any = EMPTY) -> list[tuple[int, int, int]]:
    """What the shapes of context and weights of empty looks say of rows, queries and keys; where
    these are empty, it is all.
    """
    result = []
    for sizes in looks:
        run, given = looked(module, *sizes, view)
        context, weights = jax.eval_shape(run, *given)
        assert context.shape == (*weights.shape[::2], cases.WIDTH)
        result.append((weights.shape[0], *weights.shape[2:]))
    return result


def all_zeros(module: Any) -> bool:
    """Whether without keys contexts are zeros, and finite gradients zero for queries; biases, which
    are added to nothing too, are 0.
    """
    run, (params, *given) = looked(module, 2, 3, 0)
    slopes, context = sloped(run)(cases.without_biases(params), *given)
    finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    return finite and not np.asarray(context).any() and not np.asarray(slopes[1]).any()


def sloped(run: Any) -> Any:
    """Slopes of the sum of a context in all arguments, and the context; one program."""

    def total(*given: Any) -> Any:
        context, _ = run(*given)
        return context.sum(), context

    return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))


@cases.over(cases.CASES, drawn=SEVERAL)
def test_shapes_of_looks_at_nothing(name: str, config: dict[str, Any]) -> None:
    """All of them in the first setting of a mechanism; in others, where parts differ, whose looks at
    nothing are tested below, no keys and no queries.
    """
    looks = EMPTY if (name, config) in FIRST else EMPTY[:2]
    assert shapes(cases.make(name, config), looks=looks) == looks


@cases.over(FIRST, drawn=SEVERAL)
def test_nothing_seen_is_zeros(name: str, config: dict[str, Any]) -> None:
    assert all_zeros(cases.make(name, config))


@pytest.mark.parametrize("alignment", ["softmax", "entmax"])
@pytest.mark.parametrize("sizes", [(0, 3, 4), (2, 0, 4)])
def test_nobody_looking_runs_with_zero_slopes(alignment: str, sizes: tuple[int, int, int]) -> None:
    """Computed, not by shapes alone: no rows or no queries leave no slope on any parameter, nor on
    the source.
    """
    run, given = looked(cases.make("multihead", {"heads": 3, "alignment": alignment}), *sizes)
    (of_params, *others), context = sloped(run)(*given)
    assert context.shape == (*sizes[:2], cases.WIDTH)
    assert [one.shape for one in others] == [one.shape for one in given[1:]]
    assert jax.tree.leaves(of_params)
    assert all((leaf == 0.0).all() for leaf in jax.tree.leaves([of_params, others]))


@pytest.mark.parametrize(
    "kernel", [name for name in KERNELS.names() if name not in ("plain", "cudnn", "gathered")]
)
def test_kernels_of_nothing(kernel: str) -> None:
    module = cases.make("multihead", {"heads": 3, "kernel": kernel, "positions": "alibi"})
    assert shapes(module) == shapes(module, CAUSAL) == EMPTY and all_zeros(module)


def _both_ways(run: Any, scores: Any) -> tuple[Any, Any]:
    """Weights, and a slope of the scores."""
    weights, back = jax.vjp(run, scores)
    return weights, back(weights)[0]


@test_alignments.every
def test_alignments_of_nothing(name: str, fields: str) -> None:
    module, params, _ = test_alignments.prepared(name, fields)
    for batch, queries, keys in EMPTY:
        scores = jnp.zeros((batch, test_alignments.H, queries, keys))
        query = jnp.zeros((batch, queries, test_alignments.DQ))
        valid = jnp.ones((batch, keys), bool)
        at = View(query=query, valid=valid).among(jnp.arange(queries), jnp.arange(keys))
        for mask in (jnp.ones(scores.shape, bool), *([] if keys else [None])):
            run = functools.partial(module.apply, {"params": params}, mask=mask, view=at)
            weights, slope = jax.eval_shape(functools.partial(_both_ways, run), scores)
            assert weights.shape == slope.shape == scores.shape


@test_scores.every
def test_no_texts_queries_or_keys_give_no_scores(name: str, fields: str) -> None:
    score = test_scores.make(name, fields)
    variables = test_scores.drawn(score)
    for batch, queries, keys in EMPTY:
        q, k = (jnp.zeros((batch, 2, length, test_scores.D)) for length in (queries, keys))
        run = functools.partial(score.apply, method=test_scores.whole)
        actual = jax.eval_shape(run, variables, q, k, jnp.arange(keys))
        assert actual.shape == (batch, 2, queries, keys)


@test_positions.every
def test_no_texts_queries_or_keys_need_no_positions(case: int) -> None:
    look, params = test_positions.prepared(case)
    for batch, queries, keys in EMPTY:
        q, k = (
            jnp.zeros((batch, test_positions.HEADS, length, test_positions.WIDTH))
            for length in (queries, keys)
        )
        weights = jnp.zeros((*q.shape[:3], keys))
        places = jnp.arange(queries), jnp.arange(keys)
        scores, more = jax.eval_shape(look, params, q, k, weights, *places)
        assert scores.shape == weights.shape and more.shape == (*q.shape[:3], test_positions.VALUE)


@pytest.mark.parametrize(
    "name", [name for name in POSITIONS.names() if "embedding" in POSITIONS.resolve(name).hooks]
)
def test_embeddings_of_nothing(name: str) -> None:
    scheme = POSITIONS.resolve(name)()
    embed = functools.partial(scheme.init_with_output, jax.random.key(0), method="embed")
    for batch, length in ((2, 0), (0, 3)):
        x, positions = jnp.zeros((batch, length, 6)), jnp.zeros((batch, length), jnp.int32)
        assert jax.eval_shape(embed, x, positions)[0].shape == x.shape
