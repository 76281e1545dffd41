"""Layers of images are sums over windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.images import Convolution, Patches, pooled


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (1, 2), (7, 1)])
def test_a_convolution_is_centred_on_every_stride_th_pixel(kernel: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 7, 6, 3)).astype(np.float32)
    weights = rng.normal(size=(kernel, kernel, 3, 4)).astype(np.float32)
    layer = Convolution(4, kernel, stride)
    actual = np.asarray(jax.jit(layer.apply)({"params": {"kernel": weights}}, x))
    assert actual.shape == (2, -(-7 // stride), -(-6 // stride), 4)
    edge = kernel // 2
    edged = np.pad(x.astype(np.float64), ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    for i, j in np.ndindex(actual.shape[1:3]):
        rows, columns = (slice(stride * index, stride * index + kernel) for index in (i, j))
        expected = np.einsum("buvc,uvcf->bf", edged[:, rows, columns], weights)
        np.testing.assert_allclose(actual[:, i, j], expected, rtol=1e-4, atol=1e-5)


def test_a_convolution_computes_in_the_precision_of_its_kernel_and_starts_as_he_et_al() -> None:
    layer, x = Convolution(64, 3), np.ones((1, 3, 3, 32), np.float32)
    kernel = jax.jit(layer.init)(jax.random.key(0), x)["params"]["kernel"]
    assert kernel.std() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.05)
    half = jax.ShapeDtypeStruct(kernel.shape, jnp.bfloat16)
    actual = jax.eval_shape(layer.apply, {"params": {"kernel": half}}, x)
    assert actual.dtype == jnp.bfloat16


def test_pixels_around_an_image_are_never_the_largest() -> None:
    x = -1.0 - jnp.arange(16.0).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(pooled(x, 3, 2)[0, :, :, 0], [[-1, -2], [-5, -6]])
    np.testing.assert_array_equal(pooled(x, 2, 2)[0, :, :, 0], [[-1, -3], [-9, -11]])


def test_patches_are_a_convolution_with_steps_of_its_own_size() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 6, 3)).astype(np.float32)
    run = jax.jit(Patches(5, 2).apply)
    params = jax.jit(Patches(5, 2).init)(jax.random.key(0), x)["params"]
    assert params["kernel"].shape == (2, 2, 3, 5) and not params["bias"].any()
    params = {**params, "bias": rng.normal(size=5).astype(np.float32)}
    actual = run({"params": params}, x)
    tiles = x.reshape(2, 2, 2, 3, 2, 3)  # rows and columns of patches, and those within
    expected = np.einsum("biujvc,uvcf->bijf", tiles, params["kernel"])
    np.testing.assert_allclose(actual, expected + params["bias"], rtol=1e-5, atol=1e-5)
    half = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), params)
    assert jax.eval_shape(run, {"params": half}, x).dtype == jnp.bfloat16
