"""What is said of ConvS2S beyond its formula: how far it sees, how its gradients are scaled, what
its attentions are averaged to.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.errors import UserError
from attnlab.systems.convolutional import convs2s
from tests.systems.checks import SPECS, batch, make, parameters, prepared

SPEC = SPECS["convs2s"]


@functools.cache
def compiled(**changes: Any) -> Any:
    """`(params, source, target) -> (logits, gradient of the sum of squares of those that count
    [T])` of a tiny system, compiled once.
    """
    system = make({**SPEC, **changes})

    def total(params: Any, source: Any, target: Any, counts: Any) -> Any:
        logits = system.apply({"params": params}, source, target)
        return (counts[:, None] * logits**2).sum(), logits

    slope = jax.jit(jax.value_and_grad(total, has_aux=True))

    def call(params: Any, source: Any, target: Any, counts: Any = None) -> Any:
        (_, logits), grads = slope(
            params, source, target, np.ones(5, bool) if counts is None else counts
        )
        return logits, grads

    return call, parameters(system)


def shut(layer: Any) -> Any:
    """A normalised layer that gives nothing: no length, no bias."""
    return {**layer, "g": np.zeros_like(layer["g"]), "bias": np.zeros_like(layer["bias"])}


@pytest.mark.quick
def test_without_attention_a_word_is_seen_as_far_as_the_windows_reach() -> None:
    """One layer with a window of 3, the other silent: logits at t move with the words t-2 ... t,
    and with no other.
    """
    (call, params), (source, _) = compiled(), batch()
    silent = {
        f"decoder_{layer}": {
            **params[f"decoder_{layer}"],
            "takes": shut(params[f"decoder_{layer}"]["takes"]),
        }
        for layer in (0, 1)
    }
    silent["decoder_1"]["convolution"] = {
        "linear": shut(params["decoder_1"]["convolution"]["linear"])
    }
    by_position = np.broadcast_to(np.arange(3, 8), (3, 5))
    _, grads = call({**params, **silent}, source, by_position, np.arange(5) == 4)
    slope = np.abs(grads["embed_target"]["embedding"]).max(axis=1)
    assert (slope[[3, 4]] == 0.0).all() and (slope[[5, 6, 7]] > 1e-6).all()


@functools.cache
def slopes(factor: float | None) -> Any:
    """Gradients of a loss; the factor for those into the encoder replaced, unless it is None."""
    if factor is None:
        return compiled()[0](compiled()[1], *batch())[1]
    plain = convs2s.slowed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convs2s, "slowed", lambda x, _: plain(x, factor))
        call, params = compiled.__wrapped__()
        return call(params, *batch())[1]


def test_gradients_into_the_encoder_are_divided_by_twice_the_attentions_and_those_into_embeddings_are_not() -> (
    None
):
    """Two decoder layers, so 1/4; what goes by the embeddings in the values stays whole."""
    mine, whole, none = slopes(None), slopes(1.0), slopes(0.0)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    for part in ("encoder_0", "encoder_1", "into_encoder", "out_encoder"):
        jax.tree.map(lambda one, other: close(one, other / 4), mine[part], whole[part])
    for part in ("embed_source", "positions_source"):
        one, other, direct = (jax.tree.leaves(of[part])[0] for of in (mine, whole, none))
        assert np.abs(direct).max() > 1e-4
        np.testing.assert_allclose(one - direct, (other - direct) / 4, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, mine["decoder_0"], whole["decoder_0"])
    np.testing.assert_array_equal(
        convs2s.slowed(jnp.asarray([1e-30, 3.3, -7e8]), 0.25), np.float32([1e-30, 3.3, -7e8])
    )


@pytest.mark.full
def test_the_alignment_is_the_average_over_layers() -> None:
    call, system = prepared(SPEC)
    source, target = batch()
    _, collected = call(source, target, mutable=[MAPS])
    maps = system.maps(collected[MAPS])
    assert sorted(maps) == ["decoder_0/attention", "decoder_1/attention"]
    mean = (maps["decoder_0/attention"].weights + maps["decoder_1/attention"].weights)[:, 0] / 2
    np.testing.assert_allclose(system.alignment(maps), mean, atol=1e-7)
    one, other = (maps[f"decoder_{layer}/attention"].weights for layer in (0, 1))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.quick
def test_there_is_no_room_to_decode_beyond_the_positions() -> None:
    call, _ = prepared(SPEC)
    memory = call(batch()[0], method="encode")
    assert len(call(memory, 12, method="start").windows) == 2
    with pytest.raises(UserError, match="length=12, but a sequence is 13 long"):
        call(memory, 13, method="start")
