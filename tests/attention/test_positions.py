"""Every position scheme adds what its oracle says, wherever it is asked; with what is particular to
the two plain ones. `test_position_facts.py` and `test_trees_and_grids.py` hold what is particular to the
others.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.absolute import Learned, Sinusoidal, sinusoid
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import CAUSAL, EVERYTHING
from attnlab.errors import UserError
from attnlab.layers.dense import inner_dtype
from tests.attention import own_parts
from tests.attention import position_oracles as oracles
from tests.attention.cases import TOLERANCE
from tests.attention.slopes import assert_slopes, inner
from tests.rounding import assert_close

BATCH, HEADS, WIDTH, VALUE, QUERIES, KEYS = 2, 3, 4, 5, 5, 6
SCALE = WIDTH**-0.5
YARN = {"name": "yarn", "factor": 4.0, "length": 16, "fast": 2.0, "slow": 1.0}
PAIRS: list[tuple[str, dict[str, Any], bool]] = [  # name, fields, causal
    ("none", {}, False),
    ("shaw", {"clip": 2}, False),
    ("shaw", {"clip": 0, "sides": "key"}, False),
    ("syntax_relative", {"clip": 2}, False),
    ("transformer_xl", {"base": 100.0}, False),
    ("t5", {"buckets": 8, "max_distance": 6}, False),
    ("t5", {"buckets": 8, "max_distance": 6}, True),
    ("alibi", {"strength": 0.5}, False),
    ("rope", {"base": 100.0}, False),
    ("rope", {"layout": "half", "share": 0.5}, False),
    ("rope", {"layout": "half", "base": 20.0, "scaling": YARN}, False),
    ("rope_2d", {"base": 20.0}, False),
]
PAIRS = own_parts.settings("positions", PAIRS)
PAIRS = [case if len(case) == 3 else (*case, False) for case in PAIRS]
every = pytest.mark.parametrize(
    "case", range(len(PAIRS)), ids=[f"{name}-{fields}-{causal}" for name, fields, causal in PAIRS]
)


@functools.cache
def prepared(case: int) -> tuple[Any, Any]:
    """`look(params, q, k, weights, i, j)` -> the scores [B,H,Tq,Tk] of a scaled product and what
    values gain [B,H,Tq,VALUE]; parameters.
    """
    name, fields, causal = PAIRS[case]
    scheme = POSITIONS.resolve(name)(**fields)

    def hooks(
        scheme: PositionScheme, q: Any, k: Any, weights: Any, i: Any, j: Any
    ) -> tuple[jax.Array, jax.Array]:
        view = (CAUSAL if causal else EVERYTHING).among(i, j)
        kind = inner_dtype(q)
        sides = scheme.of_query(q, i), scheme.of_key(k, j)
        scores = jnp.einsum("bhqd,bhkd->bhqk", *sides, preferred_element_type=kind) * SCALE
        bias, more = scheme.bias(q, view, SCALE), scheme.values(weights, view, VALUE)
        more = jnp.zeros((*q.shape[:3], VALUE), kind) if more is None else more
        return scores if bias is None else scores + bias, more

    init = functools.partial(scheme.init, jax.random.key(0), method=hooks)
    shapes = jax.eval_shape(init, *inputs()).get("params", {})
    rng = np.random.default_rng(2)
    draw = lambda leaf: (rng.normal(size=leaf.shape) / leaf.shape[0] ** 0.5).astype(np.float32)
    look = jax.jit(lambda params, *rest: scheme.apply({"params": params}, *rest, method=hooks))
    return look, jax.tree.map(draw, shapes)


def inputs() -> tuple[np.ndarray, ...]:
    """q [B,H,Tq,D] and k [B,H,Tk,D] of unit variance, weights [B,H,Tq,Tk] with rows that sum to
    one, i [Tq], j [Tk].
    """
    rng = np.random.default_rng(0)
    q, k = (rng.normal(size=(BATCH, HEADS, length, WIDTH)) for length in (QUERIES, KEYS))
    weights = rng.dirichlet(np.ones(KEYS), size=(BATCH, HEADS, QUERIES))
    places = (first + np.arange(many, dtype=np.int32) for first, many in ((3, QUERIES), (1, KEYS)))
    return *(x.astype(np.float32) for x in (q, k, weights)), *places


def oracle(
    case: int, params: Any, q: np.ndarray, k: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What `look` should give, from the reference of the scheme."""
    name, fields, causal = PAIRS[case]
    place = oracles.POSITIONS[name](params, fields, HEADS, WIDTH, causal)
    scores, more = np.zeros(weights.shape), np.zeros((*q.shape[:3], VALUE))
    *_, i, j = inputs()
    for b, h, a, c in np.ndindex(scores.shape):
        at, to = int(i[a]), int(j[c])
        scores[b, h, a, c] = place.query(h, q[b, h, a], at) @ place.key(h, k[b, h, c], to) * SCALE
        scores[b, h, a, c] += place.bias(h, q[b, h, a], k[b, h, c], at, to)
        more[b, h, a] += weights[b, h, a, c] * place.value(h, at, to)
    return scores, more


@every
@pytest.mark.quick
def test_scores_values_and_gradients_equal_the_oracle(case: int) -> None:
    look, params = prepared(case)
    q, k, weights, i, j = inputs()
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), [params, q, k, weights])
    expected = oracle(case, *wide)
    directions = [np.random.default_rng(5).normal(size=one.shape) for one in expected]

    def total(*parts: Any) -> tuple[jax.Array, Any]:
        actual = look(*parts, i, j)
        return sum((one * way).sum() for one, way in zip(actual, directions, strict=True)), actual

    (_, actual), gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2, 3), has_aux=True))(
        params, q, k, weights
    )
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other, eps=8)
    assert_slopes(gradients, wide, lambda *to: sum(map(inner, oracle(case, *to), directions)))


@every
@pytest.mark.product("promises")
def test_any_block_equals_the_whole(case: int) -> None:
    """Positions are values of the compiled program here; blocks need not be neighbours, nor be in
    order; also inside a scan.
    """
    look, params = prepared(case)
    q, k, weights, i, j = inputs()
    scores, more = look(params, q, k, weights, i, j)
    for of_keys in (np.array([0, 1, 2]), np.array([5, 0, 3])):
        for of_queries in (np.array([3, 4]), np.array([4, 1])):
            block = np.ix_(range(BATCH), range(HEADS), of_queries, of_keys)
            sides = q[:, :, of_queries], k[:, :, of_keys], weights[block]
            part, _ = look(params, *sides, i[of_queries], j[of_keys])
            assert_close(part, np.asarray(scores)[block], eps=8)

    def step(total: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        of_keys, of_weights, of_places = (
            jax.lax.dynamic_slice_in_dim(x, 2 * at, 2, axis)
            for x, axis in ((k, 2), (weights, 3), (j, 0))
        )
        scores, more = look(params, q, of_keys, of_weights, i, of_places)
        return total + more, scores

    total, parts = jax.jit(
        lambda: jax.lax.scan(step, jnp.zeros((BATCH, HEADS, QUERIES, VALUE)), jnp.arange(KEYS // 2))
    )()
    np.testing.assert_allclose(total, more, atol=2e-6)  # what values gain is a sum over keys
    assert_close(np.concatenate(list(parts), axis=-1), scores, eps=8)


@every
@pytest.mark.quick
def test_only_the_distance_counts(case: int) -> None:
    look, params = prepared(case)
    q, k, weights, i, j = inputs()
    here = look(params, q, k, weights, i, j)
    for shift in (17, -4):  # a source shorter than its queries puts the first of them before 0
        for one, other in zip(look(params, q, k, weights, i + shift, j + shift), here, strict=True):
            np.testing.assert_allclose(one, other, atol=5e-6)
    if PAIRS[case][0] != "none" and PAIRS[case][1].get("clip") != 0:
        assert np.abs(look(params, q, k, weights, i + 1, j)[0] - here[0]).max() > 1e-3


@every
@pytest.mark.product("promises")
def test_vmap_and_remat_agree_with_plain(case: int) -> None:
    """Every row of a batch may stand at places of its own."""
    look, params = prepared(case)
    q, k, weights, i, j = inputs()
    first = np.array([[0], [2]], np.int32)
    one_row = lambda q, k, weights, i: [
        x[0] for x in look(params, q[None], k[None], weights[None], i, j)
    ]
    rows = jax.jit(jax.vmap(one_row))(q, k, weights, i + first)
    for row in range(BATCH):
        expected = look(params, q, k, weights, i + first[row], j)
        for actual, alone in zip(rows, expected, strict=True):
            np.testing.assert_allclose(actual[row], alone[row], atol=2e-6)
    loss = lambda f: jax.grad(
        lambda p, q: sum((x**2).sum() for x in f(p, q, k, weights, i, j)), argnums=(0, 1)
    )
    both = jax.jit(lambda *given: (loss(jax.checkpoint(look))(*given), loss(look)(*given)))
    for actual, expected in zip(*map(jax.tree.leaves, both(params, q)), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@every
def test_bfloat16_stays_close_also_far_out(case: int) -> None:
    """At position 5000 neighbours are one number in bfloat16, so positions, angles and distances
    must be float32 or whole.
    """
    look, params = prepared(case)
    q, k, weights, i, j = inputs()
    low = [jnp.asarray(x, jnp.bfloat16) for x in (q, k, weights)]
    actual = look(params, *low, i + 5000, j + 5000)
    expected = look(params, *(np.asarray(x, np.float32) for x in low), i + 5000, j + 5000)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(
            one, other, atol=TOLERANCE["bfloat16"] * max(1.0, np.abs(other).max())
        )
    scheme = POSITIONS.resolve(PAIRS[case][0])(**PAIRS[case][1])
    for method in ("of_query", "of_key"):
        turned = functools.partial(scheme.apply, method=method)
        assert jax.eval_shape(turned, {"params": params}, low[0], i).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", POSITIONS.names())
def test_hooks_that_a_scheme_does_not_name_change_nothing(name: str) -> None:
    scheme = POSITIONS.resolve(name)()
    assert scheme.hooks <= {"embedding", "query_key", "score", "value", "row"}
    assert bool(scheme.hooks) == (name != "none")
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    q, k, weights, i, j = inputs()
    view = EVERYTHING.among(jnp.asarray(i), jnp.asarray(j))

    def change(scheme: PositionScheme) -> dict[str, Any]:
        gain = lambda one, other: jnp.abs(one - other).max()
        places = jnp.broadcast_to(jnp.arange(3), (2, 3))
        return {
            "embedding": gain(scheme.embed(x, places), x),
            "query_key": gain(scheme.of_query(q, i), q) + gain(scheme.of_key(k, j), k),
            "score": scheme.bias(q, view, SCALE),
            "value": scheme.values(weights, view, VALUE),
            "row": gain(scheme.of_rows(q, weights, None, view, SCALE), weights),
        }

    shapes = jax.eval_shape(lambda: scheme.init(jax.random.key(0), method=change))
    rng = np.random.default_rng(1)
    variables = jax.tree.map(lambda one: 0.5 + rng.normal(size=one.shape).astype(one.dtype), shapes)
    actual = jax.jit(functools.partial(scheme.apply, method=change))(variables)
    used = {hook for hook, much in actual.items() if much is not None and np.abs(much).max() > 0.0}
    left = {hook for hook, much in actual.items() if much is None}
    assert used == scheme.hooks and left == {"score", "value"} - scheme.hooks


def test_none_is_the_base_of_all_and_every_scheme_has_an_oracle() -> None:
    assert POSITIONS.resolve("none") is PositionScheme
    for name in POSITIONS.names():
        scheme = POSITIONS.resolve(name)
        assert issubclass(scheme, PositionScheme)
        assert (name in oracles.EMBEDDINGS) == ("embedding" in scheme.hooks)
        assert (name in oracles.POSITIONS) == ("embedding" not in scheme.hooks)
    rows = {name for name in oracles.POSITIONS if "row" in POSITIONS.resolve(name).hooks}
    assert {name for name, _, _ in PAIRS} == set(oracles.POSITIONS) - rows
    assert rows == {"cope"}  # test_selected.py


@pytest.mark.quick
@pytest.mark.parametrize("name", oracles.EMBEDDINGS)
def test_embeddings_equal_the_oracle(name: str) -> None:
    rng, positions = np.random.default_rng(0), np.array([[2, 0, 1], [0, 1, 2]], np.int32)
    x = rng.normal(size=(2, 3, 6)).astype(np.float32)
    scheme = POSITIONS.resolve(name)()
    init = functools.partial(scheme.init, jax.random.key(0), method="embed")
    shapes = jax.eval_shape(init, x, positions).get("params", {})
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    embed = jax.jit(functools.partial(scheme.apply, {"params": params}, method="embed"))
    actual = embed(x, positions)
    for row in range(2):
        assert_close(actual[row], oracles.EMBEDDINGS[name](params, x[row], positions[row]), eps=8)
    low = embed(jnp.asarray(x, jnp.bfloat16), positions)
    assert low.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        np.asarray(low, np.float32), actual, atol=TOLERANCE["bfloat16"] * np.abs(actual).max()
    )


def table(positions: np.ndarray, width: int, base: float = 10000.0) -> np.ndarray:
    return np.asarray(sinusoid(jnp.asarray(positions), width, base))


@pytest.mark.quick
@pytest.mark.parametrize(("width", "base"), [(8, 10000.0), (7, 10000.0), (1, 10000.0), (6, 100.0)])
def test_sinusoidal_is_the_formula(width: int, base: float) -> None:
    """sin and cos in turn, frequency base^(-2i/d) with the whole width d, also where an odd width
    drops the last cosine.
    """
    actual = table(np.arange(50), width, base)
    assert actual.shape == (50, width)
    expected = [oracles.sinusoid(p, width, base) for p in range(50)]
    np.testing.assert_allclose(actual, expected, atol=5e-6)
    assert actual[0].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0][:width]


def test_bfloat16_tables_are_built_in_float32() -> None:
    """At position 9999 a bfloat16 angle would be off by whole turns."""
    x = jnp.zeros((1, 10_000, 8), jnp.bfloat16)
    actual = Sinusoidal().apply({}, x, jnp.arange(10_000), method="embed")
    assert actual.dtype == jnp.bfloat16
    expected = np.stack([oracles.sinusoid(p, 8) for p in range(10_000)])
    assert np.abs(np.asarray(actual[0], np.float32) - expected).max() < 6e-3


@pytest.mark.quick
def test_learned_refuses_what_is_longer_than_its_table() -> None:
    scheme, x = Learned(length=4), np.zeros((2, 5, 3), np.float32)
    params = scheme.init(jax.random.key(0), x[:, :4], jnp.arange(4), method="embed")
    embed = functools.partial(scheme.apply, params, method="embed")
    last = embed(x[:, :4], jnp.arange(4))[:, 3:]
    np.testing.assert_array_equal(embed(x[:, :1], jnp.array([3])), last)
    too_long = "learned: length=4, but a sequence is 5 long; set length=5"
    for run in (embed, jax.jit(embed)):  # compiled, only the number of positions is known
        with pytest.raises(UserError, match=too_long):
            run(x, jnp.arange(5))
    with pytest.raises(UserError, match="a sequence is 10 long"):
        embed(x[:, :1], jnp.array([9]))
    one = jax.jit(embed)
    assert np.isfinite(one(x[:, :1], jnp.array([3]))).all()
    for beyond in (4, -1):  # not another row in silence
        assert np.isnan(one(x[:, :1], jnp.array([beyond]))).all()
    # several short sequences in one row are no long one
    packed = one(x, jnp.array([[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]]))
    np.testing.assert_array_equal(packed[0, 3:], packed[0, :2])
    with pytest.raises(UserError, match="length=0, must be at least 1"):
        Learned(length=0).init(jax.random.key(0), x, jnp.arange(1), method="embed")


def test_learned_starts_small() -> None:
    scheme, x = Learned(length=400, stddev=0.1), jnp.zeros((1, 1, 30))
    table = scheme.init(jax.random.key(0), x, jnp.arange(1), method="embed")["params"]["table"]
    assert table.shape == (400, 30) and table.dtype == jnp.float32
    assert float(table.std()) == pytest.approx(0.1, rel=0.05)
