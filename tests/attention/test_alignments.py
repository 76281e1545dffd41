"""Every registered alignment keeps the promises of all, without a random stream; a new one is tested
here the moment it is registered.

What is particular to one family stands in `test_alignment_families.py` and `test_reinforce.py`.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.protocol import Alignment, softmax
from attnlab.attention.view import View
from tests.attention import alignment_oracles, own_parts
from tests.attention.cases import TOLERANCE, wide
from tests.attention.slopes import assert_slopes

B, H, TQ, TK, DQ = 3, 2, 4, 7, 5
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "entmax": [{}, {"alpha": 1.3}, {"alpha": 1.9}],
    "learned_entmax": [{"alpha": 1.2}],
    "sigmoid": [{}, {"bias": -1.5}],
    "local_m": [{"reach": 1}],
    "local_p": [{"reach": 2}, {"reach": 3, "span": "n - 1"}],
    "local_p_renormalised": [{"reach": 2}],
    "gumbel": [{"tau": 0.5}],
    "diagonal": [{}, {"reach": 1}],
    "temporal": [{}, {"past": "scores"}],
    "scalable_softmax": [{"length": 5}, {"bias": True}],
    "top_k": [{"keep": 3}],
    "moba": [{"block": 2, "blocks": 2}],
}
_EVERY = [(name, fields) for name in ALIGNMENTS.names() for fields in SETTINGS.get(name, [{}])]
CASES = [(name, json.dumps(fields)) for name, fields in own_parts.settings("alignment", _EVERY)]
every = pytest.mark.parametrize(
    ("name", "fields"), CASES, ids=[f"{name}-{fields}" for name, fields in CASES]
)

SEVERAL = ("softmax", "monotonic", "selective", "local_p", "moba")  # that differ in what they read

# where the gradient is on purpose not that of the weights: (oracle whose gradient it is, fields to
# the factor on the scores)
SURROGATES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "straight_through": ("softmax", lambda fields: 1.0),
    "gumbel": ("softmax", lambda fields: 1.0 / fields["tau"]),
}


@dataclasses.dataclass(frozen=True)
class Scene:
    """Inputs of one look: scores [B,H,TQ,TK], query [B,TQ,DQ], mask like the scores, real keys of
    each row [B].
    """

    scores: np.ndarray
    query: np.ndarray
    mask: np.ndarray
    lengths: np.ndarray


def scene(masked: str = "dense", seed: int = 0) -> Scene:
    """Unit normal scores and queries; masks "none", "padding" (a row with one key), "dense" (random
    within padding, dead rows).
    """
    rng = np.random.default_rng(seed)
    sizes = (B, H, TQ, TK), (B, TQ, DQ)
    scores, query = (rng.normal(size=size).astype(np.float32) for size in sizes)
    lengths = np.array([TK, TK, TK] if masked == "none" else [TK, 1, TK - 3])
    mask = np.broadcast_to(np.arange(TK) < lengths[:, None, None, None], scores.shape).copy()
    if masked == "dense":
        mask &= rng.random(mask.shape) < 0.7
        mask[0, 0, 1] = mask[2, 1, 0] = mask[2, 0, 3] = False
    return Scene(scores, query, mask, lengths)


@functools.cache
def prepared(name: str, fields: str) -> tuple[Alignment, Any, Any]:
    """Module, parameters N(0, 1), and compiled (params, scores, query, mask, lengths, direction) to
    weights and their pull-back.
    """
    module: Alignment = ALIGNMENTS.resolve(name)(**json.loads(fields))
    init = functools.partial(module.init, jax.random.key(0), jnp.zeros((B, H, TQ, TK)), None)
    shapes = jax.eval_shape(init, view_of(jnp.zeros((B, TQ, DQ)))).get("params", {})
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)

    def both(params: Any, scores: Any, query: Any, mask: Any, lengths: Any, direction: Any) -> Any:
        weigh = lambda p, s, q: module.apply({"params": p}, s, mask, view_of(q, lengths))
        weights, pull = jax.vjp(weigh, params, scores, query)
        return weights, pull(direction)

    return module, params, jax.jit(both)


def view_of(query: Any, lengths: Any = None, keys: int = TK) -> View:
    """The last query stands on the last of TK keys."""
    lengths = jnp.full(len(query), keys) if lengths is None else lengths
    valid = jnp.arange(keys) < jnp.asarray(lengths)[:, None]
    return View(query=query, valid=valid).among(TK - TQ + jnp.arange(TQ), jnp.arange(keys))


def run(name: str, fields: str, at: Scene, direction: Any = 1.0) -> tuple[np.ndarray, Any]:
    """Weights [B,H,TQ,TK] and the gradients of sum(direction * weights) in (params, scores,
    query).
    """
    _, params, both = prepared(name, fields)
    direction = np.broadcast_to(np.float32(direction), at.scores.shape)
    weights, grads = both(params, at.scores, at.query, at.mask, at.lengths, direction)
    assert weights.dtype == jnp.float32
    return np.asarray(weights), jax.tree.map(np.asarray, grads)


def oracle(name: str, fields: Any, params: Any, at: Scene) -> np.ndarray:
    """The reference over all rows."""
    scores = at.scores.astype(np.float64)
    of_row = lambda b, h, i, before: scores[b, h, i]
    return alignment_oracles.aligned(name, params, fields, of_row, at.mask, at.query, at.lengths)


@every
@pytest.mark.quick
def test_values_and_gradients_equal_the_oracle(name: str, fields: str) -> None:
    config = json.loads(fields)
    taught, factor = SURROGATES.get(name, (name, lambda fields: 1.0))
    for at in map(scene, ("none", "padding", "dense")):
        direction = np.random.default_rng(5).normal(size=at.scores.shape)
        weights, grads = run(name, fields, at, direction)
        given = wide([prepared(name, fields)[1], at.scores, at.query])
        expected = oracle(name, config, given[0], at)
        np.testing.assert_allclose(weights, expected, atol=TOLERANCE["float32"])

        def total(
            params: Any, scores: Any, query: Any, at: Scene = at, direction: Any = direction
        ) -> float:
            there = dataclasses.replace(at, scores=scores * factor(config), query=query)
            return float((oracle(taught, config, params, there) * direction).sum())

        assert_slopes(grads, given, total)


@every
@pytest.mark.quick
def test_what_is_masked_weighs_nothing_and_changes_nothing(name: str, fields: str) -> None:
    at = scene()
    weights, grads = run(name, fields, at, at.scores)
    assert (weights[~at.mask] == 0.0).all() and (grads[1][~at.mask] == 0.0).all()
    for garbage in (1e4, -1e4):
        there = dataclasses.replace(at, scores=np.where(at.mask, at.scores, np.float32(garbage)))
        dirty, slopes = run(name, fields, there, at.scores)
        np.testing.assert_array_equal(dirty, weights)
        jax.tree.map(np.testing.assert_array_equal, slopes, grads)


@every
def test_dead_rows_are_zero_with_zero_gradients(name: str, fields: str) -> None:
    at = scene()
    dead = ~at.mask.any(axis=-1)
    assert dead.sum() >= 3
    for score in (0.0, 1e4):
        there = dataclasses.replace(
            at, scores=np.where(dead[..., None], np.float32(score), at.scores)
        )
        weights, grads = run(name, fields, there)
        assert (weights[dead] == 0.0).all() and (grads[1][dead] == 0.0).all()
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
    nobody = dataclasses.replace(at, mask=at.mask < 0, lengths=np.zeros_like(at.lengths))
    weights, grads = run(name, fields, nobody)
    assert (weights == 0.0).all() and all((leaf == 0.0).all() for leaf in jax.tree.leaves(grads))


@every
def test_ties_and_extremes_have_finite_gradients(name: str, fields: str) -> None:
    at = scene("padding")
    even, whole = 0 * at.scores, np.round(at.scores)
    for scores in (even, whole, 1e4 * at.scores, -30.0 + even, whole * 0.5):
        weights, grads = run(name, fields, dataclasses.replace(at, scores=scores), at.scores)
        assert (weights >= 0.0).all() and (weights <= 1.0 + 1e-6).all()  # nor are they NaN
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@every
def test_weights_sum_to_what_is_declared(name: str, fields: str) -> None:
    at, module = scene("padding"), prepared(name, fields)[0]
    weights, slopes = run(name, fields, at, at.scores)
    sums = weights.sum(axis=-1)
    if module.sums_to == "one":
        np.testing.assert_allclose(sums, 1.0, atol=TOLERANCE["float32"])
        # one key: exactly 1, and nothing to learn
        assert (weights[1, :, :, 0] == 1.0).all() and (slopes[1][1] == 0.0).all()
        moved = dataclasses.replace(at, scores=at.scores + np.float32(8.0))
        off = np.abs(run(name, fields, moved)[0] - weights).max()
        # what the first head takes from keys is no difference; scores of 8 have 3 bits less
        assert off > 1e-3 if module.meeting else off < 5e-6
        return
    assert abs(sums - 1.0).max() > 1e-2
    large = run(name, fields, dataclasses.replace(at, scores=np.full_like(at.scores, 9.0)))[0]
    assert (large.sum(axis=-1).max() <= 1.0 + 1e-6) == (module.sums_to == "at most one")


@every
@pytest.mark.quick
def test_weights_depend_on_the_scores_that_the_form_names(name: str, fields: str) -> None:
    module, params, _ = prepared(name, fields)
    at, q = scene("none"), 1
    h = 0 if module.meeting else 1  # the first head is heard by the others
    before = run(name, fields, at)[0]
    if module.form == "normalised":
        extra = module.apply({"params": params}, H, method="extra")
        extra = None if extra is None else extra[:, None, None]
        scores, mask = jnp.asarray(at.scores), jnp.asarray(at.mask)
        seen = jnp.broadcast_to(mask, scores.shape).sum(axis=-1, keepdims=True)
        factor = module.apply({"params": params}, seen, H, scores.dtype, method="factor")
        scores = scores if factor is None else jnp.where(mask, scores, 0.0) * factor
        np.testing.assert_array_equal(before, softmax(scores, mask, extra))
    # [which score of query 1 of head h of row 1 moved, which weights did]
    touched = np.zeros((TK, B, H, TQ, TK), bool)
    for j in range(TK):
        scores = at.scores.copy()
        scores[1, h, q, j] += 5.0
        touched[j] = run(name, fields, dataclasses.replace(at, scores=scores))[0] != before
    mine = touched[:, 1, h, q].copy()
    assert mine.any() == (module.form != "fixed")
    own = ("elementwise", "fixed")
    assert (mine & ~np.eye(TK, dtype=bool)).any() == (module.form not in own)
    assert touched[:, 1, h, q + 1 :].any() == (module.form == "look")
    assert touched[:, 1, 1 - h].any() == module.meeting and not touched[:, 1, 1 - h, : q + 1].any()
    touched[:, 1, h, q:] = touched[:, 1, 1 - h, q + 1 :] = False
    assert not touched.any()


@every
def test_the_place_matters_where_it_is_declared(name: str, fields: str) -> None:
    at, looks_at = scene("none"), prepared(name, fields)[0].looks_at
    assert looks_at <= {"positions", "lengths"}
    before = run(name, fields, at)[0]
    order = np.random.default_rng(2).permutation(TK)
    there = dataclasses.replace(at, scores=at.scores[..., order], mask=at.mask[..., order])
    moved = run(name, fields, there)[0]
    assert (abs(moved - before[..., order]).max() > 1e-3) == ("positions" in looks_at)
    shorter = run(name, fields, dataclasses.replace(at, lengths=at.lengths - 2))[0]
    changed = abs(shorter - before)
    if prepared(name, fields)[0].looks_between:  # queries are tokens: the last two are padding now
        changed = changed[:, :, : TQ - 2]
    assert (changed.max() > 1e-3) == ("lengths" in looks_at)


@pytest.mark.parametrize(
    ("name", "fields"),
    [pytest.param(*case, marks=[] if case[0] in SEVERAL else [pytest.mark.full]) for case in CASES],
)
def test_rows_do_not_mix_under_vmap_scan_remat_and_alone(name: str, fields: str) -> None:
    module, params, _ = prepared(name, fields)
    at, n = scene("padding"), TK - 3

    def weigh(scores: Any, query: Any, mask: Any, lengths: Any) -> jax.Array:
        view = view_of(query, lengths, scores.shape[-1])
        return module.apply({"params": params}, scores, mask, view)

    def scanned(scores: Any, rest: Any) -> jax.Array:
        of_row = lambda row: jax.checkpoint(weigh)(*(x[None] for x in row))[0]
        return jax.lax.map(of_row, (scores, *rest), batch_size=B)  # scan of vmap

    @jax.jit
    def ways(scores: Any, *rest: Any) -> Any:
        actual, pull = jax.vjp(lambda scores: scanned(scores, rest), scores)
        alone = weigh(scores[2:, ..., :n].astype(jnp.bfloat16), rest[0][2:], None, None)
        return actual, pull(scores)[0], alone

    weights, grads = run(name, fields, at, at.scores)
    actual, pulled, alone = ways(at.scores, at.query, at.mask, at.lengths)
    np.testing.assert_allclose(actual, weights, atol=TOLERANCE["float32"])
    np.testing.assert_allclose(pulled, grads[1], atol=TOLERANCE["gradient"])
    assert alone.dtype == jnp.float32  # and so is the arithmetic: only the scores are rounded
    low = np.asarray(jnp.asarray(at.scores, jnp.bfloat16), np.float64)
    rounded = dataclasses.replace(at, scores=low)
    expected = oracle(name, json.loads(fields), wide(params), rounded)
    np.testing.assert_allclose(alone[0], expected[2, ..., :n], atol=TOLERANCE["float32"])
