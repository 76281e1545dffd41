"""A program over rows gives on a mesh what it gives on one device; each device computes its rows."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlab.decoding.rows import OnRows, mesh_of
from attnlab.training.mesh import Layout, place
from attnlab.training.settings import Parallel


@pytest.mark.parametrize(("rows", "of_a_device"), [(8, 2), (6, 6)])
def test_rows_are_dealt_if_the_devices_divide_them(rows: int, of_a_device: int) -> None:
    rng, layout = np.random.default_rng(0), Layout.of(Parallel(fsdp=4), jax.devices())
    params = {"w": rng.normal(size=(64, 256))}
    batch = {"x": rng.normal(size=(rows, 64)), "scale": np.float32(2)}
    divided = jax.tree.map(place, params, layout.shardings(params))
    program = OnRows(lambda params, batch: batch["scale"] * batch["x"] @ params["w"])
    result = program(divided, batch)
    assert mesh_of(divided) == layout.mesh and mesh_of(params) is None
    assert result.sharding.shard_shape(result.shape) == (of_a_device, 256)
    np.testing.assert_allclose(result, program(params, batch), rtol=1e-5, atol=1e-4)
