"""Shaw, Transformer-XL, T5 and ALiBi are what their papers say, each in its own points."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.positions import relative
from attnlab.attention.positions.relative import T5, Alibi, Shaw, bucket, slopes, starts
from attnlab.attention.view import EVERYTHING
from attnlab.errors import UserError
from tests.attention.position_oracles import t5_bucket
from tests.rounding import assert_close

WIDTH = 12


def layer(positions: Any) -> tuple[MultiHead, Any, np.ndarray]:
    """Self-attention of three heads, its parameters and x [2,5,WIDTH]."""
    module = MultiHead(width=WIDTH, heads=3, positions=positions)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 5, WIDTH)).astype(np.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, x)["params"]
    # the scheme's are drawn last
    shapes = dict(sorted(shapes.items(), key=lambda item: item[0] == "positions"))
    draw = lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / 3
    return module, {name: jax.tree.map(draw, leaf) for name, leaf in shapes.items()}, x


def test_shaw_names_the_hooks_it_uses() -> None:
    assert Shaw.hooks == Shaw(sides="both").hooks == {"score", "value"}
    assert Shaw(sides="key").hooks == Shaw(sides="key").clone().hooks == {"score"}
    _, params, _ = layer({"name": "shaw", "clip": 3, "sides": "key"})
    assert jax.tree.map(jnp.shape, params["positions"]) == {"keys": (7, 4)}
    with pytest.raises(UserError, match="shaw: clip=-1, must be at least 0"):
        layer({"name": "shaw", "clip": -1})


def test_shaw_makes_no_array_of_queries_keys_and_width() -> None:
    """Nothing in the program, forward or backward, is larger than the scores [1,H,Tq,Tk], H < D."""
    module, params, _ = layer({"name": "shaw", "clip": 1})
    x = np.zeros((1, 50, WIDTH), np.float32)
    program = jax.make_jaxpr(
        jax.grad(lambda params: module.apply({"params": params}, x, x).context.sum())
    )(params)
    assert max(variable.aval.size for variable in _variables(program.jaxpr)) == 3 * 50 * 50


def _variables(jaxpr: Any) -> Any:
    """Every array that is computed, also in inner programs, but for indices."""
    for equation in jaxpr.eqns:
        yield from (v for v in equation.outvars if jnp.issubdtype(v.aval.dtype, jnp.floating))
        for inner in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr"),
        ):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from _variables(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("width", [4, 3])  # an odd product of heads and width has one cosine fewer
def test_both_forms_of_transformer_xl_agree(width: int) -> None:
    rng = np.random.default_rng(0)
    asked = rng.normal(size=(2, 3, 4, width))
    projection = rng.normal(size=(3 * width, 3, width)) / 3
    frequency = 100.0 ** -(np.arange(0, 3 * width, 2) / (3 * width))
    arguments = [x.astype(np.float32) for x in (asked, projection, frequency)]
    both = jax.jit(lambda *parts: (relative.by_diagonals(*parts), relative.by_pairs(*parts)))
    for i, j in ((5, 0), (0, 5), (2, -3)):
        fast, slow = both(*arguments, i + np.arange(4), j + np.arange(6))
        assert_close(fast, slow, eps=8)


def test_transformer_xl_takes_the_cheap_form_where_positions_are_consecutive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = lambda *given: jnp.full((2, 3, *map(len, given[-2:])), jnp.nan)
    monkeypatch.setattr(relative, "by_pairs", nothing)
    scheme = relative.TransformerXL()
    q = np.ones((2, 3, 4, 4), np.float32)
    params = {"u": np.ones((3, 4)), "w": np.ones((3, 4)), "w_distance": np.ones((12, 12))}
    bias = jax.jit(
        lambda i, j: scheme.apply({"params": params}, q, EVERYTHING.among(i, j), method="bias")
    )
    assert np.isfinite(bias(jnp.arange(2, 6), jnp.arange(6))).all()
    for i, j in ((jnp.arange(4), jnp.array([0, 1, 3])), (jnp.array([0, 1, 2, 2]), jnp.arange(3))):
        assert np.isnan(bias(i, j)).all()


BIDIRECTIONAL = [*range(9), 12, 16, 23, 32, 46, 64, 91]
PAST = [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


@pytest.mark.quick
def test_t5_buckets_start_where_the_paper_says() -> None:
    assert list(starts(16, 128)) == BIDIRECTIONAL and list(starts(32, 128)) == PAST
    distance = jnp.arange(-300, 301)
    both, causal = np.asarray(bucket(distance, False)), np.asarray(bucket(distance, True))
    for row, first in enumerate(BIDIRECTIONAL):
        assert both[300 - first] == row and (first == 0 or both[300 - first + 1] == row - 1)
        assert first == 0 or both[300 + first] == row + 16
    for row, first in enumerate(PAST):
        assert causal[300 - first] == row and (first == 0 or causal[300 - first + 1] == row - 1)
    assert set(both) == set(range(32)) - {16} and both[0] == 15 and both[-1] == 31
    assert (causal[300:] == 0).all() and causal[0] == 31


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (8, 6), (4, 3), (64, 1000), (32, 17)])
@pytest.mark.parametrize("causal", [False, True])
def test_t5_buckets_equal_the_formula(buckets: int, longest: int, causal: bool) -> None:
    distance = np.arange(-2 * longest, 2 * longest)
    expected = [t5_bucket(int(rel), causal, buckets, longest) for rel in distance]
    actual = jax.jit(lambda d: bucket(d, causal, buckets, longest))(distance)
    np.testing.assert_array_equal(actual, expected)


def test_t5_fields() -> None:
    for fields, words in (
        ({"buckets": 7}, "buckets=7, must be even and at least 4; 8 would do"),
        ({"buckets": 2}, "buckets=2, must be even and at least 4; 4 would do"),
        ({"buckets": 8, "max_distance": 4}, "with buckets=8: max_distance=4, must be at least 5"),
    ):
        with pytest.raises(UserError, match=words):
            layer({"name": "t5", **fields})
    q, here = np.zeros((1, 100, 1, 25)), EVERYTHING.among(jnp.arange(1), jnp.arange(1))
    scheme = T5(buckets=4, max_distance=3)
    table = scheme.init(jax.random.key(0), q, here, method="bias")["params"]["table"]
    assert table.shape == (4, 100) and float(np.std(table)) == pytest.approx(1 / 50, rel=0.2)


@pytest.mark.quick
def test_alibi_slopes() -> None:
    exponents = lambda heads: np.log2(slopes(heads)).round(12).tolist()
    assert exponents(8) == [-1, -2, -3, -4, -5, -6, -7, -8]
    assert exponents(4) == [-2, -4, -6, -8]
    assert exponents(12) == [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5]
    assert exponents(6) == [-2, -4, -6, -8, -1, -3]
    assert exponents(16) == [-h / 2 for h in range(1, 17)]
    assert exponents(1) == [-8] and exponents(3) == [-4, -8, -2]
    assert all(len(slopes(heads)) == len(set(slopes(heads))) == heads for heads in range(1, 40))


def test_alibi_is_exact_far_out() -> None:
    """Whole numbers above 256 are not in bfloat16: 0.5 * 8191 and 0.5 * 8190 must stay apart."""
    q = jnp.zeros((1, 8, 1, 4), jnp.bfloat16)
    view = EVERYTHING.among(jnp.array([8191]), jnp.arange(8192))
    actual = Alibi().apply({}, q, view, method="bias")
    assert actual.dtype == jnp.float32
    np.testing.assert_array_equal(actual[0, 0, 0], -0.5 * np.arange(8191, -1, -1.0))
