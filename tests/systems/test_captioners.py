"""All systems that write a text for an image: whole forward passes against float64 oracles, the
promises of every decoder, and facts of the papers.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.systems.vision.captioner import Captioner
from tests.rounding import assert_close
from tests.systems.captioners import SPECS, made, regions, words

SOFT = SPECS["show_attend_tell"]


def test_more_padding_changes_nothing_and_the_order_of_regions_neither() -> None:
    """Attention is to content: a mean, and weights by what is there, know no order."""
    for name in ("show_attend_tell", "top_down", "captioning_transformer"):
        call, _, _ = made(SPECS[name], "regions")
        before = call(regions(), words())
        longer = np.pad(regions(), ((0, 0), (0, 2), (0, 0)))
        assert_close(call(longer, words()), before, eps=8)
        assert_close(call(regions()[:, ::-1], words()), before, eps=8)


def changed(params: Any, *path: str, to: Any) -> Any:
    """Parameters with `to(old)` at a path."""
    head, *rest = path
    inside = changed(params[head], *rest, to=to) if rest else to(params[head])
    return {**params, head: inside}


def test_the_gate_of_show_attend_and_tell() -> None:
    """A gate that is open is none; one that is shut leaves the image out after the first state."""
    _, system, params = made(SOFT, "regions")
    _, plain, _ = made({**SOFT, "gate": "none"}, "regions")
    apply = jax.jit(lambda params, read: system.apply({"params": params}, read, words()))

    def gated(bias: float) -> Any:
        shut = changed(params, "selector", "kernel", to=np.zeros_like)
        return changed(shut, "selector", "bias", to=lambda old: np.full_like(old, bias))

    without = {name: one for name, one in params.items() if name != "selector"}
    found = jax.jit(plain.apply)({"params": without}, regions(), words())
    np.testing.assert_allclose(apply(gated(30.0), regions()), found, atol=1e-6)
    read = regions()[:1]
    moved = read + np.array([1, -1, 0, 0, 0, 0], np.float32)[None, :, None]  # the same mean
    shut = [apply(gated(-100.0), np.repeat(one, 3, axis=0))[0] for one in (read, moved)]
    np.testing.assert_allclose(*shut, atol=1e-5)


def test_one_place_is_looked_at_and_uniform_scores_give_the_mean() -> None:
    _, system, params = made(SOFT, "regions")
    weights = jax.jit(
        lambda params: (
            system.maps(
                system.apply({"params": params}, regions(), words(), mutable=[MAPS])[1][MAPS]
            )["attention"].weights
        )
    )
    assert (np.asarray(weights(params))[2, 0, :, 0] == 1.0).all()  # of the third there is one
    level = changed(params, "attention", "score", "v", to=np.zeros_like)
    np.testing.assert_allclose(weights(level)[1, 0], np.tile([0.25] * 4 + [0] * 2, (5, 1)))


def test_sharp_soft_attention_is_hard_attention_at_the_best_place() -> None:
    _, soft, params = made(SOFT, "regions")
    _, hard, _ = made(SPECS["show_attend_tell-hard"], "regions")
    sharp = changed(params, "attention", "score", "v", to=lambda old: old * 1e4)
    found, expected = (
        jax.jit(one.apply)({"params": sharp}, regions(), words()) for one in (soft, hard)
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def weights_of(system: Captioner, params: Any, read: Any) -> jax.Array:
    """What the words look at of regions, but for the row of one region."""
    found: Any = system.apply({"params": params}, regions(), read, mutable=[MAPS])
    return system.maps(found[1][MAPS])["attention"].weights[:2]


def test_the_attention_of_top_down_asks_with_the_current_state() -> None:
    """Without a query it does not depend on words; with one the word read last counts at once."""
    _, system, params = made(SPECS["top_down"], "regions")
    weights = jax.jit(functools.partial(weights_of, system))
    other = words()
    other[:, 0] += 3
    assert np.abs(weights(params, other) - weights(params, words()))[:, 0, 0].max() > 1e-4
    blind = changed(params, "attention", "score", "w_query", "kernel", to=np.zeros_like)
    np.testing.assert_allclose(weights(blind, other), weights(blind, words()), atol=1e-7)
    _, late, late_params = made(SOFT, "regions")  # here h_{t-1} asks
    asked = jax.jit(functools.partial(weights_of, late))
    first = [np.asarray(asked(late_params, read))[:, 0, 0] for read in (words(), other)]
    np.testing.assert_array_equal(*first)
