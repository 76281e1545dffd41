"""What is said of GNMT: what it is with one layer a side, where sums begin, and who may know what
when attention looks.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import numpy as np

from attnlab.attention.protocol import MAPS
from tests.systems.checks import SPECS, batch, make, parameters, prepared
from tests.systems.oracles.parts import additive, lstm, lstm_start

SPEC = {**SPECS["gnmt"], "decoder_layers": 3}
CURRENT = {**SPECS["gnmt"], "encoder_layers": 2, "query": "current", "first": "encoder"}


@functools.cache
def program(spec: str) -> Any:
    system = make(json.loads(spec))
    return jax.jit(lambda params: system.apply({"params": params}, *batch()))


def logits(spec: dict[str, Any], params: Any) -> np.ndarray:
    return np.asarray(program(json.dumps(spec))(params))


def test_one_layer_a_side_is_rnnsearch_with_lstms_and_without_maxout() -> None:
    """Bahdanau et al. 2015 with the unit exchanged: c_i = attention(s_{i-1}, ann), s_i =
    LSTM(s_{i-1}, [y_{i-1} ; c_i]).
    """
    spec = {**SPEC, "encoder_layers": 1, "decoder_layers": 1}
    params = parameters(make(spec))
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    source, target_in = batch()
    expected = np.zeros((3, 5, 17))
    for b in range(3):
        halves = []
        for name, turn in (("forward", 1), ("backward", -1)):
            layer, state, found = wide["both_ways"][name], lstm_start(wide["both_ways"][name]), []
            for word in source[b][source[b] != 0][::turn]:
                state = lstm(
                    layer,
                    state,
                    wide["embed_source"]["embedding"][word] @ layer["of_input"]["kernel"]["kernel"],
                )
                found.append(state[1])
            halves.append(found[::turn])
        annotations = [np.concatenate(pair) for pair in zip(*halves, strict=True)]
        s = lstm_start(wide["lowest"])
        kernel = np.concatenate(
            [wide["lowest"]["of_input"]["kernel"]["kernel"], wide["of_context"]["kernel"]]
        )
        for i, word in enumerate(target_in[b]):
            c = additive(wide["attention"], s[1], annotations)
            s = lstm(
                wide["lowest"],
                s,
                np.concatenate([wide["embed_target"]["embedding"][word], c]) @ kernel,
            )
            expected[b, i] = s[1] @ wide["out"]["kernel"] + wide["out"]["bias"]
    np.testing.assert_allclose(logits(spec, params), expected, atol=2e-6)


def test_a_third_layer_of_zeros_is_not_there_a_second_is() -> None:
    """From the third on the input is added to the output; the second has to bring 2H down to H, and
    adds nothing.
    """
    params = parameters(make(SPEC))
    shallow = {**SPEC, "encoder_layers": 2, "decoder_layers": 2}
    nothing = jax.tree.map(
        np.zeros_like, {"reader": params["reader"]["layer_1"], "above": params["above_1"]}
    )
    shut = {
        **params,
        "reader": {**params["reader"], "layer_1": nothing["reader"]},
        "above_1": nothing["above"],
    }
    left = {name: part for name, part in params.items() if name != "above_1"}
    left["reader"] = {"layer_0": params["reader"]["layer_0"]}
    np.testing.assert_allclose(logits(SPEC, shut), logits(shallow, left), atol=1e-6)
    assert params["both_ways"]["forward"]["of_input"]["kernel"]["kernel"].shape == (6, 20)
    assert params["reader"]["layer_0"]["of_input"]["kernel"]["kernel"].shape == (10, 20)
    blank = {**left, "above_0": jax.tree.map(np.zeros_like, left["above_0"])}
    np.testing.assert_allclose(
        logits(shallow, blank), np.broadcast_to(blank["out"]["bias"], (3, 5, 17)), atol=1e-6
    )


def test_who_asks_before_knows_not_the_last_word() -> None:
    """By the paper's query the weights of step t do not depend on what it reads; by the current one
    they do.
    """
    source, target = batch()
    for spec, knows in ((SPECS["gnmt"], False), (CURRENT, True)):
        call, system = prepared(spec)

        def weights(target: np.ndarray, call: Any = call, system: Any = system) -> np.ndarray:
            return np.asarray(
                system.alignment(system.maps(call(source, target, mutable=[MAPS])[1][MAPS]))
            )

        changed = target.copy()
        changed[:, 2] = (changed[:, 2] + 3) % 13 + 4
        moved = np.abs(weights(changed) - weights(target))[0].max(axis=1) > 1e-6
        np.testing.assert_array_equal(moved, [False, False, knows, True, True])


def test_every_layer_of_the_decoder_is_given_the_context() -> None:
    """The logits move with the rows of each layer's kernel that meet the context."""
    params = parameters(make(SPEC))
    before = logits(SPEC, params)
    for name in ("above_0", "above_1"):
        kernel = params[name]["of_input"]["kernel"]["kernel"]
        assert kernel.shape == (5 + 5, 20)
        deaf = np.where(np.arange(10)[:, None] < 5, kernel, 0.0).astype(np.float32)
        changed = {
            **params,
            name: {
                **params[name],
                "of_input": {**params[name]["of_input"], "kernel": {"kernel": deaf}},
            },
        }
        assert np.abs(logits(SPEC, changed) - before).max() > 1e-3
    deaf_below = {**params, "of_context": {"kernel": np.zeros_like(params["of_context"]["kernel"])}}
    assert np.abs(logits(SPEC, deaf_below) - before).max() > 1e-3


def test_the_decoder_may_begin_where_the_encoder_ended() -> None:
    """Layer by layer, the lowest with the backward direction's state after the first word."""
    call, system = prepared(CURRENT)
    source, _ = batch()
    memory = call(source, method="encode")
    state = call(memory, 5, method="start")
    params = parameters(system)

    def states(system: Any) -> Any:
        words, both = system.both_ways(system.embed_source(source), source != 0)
        return (both[1], *system.reader(words, source != 0)[1])

    expected = jax.jit(lambda params: system.apply({"params": params}, method=states))(params)
    for one, other in zip((state.lowest.state, *state.above), expected, strict=True):
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), one, other
        )
    zeros = prepared(SPECS["gnmt"])[0](source, method="encode").first
    assert len(zeros) == 2 and all(
        (np.asarray(leaf) == 0.0).all() for leaf in jax.tree.leaves(zeros)
    )


def test_an_empty_source_is_defined() -> None:
    for spec in (SPECS["gnmt"], CURRENT):
        call, _ = prepared(spec)
        source, target = batch()
        found = call(np.where(np.arange(3)[:, None] == 1, 0, source), target)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[0], call(source, target)[0], atol=1e-6)
