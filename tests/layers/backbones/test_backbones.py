"""Backbones that a config names give a classifier its features. Their formulas are tested with the
read-out of a classifier, in `tests/systems/test_systems.py`.
"""

from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.config.registry import made
from attnlab.errors import UserError
from attnlab.layers.backbones import BACKBONES
from tests.systems.image_systems import OF_IMAGES, make, parameters, shown


def test_gates_stand_in_the_stages_that_are_told() -> None:
    spec = {**OF_IMAGES["resnet"], "gate": {"name": "se", "reduction": 2}}
    for gated, stages in (((), (0, 1, 2)), ((1,), (1,)), ((0, 2), (0, 2))):
        shapes = jax.eval_shape(
            make({**spec, "gated": gated}).init, jax.random.key(0), shown(spec, 2)
        )
        actual = [name for name, block in shapes["params"].items() if "gate" in block]
        assert actual == [f"stage_{stage}_block_0" for stage in stages]
    one = {**spec, "depth": 14, "often": "last", "gated": (1,)}
    shapes = jax.eval_shape(make(one).init, jax.random.key(0), shown(spec, 2))
    expected = ["stage_1_block_1"]
    assert [name for name, block in shapes["params"].items() if "gate" in block] == expected
    with pytest.raises(UserError, match=r"gated=\(3,\): there is no stage 3; expected 0 to 2"):
        jax.eval_shape(make({**spec, "gated": (3,)}).init, jax.random.key(0), shown(spec, 2))


def test_a_backbone_gives_the_states_of_its_patches() -> None:
    system, spec = make(OF_IMAGES["vit"]), ConfigDict(OF_IMAGES["vit"])
    read = shown(OF_IMAGES["vit"], 2)
    params = parameters(system, read)

    @jax.jit
    def both(params: Any) -> Any:
        states, grid = system.apply({"params": params}, read, method="states")
        assert grid == (2, 3)
        backbone = {name: leaf for name, leaf in params.items() if name != "out"}
        return states, made(BACKBONES, spec)().apply({"params": backbone}, read)

    states, actual = both(params)
    assert states.shape == (2, 7, 8)
    np.testing.assert_allclose(actual, states[:, 1:].reshape(2, 2, 3, 8), atol=1e-6)
