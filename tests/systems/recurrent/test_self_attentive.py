"""The structured self-attentive embedding: its penalty, and how its hops stand."""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import LOSSES
from attnlab.errors import UserError
from tests.systems.classifiers import SPECS, batch, make, parameters, prepared
from tests.systems.oracles.readers import penalties

SPEC = SPECS["self_attentive"]


def test_the_penalty_is_handed_out_for_every_text() -> None:
    """|| A A^T - I ||_F^2 by plain loops, of both texts; its gradient does not reach padding."""
    _, params, system = prepared(SPEC, 2)
    ids = batch(2)

    def found(params: Any) -> Any:
        return system.apply({"params": params}, *ids, mutable=[LOSSES])[1][LOSSES]["looks"]

    looks = jax.jit(found)(params)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for one, texts in zip(looks, ids, strict=True):
        np.testing.assert_allclose(one["hops"][:, 0], penalties(exact, {}, texts), rtol=2e-6)
    slope = jax.jit(jax.grad(lambda params: sum(one["hops"].sum() for one in found(params))))(
        params
    )["reader"]["embed"]["embedding"]
    assert (np.asarray(slope)[0] == 0.0).all() and np.abs(slope).max() > 1e-3


@pytest.mark.full
def test_a_mechanism_that_mixes_its_heads_gives_one_row() -> None:
    spec = {**SPEC, "attention": {"name": "multihead", "heads": 2}}
    assert make(SPEC).hops == 3 and make(spec).hops == 1  # type: ignore[attr-defined]
    projected = make({**SPEC, "attention": {"name": "hops", "hops": 3}})
    assert parameters(projected, *batch(1))["verdict"]["first"]["kernel"].shape == (8, 6)
    assert np.isfinite(prepared(spec, 2)[0](prepared(spec, 2)[1], *batch(2))).all()


def test_hops_side_by_side_have_a_width() -> None:
    from attnlab.attention.mechanisms.hops import Hops

    source = np.ones((1, 2, 8), np.float32)
    words = "hops=3 side by side are 24 wide, the context is asked to be 8"
    with pytest.raises(UserError, match=words):
        jax.eval_shape(
            Hops(width=8, hops=3, output="side_by_side").init, jax.random.key(0), source, source
        )
