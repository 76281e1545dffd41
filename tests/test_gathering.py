"""Parts of parameters are found where these are gathered, and nowhere else."""

from __future__ import annotations

import jax
import numpy as np

from attnlab.gathering import gathered_as, in_parts, whole
from attnlab.training.mesh import Layout, place
from attnlab.training.settings import Parallel


def test_parts_are_known_while_they_are_gathered() -> None:
    layout = Layout.of(Parallel(fsdp=4), jax.devices())
    params = {"w": place(np.ones((128, 256)), layout.sharding("w", (128, 256)))}
    with layout.gathered(params) as gathered:
        assert gathered["w"].sharding.is_fully_replicated
        assert in_parts(gathered)["w"] is params["w"]
        assert gathered_as(gathered, params)["w"].sharding.is_fully_replicated
    assert in_parts(gathered)["w"] is gathered["w"]
    assert gathered_as(gathered, params)["w"] is params["w"]
    with whole({}, {}, None) as nothing:
        assert nothing == {}
