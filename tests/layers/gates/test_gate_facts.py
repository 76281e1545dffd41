"""Gates are what their papers say of them, and maps are pooled and enlarged by the formulas."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.gates.cbam import Spatial
from attnlab.layers.gates.eca import adaptive
from attnlab.layers.gates.protocol import COLLECTION, handed_out
from attnlab.layers.gates.residual_attention import ResidualAttention
from attnlab.layers.images import enlarged, pooled, tiled
from attnlab.layers.norms import STATISTICS
from tests.layers.gates.cases import FIELDS, SHAPE, drawn, make, maps
from tests.layers.gates.oracles import bilinear, largest

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
