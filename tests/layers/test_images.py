"""Layers of images compute in the precision of their kernels. Their sums over windows and patches are
those of the oracles of CNNs, ResNets and ViT, and of `gates/test_gates.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.images import Convolution, Patches


@pytest.mark.parametrize("layer", [Convolution(64, 3), Patches(64, 3)], ids=["sums", "patches"])
def test_a_layer_computes_in_the_precision_of_its_kernel(layer: Any) -> None:
    x = jax.ShapeDtypeStruct((1, 3, 3, 32), jnp.float32)
    params = jax.eval_shape(layer.init, jax.random.key(0), x)
    half = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), params)
    assert jax.eval_shape(layer.apply, half, x).dtype == jnp.bfloat16


def test_convolutions_start_as_he_et_al_and_patches_without_bias() -> None:
    x, key = np.ones((1, 3, 3, 32), np.float32), jax.random.key(0)
    kernel = jax.jit(Convolution(64, 3).init)(key, x)["params"]["kernel"]
    assert kernel.std() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.05)
    assert not jax.jit(Patches(5, 3).init)(key, x)["params"]["bias"].any()
