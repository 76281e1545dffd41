"""Every registered gate keeps its promises: values and slopes of its oracle, what it hands out, dtype,
errors. Gates are what their papers say of them, and maps are pooled and enlarged by the formulas. What
is special to the non-local blocks: tests/attention/test_non_local.py.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.errors import UserError
from attnlab.layers.gates import GATES
from attnlab.layers.gates.pooled import Spatial, adaptive
from attnlab.layers.gates.protocol import COLLECTION, Gate, handed_out
from attnlab.layers.gates.residual_attention import ResidualAttention
from attnlab.layers.images import enlarged, pooled, tiled
from attnlab.layers.norms import STATISTICS
from tests.layers.gates.cases import CASES, FIELDS, NAMES, SHAPE, drawn, make, maps
from tests.layers.gates.oracles import ORACLES, bilinear, largest

FULL = [("eca", 1), ("residual_attention", 0), ("residual_attention", 2)]
"""Of few channels ECA's own kernel sees no neighbours; masks are dear."""
every = pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(*case, id=label, marks=pytest.mark.full if case in FULL else ())
        for case, label in zip(CASES, NAMES, strict=True)
    ],
)
promise = pytest.mark.product("promises")
STEP = 1e-5  # of central differences


def moved(tree: Any, direction: Any, by: float) -> Any:
    return jax.tree.map(lambda leaf, to: leaf + by * to, tree, direction)


@every
def test_gate_is_its_formula_and_so_are_its_slopes(name: str, number: int) -> None:
    """In float64; slopes along random directions of x and of the parameters, against differences of
    the oracle.
    """
    fields = FIELDS[name][number]
    gate, x = make(name, fields), maps()
    params, rng = drawn(gate), np.random.default_rng(2)
    weights = rng.normal(size=SHAPE)

    def run(params: Any, x: Any) -> Any:
        y, collections = gate.apply({"params": params}, x, mutable=[COLLECTION])
        return (y * weights).sum(), (y, collections.get(COLLECTION, {}))

    with jax.enable_x64(True):
        (_, (y, collected)), slopes = jax.jit(jax.value_and_grad(run, (0, 1), has_aux=True))(
            params, x
        )
    expected, g = ORACLES[name](params, fields, x)
    assert y.dtype == np.float64 and y.shape == SHAPE
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-11)
    actual = handed_out(collected)
    assert set(actual) == set(g)
    for path, factor in g.items():
        np.testing.assert_allclose(actual[path], factor, rtol=0, atol=1e-11)

    def loss(params: Any, x: np.ndarray) -> float:
        return float((ORACLES[name](params, fields, x)[0] * weights).sum())

    for place, start in enumerate((params, x)):
        to = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), start)
        to = jax.tree_util.tree_map_with_path(frozen, to)
        ends = [moved(start, to, by) for by in (STEP, -STEP)]
        up, down = (loss(*((end, x) if place == 0 else (params, end))) for end in ends)
        pairs = zip(jax.tree.leaves(slopes[place]), jax.tree.leaves(to), strict=True)
        slope = sum(float((np.asarray(a) * b).sum()) for a, b in pairs)
        assert slope == pytest.approx((up - down) / (2 * STEP), rel=1e-6, abs=1e-7)


def frozen(path: Any, direction: np.ndarray) -> np.ndarray:
    """Running averages have no slope."""
    stays = bool(path) and path[-1].key in ("mean", "variance")
    return np.zeros_like(direction) if stays else direction


def test_every_gate_has_a_case_and_an_oracle_and_is_of_the_base() -> None:
    assert set(GATES.names()) == set(FIELDS) == set(ORACLES)
    assert all(issubclass(GATES.resolve(name), Gate) for name in GATES.names())


@promise
@pytest.mark.parametrize("name", GATES.names())
def test_maps_are_there_exactly_while_they_are_collected(name: str) -> None:
    gate, x = make(name, FIELDS[name][0]), jnp.zeros(SHAPE)

    def collections(x: Any) -> Any:
        variables = gate.init(jax.random.key(0), x)
        return variables, *(
            gate.apply(variables, x, mutable=collection) for collection in ([], [COLLECTION, MAPS])
        )

    variables, (_, nothing), (_, collected) = jax.eval_shape(collections, x)
    assert set(variables) <= {"params"} and nothing == {}
    expected = {"spatial": {COLLECTION}, "exact": {MAPS}, "none": set()}
    assert set(collected) == expected[gate.maps]
    for g in handed_out(collected.get(COLLECTION, {})).values():
        assert jnp.broadcast_shapes(g.shape, SHAPE) == SHAPE and g.dtype == jnp.float32


@promise
@pytest.mark.parametrize("name", GATES.names())
def test_the_dtype_of_the_maps_is_kept(name: str) -> None:
    """In bfloat16 with parameters in bfloat16, as in training, and in float32."""
    gate = make(name, FIELDS[name][0])
    for x, params in (("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "float32")):

        def run(x: Any, params: Any = params) -> Any:
            variables = gate.init(jax.random.key(0), x)
            return gate.apply(jax.tree.map(lambda leaf: leaf.astype(params), variables), x)

        actual = jax.eval_shape(run, jax.ShapeDtypeStruct(SHAPE, x))
        assert (actual.dtype, actual.shape) == (jnp.dtype(x), SHAPE)


@promise
@pytest.mark.parametrize("name", GATES.names())
def test_no_images_give_none_and_one_row_is_enough(name: str) -> None:
    gate = make(name, {**FIELDS[name][0], **({"depth": 1} if name[:3] == "res" else {})})
    for shape in ((0, 5, 3, 6), (2, 1, 2, 6)):
        run = lambda x: gate.apply(gate.init(jax.random.key(0), x), x)
        assert jax.eval_shape(run, jax.ShapeDtypeStruct(shape, "float32")).shape == shape


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("se", {"reduction": 0}, "gate SqueezeExcitation: reduction=0, must be at least 1"),
        ("se", {"reduction": 2, "pools": ()}, "expected 'mean', 'max' or both"),
        ("eca", {"kernel": 4}, "gate EfficientChannel: kernel=4: expected an odd number of at"),
        (
            "eca",
            {"kernel": -1},
            "EfficientChannel: kernel=-1: expected an odd number of at least 1",
        ),
        ("spatial", {"kernel": 2}, "gate Spatial: kernel=2: expected an odd number"),
        ("coordinate", {"least": -1}, "gate Coordinate: least=-1, must be at least 0"),
        ("coordinate", {"reduction": 0}, "reduction=0"),
        ("residual_attention", {"depth": 4}, "depth=4 is too much for maps of 5 x 3, which can be"),
        ("residual_attention", {"units": 0}, "units=0 and bottleneck=4: expected at least 1"),
        ("residual_attention", {"bottleneck": 7}, "bottleneck of at most the 6 channels"),
        ("residual_attention", {"bottleneck": 0}, "bottleneck=0"),
        ("non_local", {"reduction": 0}, "gate NonLocal: reduction=0, must be at least 1"),
        ("non_local_dot", {"pool": 6}, "NonLocalDot: pool=6: expected 1 to 5 on maps of 5 x 3"),
        ("non_local_concat", {"pool": 0}, "pool=0"),
        ("non_local", {"alignment": "selective"}, "NonLocal.alignment: Selective looks at what"),
        ("non_local_dot", {"kernel": "cudnn"}, "gate NonLocalDot.kernel: kernel 'cudnn'"),
    ],
)
def test_what_does_not_fit_is_named(name: str, fields: dict[str, Any], message: str) -> None:
    gate = make(name, fields)
    with pytest.raises(UserError) as raised:
        jax.eval_shape(gate.init, jax.random.key(0), jax.ShapeDtypeStruct(SHAPE, "float32"))
    assert message in str(raised.value)


@pytest.mark.parametrize("shape", [(5, 3, 6), (2, 0, 3, 6), (2, 5, 3, 0)])
def test_what_is_no_map_is_named(shape: tuple[int, ...]) -> None:
    for name in ("se", "non_local"):
        with pytest.raises(UserError, match="takes feature maps"):
            make(name, {}).init(jax.random.key(0), np.zeros(shape))


R50 = [(3, 256), (4, 512), (6, 1024), (3, 2048)]  # blocks and channels of ResNet-50


def gated(name: str, fields: dict[str, Any], x: np.ndarray) -> Any:
    """y and g of a gate in float64."""
    gate = make(name, fields)
    with jax.enable_x64(True):
        variables = {"params": drawn(gate)}
        y, left = jax.jit(lambda x: gate.apply(variables, x, mutable=[COLLECTION]))(x)
    return np.asarray(y), jax.tree.map(np.asarray, handed_out(left.get(COLLECTION, {})))


def permuted(x: np.ndarray) -> np.ndarray:
    """The places of every map in another order."""
    order = np.random.default_rng(3).permutation(x.shape[1] * x.shape[2])
    return x.reshape(len(x), -1, x.shape[-1])[:, order].reshape(x.shape)


@pytest.mark.parametrize("name", ["se", "eca", "channel", "spatial", "coordinate"])
def test_channel_gates_do_not_see_the_order_of_places(name: str) -> None:
    """And all are between 0 and 1, of the shape that the paper says."""
    x, fields = maps(), FIELDS[name][0]
    (_, g), (_, other) = gated(name, fields, x), gated(name, fields, permuted(x))
    shapes = {"spatial": (2, 5, 3, 1), "coordinate": SHAPE}
    assert g[""].shape == shapes.get(name, (2, 1, 1, 6))
    assert np.min(g[""]) > 0 and np.max(g[""]) < 1
    same = bool(np.allclose(g[""], other[""], atol=1e-12))
    assert same == (name in ("se", "eca", "channel"))


def test_squeeze_excitation_adds_as_many_parameters_to_resnet_50_as_the_paper_says() -> None:
    """(2 / r) sum N_s C_s^2 = 2.5 million weights, beside the biases of the released code; ECA adds
    k for each block.
    """

    def total(name: str, **fields: Any) -> int:
        gate = make(name, fields)
        return sum(blocks * parameters(gate, channels) for blocks, channels in R50)

    def parameters(gate: Any, channels: int) -> int:
        x = jax.ShapeDtypeStruct((1, 7, 7, channels), jnp.float32)
        params = jax.eval_shape(gate.init, jax.random.key(0), x)
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    weights = total("se", bias=False)
    assert weights == 2_514_944 == sum(2 * n * c * c // 16 for n, c in R50)
    assert total("se") - weights == sum(n * (c + c // 16) for n, c in R50)
    assert total("eca") == 3 * 5 + 4 * 5 + 6 * 5 + 3 * 7
    assert total("eca", kernel=5) == 80
    assert total("spatial") == 16 * 98


def test_the_kernel_of_eca_grows_with_the_channels() -> None:
    sizes = {1: 1, 2: 1, 8: 3, 64: 3, 128: 5, 256: 5, 512: 5, 1024: 5, 2048: 7}
    assert {channels: adaptive(channels) for channels in sizes} == sizes


def test_gates_start_near_one_half_and_with_large_logits_let_everything_through() -> None:
    x, gate = maps().astype(np.float32), make("se", {"reduction": 2})

    @jax.jit
    def begun(key: Any) -> Any:
        variables = gate.init(key, x)
        _, left = gate.apply(variables, x, mutable=[COLLECTION])
        variables["params"]["outer"]["bias"] += 40.0
        return handed_out(left[COLLECTION])[""], gate.apply(variables, x)

    g, through = begun(jax.random.key(0))
    assert np.abs(g - 0.5).max() < 0.3
    np.testing.assert_array_equal(through, x)


def test_a_mask_is_as_deep_as_in_the_paper() -> None:
    """Three, two and one poolings at 56, 28 and 14; odd sizes are rounded up."""
    gate = ResidualAttention(parent=None)
    value = {size: [height for height, _ in gate.sizes(size, size)] for size in (56, 28, 14, 7, 15)}
    assert value == {56: [56, 28, 14, 7], 28: [28, 14, 7], 14: [14, 7], 7: [7, 4], 15: [15, 8, 4]}


def test_who_computes_over_a_batch_says_so_and_leaves_out_what_is_no_image() -> None:
    asked = {"coordinate": True, "residual_attention": True, "cbam": False, "non_local": False}
    assert {name: make(name, {}).over_batch for name in asked} == asked
    within = {"second": {"name": "spatial", "normalisation": "batch_norm"}}
    assert make("cbam", within).over_batch and not Spatial(parent=None).over_batch

    gate, x = make("coordinate", {"reduction": 3}), maps().astype(np.float32)
    variables = {"params": jax.tree.map(np.float32, drawn(gate))}

    @jax.jit
    def seen(x: Any) -> Any:
        valid = jnp.array([True, False])
        y, left = gate.apply(variables, x, valid, mutable=[STATISTICS])
        return y[0], left

    other = np.stack([x[0], x[1] + 7.0])
    for one, two in zip(*(jax.tree.leaves(seen(x)) for x in (x, other)), strict=True):
        np.testing.assert_array_equal(one, two)


SIZES = [(1, 4), (5, 3), *(pytest.param(size, marks=pytest.mark.full) for size in [(1, 1), (6, 2)])]


@pytest.mark.parametrize("size", SIZES)
def test_pooling_and_enlarging_are_their_formulas_at_any_size(
    size: tuple[int, int], float64: None
) -> None:
    x = np.random.default_rng(0).normal(size=(2, *size, 3))
    larger = (size, (2 * size[0], 2 * size[1] + 1), (size[0], size[1] + 3))

    @jax.jit
    def found(x: Any) -> Any:
        return pooled(x, 3, 2), tiled(x, 2), [enlarged(x, *to) for to in larger]

    windows, tiles, maps = found(x)
    np.testing.assert_array_equal(windows, largest(x))
    for enlarged_map, to in zip(maps, larger, strict=True):
        np.testing.assert_allclose(enlarged_map, bilinear(x, *to), atol=1e-12)
    assert tiles.shape == (2, -(-size[0] // 2), -(-size[1] // 2), 3)
    corner = x[:, (size[0] - 1) // 2 * 2 :, (size[1] - 1) // 2 * 2 :]
    np.testing.assert_array_equal(tiles[:, -1, -1], corner.max(axis=(1, 2)))
