"""Every registered score keeps the promises of all, in the settings worth a case; a new one is tested here
the moment it is registered. What is special to one: test_score_facts.py.

Oracles are float64 NumPy loops (`score_oracles.py`), tolerances stand in `cases.py`.
"""

import functools
import inspect
import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.scores import SCORES
from attnlab.attention.scores.protocol import NEVER, Score
from attnlab.config.registry import made
from attnlab.errors import UserError
from tests.attention import own_parts
from tests.attention.cases import TOLERANCE
from tests.attention.score_oracles import SCORES as ORACLES
from tests.attention.slopes import assert_slopes

B, H, TQ, TK, D = 2, 2, 3, 5, 6
J = np.arange(TK)
FIELDS: dict[str, list[dict[str, Any]]] = {
    "activated_general": [{}, {"act": "relu"}],
    "additive": [{"hidden": 7}],
    "concat": [{"hidden": 7}],
    "location_aware": [{"hidden": 7, "filters": 3, "reach": 2}],
    "coverage": [{"hidden": 7}, {"hidden": 5, "fertility": 0.0}],
    "location": [{"limit": 4}],
    "source_only": [{"hidden": 7}],
    "cosine": [{}, {"strength": "emitted"}, {"strength": "fixed", "beta": 2.0}],
    "gaussian": [{}, {"spread": "fixed", "tau": 3.0}],
    "qk_norm": [{"length": 9}],
    "qk_rmsnorm": [{}, {"over": 20.0, "epsilon": 1e-2}],
    "scaled_dot": [{}, {"over": 20.0}],
    "soft_capped": [
        {"cap": 2.0},
        {"cap": 1.5, "score": {"name": "additive", "hidden": 7}},
        {"cap": 3.0, "score": {"name": "location", "limit": 4}},
    ],
}
_EVERY = [(name, fields) for name in SCORES.names() for fields in FIELDS.get(name, [{}])]
CASES = [(name, json.dumps(fields)) for name, fields in own_parts.settings("score", _EVERY)]
NAMES = [f"{name}-{fields}" for name, fields in CASES]


def whole(score: Score, q: Any, k: Any, j: Any = J) -> jax.Array:
    """Scores [B,H,Tq,Tk] as a mechanism without positions comes to them."""
    return score.pairs(
        score.of_query(q, k.shape[-1]) * score.scale(q.shape[-1]), score.of_key(k), j
    )


def make(name: str, fields: str) -> Score:
    """The score of a case."""
    return made(SCORES, {"name": name, **json.loads(fields)})()


def drawn(score: Score, query_width: int = D, key_width: int = D) -> Any:
    """Variables of a score, N(0, 1 / rows), those that start at zero too, so that none is silent."""
    q, k = jnp.zeros((1, 1, 1, query_width)), jnp.zeros((1, 1, 1, key_width))
    shapes = jax.eval_shape(lambda: score.init(jax.random.key(0), q, k, np.arange(1), method=whole))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: (rng.normal(size=leaf.shape) / np.sqrt(leaf.shape[0])).astype(np.float32),
        shapes,
    )


def inputs(query_width: int = D, key_width: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Unit-variance q [B,H,Tq,dq] and k [B,H,Tk,dk]."""
    rng, shapes = np.random.default_rng(1), ((TQ, query_width), (TK, key_width))
    q, k = (rng.normal(size=(B, H, *shape)).astype(np.float32) for shape in shapes)
    return q, k


every = pytest.mark.parametrize(("name", "fields"), CASES, ids=NAMES)
promises = pytest.mark.product("promises")


@functools.cache
def compiled(name: str, fields: str) -> Any:
    """(variables, q, k, j, direction [B,H,Tq,Tk]) to scores and the gradients of their product with
    the direction.
    """
    score = make(name, fields)

    def run(variables: Any, q: Any, k: Any, j: Any, direction: Any) -> Any:
        scores, pull = jax.vjp(lambda *a: score.apply(*a, j, method=whole), variables, q, k)
        return scores, pull(direction)

    return jax.jit(run)


def expected(name: str, fields: str, variables: Any, q: Any, k: Any) -> np.ndarray:
    """The oracle over all pairs, from the same numbers."""
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), variables).get("params", {})
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    result = np.zeros((*q.shape[:3], k.shape[2]))
    for b, h, i, j in np.ndindex(result.shape):
        result[b, h, i, j] = ORACLES[name](params, json.loads(fields), q[b, h, i], k[b, h, j], j)
    return result


def assert_agree(found: Any, oracle: np.ndarray, tolerance: float) -> None:
    """Never the same places, and elsewhere as close as the tolerance, relative where scores are
    large.
    """
    never = oracle == NEVER
    np.testing.assert_array_equal(np.asarray(found) == np.float32(NEVER), never)
    shown = np.where(never, 0.0, oracle)
    np.testing.assert_allclose(
        np.where(never, 0.0, found),
        shown,
        rtol=0,
        atol=tolerance * max(1.0, np.abs(shown).max()),
        err_msg="the scores are not those of the oracle",
        verbose=False,
    )


@pytest.mark.quick
def test_every_score_has_an_oracle_and_a_documented_class() -> None:
    assert set(ORACLES) == set(SCORES.names()) and set(FIELDS) <= set(SCORES.names())
    for name in SCORES.names():
        score = SCORES.resolve(name)
        assert issubclass(score, Score) and score.__doc__
        assert score.__module__.startswith("attnlab.attention.scores.")
        kinds = inspect.get_annotations(score).items()
        own = {field for field, kind in kinds if "ClassVar" not in str(kind)}
        own -= {"parent", "name"}
        assert all(f"{field}:" in score.__doc__ for field in own), f"{name}: not documented"


@every
@pytest.mark.quick
def test_values_and_gradients_equal_the_oracle(name: str, fields: str) -> None:
    variables, (q, k) = drawn(make(name, fields)), inputs()
    oracle = expected(name, fields, variables, q, k)
    direction = np.random.default_rng(5).normal(size=oracle.shape).astype(np.float32)
    direction[oracle == NEVER] = 0.0
    scores, grads = compiled(name, fields)(variables, q, k, J, direction)
    assert scores.dtype == jnp.float32
    assert_agree(scores, oracle, TOLERANCE["float32"])

    given = jax.tree.map(lambda a: np.asarray(a, np.float64), [variables, q, k])
    assert_slopes(grads, given, lambda *to: (expected(name, fields, *to) * direction).sum())


@every
def test_zero_vectors_ties_and_large_numbers_give_finite_gradients(name: str, fields: str) -> None:
    """Queries and keys of zeros, a query equal to a key, two equal keys; then 1e4 everywhere in a
    key that gets no cotangent.
    """
    variables, (q, k) = drawn(make(name, fields)), inputs()
    q[0, 0, 0] = q[0, 1, 1] = k[0, 0, 1] = k[0, 1, 2] = 0.0
    k[1, :, 1] = q[1, :, 0]
    k[1, :, 3] = k[1, :, 2]
    run = compiled(name, fields)
    scores, grads = run(variables, q, k, J, np.ones((B, H, TQ, TK), np.float32))
    assert_agree(scores, expected(name, fields, variables, q, k), TOLERANCE["float32"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
    none, grads_of_none = run(variables, 0 * q, 0 * k, J, np.ones((B, H, TQ, TK), np.float32))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((none, grads_of_none)))

    dirty, masked = np.array(k), np.ones((B, H, TQ, TK), np.float32)
    dirty[:, :, 2], masked[..., 2] = 1e4, 0.0
    clean, clean_grads = run(variables, q, k, J, masked)
    spoilt, spoilt_grads = run(variables, q, dirty, J, masked)
    assert np.isfinite(spoilt).all() and (np.asarray(spoilt_grads[2])[:, :, 2] == 0.0).all()
    np.testing.assert_array_equal(np.delete(spoilt, 2, axis=3), np.delete(clean, 2, axis=3))
    for one, other in zip(*map(jax.tree.leaves, (clean_grads[:2], spoilt_grads[:2])), strict=True):
        np.testing.assert_allclose(
            one, other, atol=TOLERANCE["gradient"] * max(1.0, np.abs(one).max())
        )


@every
@promises
def test_blocks_of_queries_and_keys_give_the_numbers_of_the_whole(name: str, fields: str) -> None:
    """Of batch rows too."""
    score, (q, k) = make(name, fields), inputs()
    bound = score.bind(drawn(score))
    assert_same = functools.partial(
        np.testing.assert_allclose, rtol=TOLERANCE["float32"], atol=TOLERANCE["float32"]
    )

    @jax.jit
    def sides_and_scores(q: Any, k: Any, j: Any) -> Any:
        raised, kept = bound.of_query(q, D) * bound.scale(D), bound.of_key(k)
        return raised, kept, bound.pairs(raised, kept, j)

    raised, kept, full = map(np.asarray, sides_and_scores(q, k, J))
    for b, i, j in [(0, 0, 0), (1, 1, 2), (1, 0, 3)]:
        row, queries, keys = slice(b, b + 1), slice(i, i + 2), slice(j, j + 2)
        actual = sides_and_scores(q[row, :, queries], k[row, :, keys], J[keys])
        assert_same(actual[0], raised[row, :, queries])
        assert_same(actual[1], kept[row, :, keys])
        assert_same(actual[2], full[row, :, queries, keys])


@every
@promises
def test_bfloat16_inputs(name: str, fields: str) -> None:
    """Both sides and all gradients keep their dtype, scores are float32 and near the oracle of the
    rounded numbers.
    """
    score = make(name, fields)
    half = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), tree)
    variables, (q, k) = half(drawn(score)), half(inputs())
    of_query = jax.eval_shape(lambda: score.apply(variables, q, D, method="of_query"))
    of_key = jax.eval_shape(lambda: score.apply(variables, k, method="of_key"))
    ones = np.ones((B, H, TQ, TK), np.float32)
    _, grads = jax.eval_shape(compiled(name, fields), variables, q, k, J, ones)
    wanted = {jnp.dtype(jnp.bfloat16)}
    assert {leaf.dtype for leaf in jax.tree.leaves((of_query, of_key, grads))} == wanted
    scores = jax.jit(functools.partial(score.apply, method=whole))(variables, q, k)
    assert scores.dtype == jnp.float32
    assert_agree(scores, expected(name, fields, variables, q, k), TOLERANCE["bfloat16"])


@every
@promises
def test_product_and_rotary_are_declared_as_they_are(name: str, fields: str) -> None:
    """product: `pairs` is the inner product. rotary: the width stays, and turning both sides alike
    changes nothing.
    """
    score, (q, k) = make(name, fields), inputs()
    assert isinstance(score.product, bool) and isinstance(score.rotary, bool)
    bound = score.bind(drawn(score))
    raised, kept = np.asarray(bound.of_query(q, D) * bound.scale(D)), np.asarray(bound.of_key(k))
    scores = np.asarray(bound.pairs(raised, kept, J))
    alike = raised.shape[-1] == kept.shape[-1]
    product = alike and np.abs(np.einsum("bhqa,bhka->bhqk", raised, kept) - scores).max() < 1e-5
    assert product == score.product, f"declare `product = {product}` in the class"
    turned = False
    if alike and raised.shape[-1] == D:
        turn = np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))[0]
        both = ((x.astype(np.float64) @ turn).astype(np.float32) for x in (raised, kept))
        turned = np.abs(np.asarray(bound.pairs(*both, J)) - scores).max() < 1e-5
    assert turned == score.rotary, f"declare `rotary = {turned}` in the class"


MATRICES = {"general", "biased_general", "activated_general"}
MATRICES |= {"additive", "concat_identity", "coverage", "location_aware", "source_only"}


@every
def test_unequal_widths_are_right_or_refused(name: str, fields: str) -> None:
    """Right with a matrix between the two sides, and where keys are not looked at."""
    score, (q, k) = make(name, fields), inputs(6, 4)
    try:
        variables = drawn(score, 6, 4)
    except UserError as error:
        assert re.match("score .*is 6 wide, the key 4.*'additive'", str(error))
        assert name not in MATRICES | {"location"}
        return
    assert name in MATRICES | {"location", "soft_capped"} or ":" in name
    actual = score.apply(variables, q, k, method=whole)
    assert_agree(actual, expected(name, fields, variables, q, k), TOLERANCE["float32"])
