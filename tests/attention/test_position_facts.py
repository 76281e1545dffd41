"""What is particular to one position scheme: Shaw, Transformer-XL, T5 and ALiBi are what their papers
say, each in its own points; rotary positions turn by the right angles in both layouts, in shares, and
beyond training.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.positions import SCALINGS, relative
from attnlab.attention.positions.relative import T5, Alibi, Shaw, bucket, slopes, starts
from attnlab.attention.positions.rope import Linear, Llama3, Ntk, Rope, Unscaled, Yarn
from attnlab.attention.view import EVERYTHING
from attnlab.errors import UserError
from attnlab.training.updates import first_params
from tests.attention.position_oracles import rope_frequency, t5_bucket
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


def turned(x: Any, positions: Any, **fields: Any) -> np.ndarray:
    turn = functools.partial(Rope(**fields).apply, {}, method="of_query")
    return np.asarray(jax.jit(turn)(x, positions))


def heads(width: int, length: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 3, length, width)).astype(np.float32)


def test_a_share_turns_as_a_head_of_that_width_would_and_leaves_the_other_channels() -> None:
    """From the second pair on the frequencies tell which width they are of."""
    x = heads(8)
    for layout in ("interleaved", "half"):
        actual = turned(x, np.arange(6), share=0.5, layout=layout)
        np.testing.assert_array_equal(actual[..., 4:], x[..., 4:])
        assert_close(actual[..., :4], turned(x[..., :4], np.arange(6), layout=layout), eps=8)


MISSCALED: dict[str, dict[str, float]] = {
    "linear: factor=0.5, must be at least 1": {"factor": 0.5},
    "yarn: slow=1.0 must be above 0 and below fast=1.0": {"fast": 1.0},
    "yarn: length=6 with slow=1.0, must be at least 7": {"length": 6},
    "llama3: low=5.0 must be above 0 and below high=4.0": {"low": 5.0},
    "llama3: length=0, must be at least 1": {"length": 0},
}


@pytest.mark.quick
def test_impossible_fields_are_refused() -> None:
    x = np.zeros((1, 3, 21), np.float32)
    words = "rope: share=1.0 of a head width of 7 is 7, but channels turn in pairs; .* is 6 or 8"
    with pytest.raises(UserError, match=words):
        MultiHead(width=21, heads=3, positions="rope").init(jax.random.key(0), x, x)
    for width, share, words in (
        (8, 0.4, "is 3, .* it is 2 or 4"),
        (8, 0.01, "is 0, .* it is 2"),
        (1, 1.0, "is 1, .* it is 2"),
    ):
        with pytest.raises(UserError, match=words):
            turned(heads(width), np.arange(6), share=share)
    for fields, words in (
        ({"share": 0.0}, "share=0.0, must be above 0"),
        ({"share": 1.5}, "share=1.5, must be above 0"),
        ({"base": 1.0}, "base=1.0, must be above 1"),
        *(
            ({"scaling": {"name": words.partition(":")[0], **scaling}}, f"scaling {words}")
            for words, scaling in MISSCALED.items()
        ),
        ({"scaling": "yarm"}, "unknown rope scaling 'yarm'; did you mean 'yarn'"),
    ):
        with pytest.raises(UserError, match=words):
            turned(heads(8), np.arange(6), **fields)


SCALED: list[dict[str, Any]] = [
    {"name": "none"},
    {"name": "linear", "factor": 3.0},
    {"name": "ntk", "factor": 4.0},
    {"name": "yarn", "factor": 4.0, "length": 4096, "fast": 32.0, "slow": 1.0},
    {"name": "yarn", "factor": 16.0, "length": 64, "fast": 32.0, "slow": 1.0},
    {"name": "yarn", "factor": 2.0, "length": 20000000, "fast": 32.0, "slow": 31.0},
    {"name": "llama3", "factor": 8.0, "length": 8192, "low": 1.0, "high": 4.0},
]


@pytest.mark.parametrize("fields", SCALED, ids=str)
@pytest.mark.parametrize(("width", "base"), [(128, 10000.0), (64, 500000.0), (6, 10000.0)])
def test_frequencies_equal_the_oracle(fields: dict[str, Any], width: int, base: float) -> None:
    name, rest = fields["name"], {key: value for key, value in fields.items() if key != "name"}
    scaling = SCALINGS.resolve(name)(**rest)
    expected = [rope_frequency(m, width, base, name, rest) for m in range(width // 2)]
    actual = scaling.frequencies(base, width)
    np.testing.assert_allclose(actual, [theta for theta, _ in expected], rtol=1e-12)
    assert scaling.temperature == pytest.approx(expected[0][1], abs=1e-15)


def test_every_scaling_is_tested_and_by_one_is_the_identity() -> None:
    assert {fields["name"] for fields in SCALED} == set(SCALINGS.names())
    plain = Unscaled().frequencies(10000.0, 32)
    for scaling in (Linear(factor=1.0), Ntk(factor=1.0), Yarn(factor=1.0), Llama3(factor=1.0)):
        np.testing.assert_allclose(scaling.frequencies(10000.0, 32), plain, rtol=1e-12)
        assert scaling.temperature == 1.0


@pytest.mark.quick
def test_published_numbers() -> None:
    base = 10000 * 4 ** (128 / 126)  # that "ntk" stands for
    assert pytest.approx(40889.9, abs=0.05) == base
    expected = 40889.9 ** -(np.arange(0, 128, 2) / 128)
    np.testing.assert_allclose(Ntk(factor=4.0).frequencies(10000.0, 128), expected, rtol=2e-6)
    ntk, plain = Ntk(factor=4.0).frequencies(10000.0, 128), Unscaled().frequencies(10000.0, 128)
    assert ntk[0] == plain[0] and ntk[-1] == pytest.approx(plain[-1] / 4, rel=1e-12)
    assert Ntk(factor=4.0).frequencies(10000.0, 2).tolist() == [1.0]
    assert Yarn(length=4096).bounds(10000.0, 128) == (20, 46)
    assert Yarn(length=2048).bounds(10000.0, 128) == (16, 41)
    assert Yarn(length=2048).bounds(10000.0, 64) == (8, 21)
    # all turn fast
    np.testing.assert_array_equal(
        Yarn(length=10**12).frequencies(10000.0, 4), Unscaled().frequencies(10000.0, 4)
    )
    yarn = Yarn(factor=4.0, length=4096)
    assert yarn.temperature == pytest.approx(0.1 * math.log(4) + 1)
    ratio = yarn.frequencies(10000.0, 128) / plain
    np.testing.assert_allclose(ratio[:21], 1.0)
    np.testing.assert_allclose(ratio[46:], 0.25)
    assert (np.diff(ratio[20:47]) < 0).all()
    llama, own = Llama3().frequencies(500000.0, 128), Unscaled().frequencies(500000.0, 128)
    wave = 2 * math.pi / own
    np.testing.assert_array_equal(llama[wave < 2048], own[wave < 2048])
    np.testing.assert_allclose(llama[wave > 8192], own[wave > 8192] / 8)


def test_scaling_acts_on_queries_and_keys() -> None:
    x = heads(8)
    stretched = turned(x, 3 * np.arange(6), scaling={"name": "linear", "factor": 3.0})
    assert_close(stretched, turned(x, np.arange(6)), eps=8)
    warm = Rope(scaling={"name": "yarn", "factor": 4.0})
    for method in ("of_query", "of_key"):  # sines and cosines times t: a score by t squared
        actual = warm.apply({}, x, jnp.zeros(6, jnp.int32), method=method)
        np.testing.assert_allclose(actual, x * (0.1 * math.log(4) + 1), rtol=1e-6)
    part = turned(x, np.zeros(6, np.int32), share=0.5, scaling={"name": "yarn", "factor": 4.0})
    np.testing.assert_array_equal(part[..., 4:], x[..., 4:])


def test_a_memory_keeps_turned_keys_and_no_turned_values() -> None:
    module = MultiHead(width=12, heads=3, key_heads=1, positions={"name": "rope", "layout": "half"})
    x = np.random.default_rng(1).normal(size=(2, 5, 12)).astype(np.float32)
    variables = first_params(module.init, jax.random.key(0), x, x)
    memory = jax.jit(functools.partial(module.apply, variables, method="remember"))(x)
    kernels = (variables["params"][name]["kernel"] for name in ("w_key", "w_value"))
    bare, values = (x @ np.asarray(kernel) for kernel in kernels)
    assert_close(memory.values[:, 0], values, eps=8)
    assert_close(memory.keys, turned(bare[:, None], np.arange(5), layout="half"), eps=8)
