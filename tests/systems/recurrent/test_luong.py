"""What is said of the systems of Luong et al. 2015: which setting equals which, and where windows
lie.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems.checks import SPECS, batch, check_cached_decoding, make, parameters, prepared

GENERAL: dict[str, Any] = {"name": "single", "score": {"name": "general"}}


def spec(attention: dict[str, Any] = GENERAL, **fields: Any) -> dict[str, Any]:
    return {**SPECS["luong"], "layers": 1, "attention": attention, **fields}


@functools.cache
def program(one: str) -> Any:
    system = make(json.loads(one))
    return jax.jit(lambda params: system.apply({"params": params}, *batch()))


def logits(one: dict[str, Any], changed: Any = None) -> np.ndarray:
    """Of the batch of `checks`; `changed` takes the parameters of `one` and gives those to use."""
    params = parameters(make(one))
    return np.asarray(program(json.dumps(one))(changed(params) if changed else params))


def without(params: Any, *names: str) -> Any:
    return {
        **params,
        "attention": {
            name: part for name, part in params["attention"].items() if name not in names
        },
    }


@pytest.mark.parametrize(("alignment", "reach"), [("local_m", 5), ("local_p", 10**6)])
def test_a_window_over_everything_is_global(alignment: str, reach: int) -> None:
    """local_p with a bell so wide that it is one everywhere."""
    expected = logits(spec())

    def shared(params: Any) -> Any:
        mine = parameters(make(spec()))
        return {**mine, "attention": {**params["attention"], **mine["attention"]}}

    found = logits(spec({**GENERAL, "alignment": {"name": alignment, "reach": reach}}), shared)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_general_with_the_identity_is_dot() -> None:
    dot = spec({"name": "single", "score": {"name": "dot"}})

    def identity(params: Any) -> Any:
        return {**params, "attention": {"score": {"w": {"kernel": np.eye(5, dtype=np.float32)}}}}

    np.testing.assert_allclose(
        logits(spec(), identity),
        logits(dot, lambda _: without(parameters(make(spec())), "score")),
        atol=1e-6,
    )


def test_concat_is_the_additive_score_with_its_matrices_stacked() -> None:
    one, other = (
        {"name": "single", "score": {"name": name, "hidden": 6}} for name in ("concat", "additive")
    )

    def split(params: Any) -> Any:
        fit = parameters(make(spec(one)))["attention"]["score"]
        query, key = np.split(fit["w_a"]["kernel"], 2)
        return {
            **parameters(make(spec(one))),
            "attention": {
                "score": {"v": fit["v"], "w_query": {"kernel": query}, "w_key": {"kernel": key}}
            },
        }

    np.testing.assert_allclose(logits(spec(other), split), logits(spec(one)), atol=1e-6)


def test_unfed_and_blind_to_the_context_it_is_sequence_to_sequence() -> None:
    """With W_c = [0 ; I] the logits are tanh(h_t) W_s of the same layers without attention."""

    def blind(params: Any) -> Any:
        return {
            **params,
            "combine": {"kernel": np.concatenate([np.zeros((5, 5)), np.eye(5)]).astype(np.float32)},
        }

    one = spec(feeding="none")
    params = blind(parameters(make(one)))
    plain = make({**SPECS["seq2seq"], "layers": 1})
    same = {name: params[name] for name in ("embed_source", "embed_target", "reader", "writer")}
    same["out"] = {"kernel": np.zeros((5, 17), np.float32), "bias": np.zeros(17, np.float32)}
    source, target = batch()

    def tops(system: Any) -> Any:
        return system.writer(system.embed_target(target), start=system.encode(source))[0]

    h = jax.jit(lambda params: plain.apply({"params": params}, method=tops))(same)
    np.testing.assert_allclose(
        logits(one, blind), np.tanh(h) @ params["out"]["kernel"] + params["out"]["bias"], atol=1e-6
    )


@functools.cache
def maps(**fields: Any) -> np.ndarray:
    """Source weights [3,5,6] with windows of one word."""
    call, system = prepared(
        spec({**GENERAL, "alignment": {"name": "local_m", "reach": 0}}, **fields)
    )
    return np.asarray(system.alignment(system.maps(call(*batch(), mutable=[MAPS])[1][MAPS])))


@pytest.mark.parametrize("order", ["reversed", "plain"])
@pytest.mark.parametrize("feeding", ["input", "none"])
def test_windows_lie_by_the_words_of_the_source_whichever_way_it_was_read(
    order: str, feeding: str
) -> None:
    """The first target word looks at the first source word, the t-th at the t-th, past the end at
    the last real one.
    """
    for row, length in enumerate((6, 3, 1)):
        for t in range(5):
            np.testing.assert_array_equal(
                maps(order=order, feeding=feeding)[row, t], np.arange(6) == min(t, length - 1)
            )


def test_annotations_of_a_reversed_source_have_read_what_follows() -> None:
    """Annotation j depends on words j and later, in the plain order on words j and earlier; and
    stands with word j.
    """
    source = np.array([[5, 6, 7, 8, 9, 2]])
    for order, later in (("reversed", True), ("plain", False)):
        call, _ = prepared(spec(order=order))
        before = call(source, method="encode").attended.values[0, 0]
        for place in range(6):
            changed = source.copy()
            changed[0, place] = 12
            moved = (
                np.abs(call(changed, method="encode").attended.values[0, 0] - before).max(axis=1)
                > 1e-6
            )
            np.testing.assert_array_equal(
                moved, np.arange(6) <= place if later else np.arange(6) >= place
            )


def test_all_steps_at_once_are_one_after_the_other_where_nothing_is_fed_back() -> None:
    """So that no step knows of a later one either; with windows, whose place depends on the
    step.
    """
    local = {**GENERAL, "alignment": {"name": "local_p", "reach": 2}}
    check_cached_decoding(spec(local, feeding="none"))


def test_only_input_feeding_hands_the_attentional_vector_on() -> None:
    source, target = batch()
    for feeding, moves in (("input", True), ("none", False)):
        call, _ = prepared(spec(feeding=feeding))
        memory = call(source, method="encode")
        state = call(memory, 5, method="start")
        one, other = (
            call(state.replace(a=state.a + by), memory, target[:, 0], method="step")[0]
            for by in (0.0, 1.0)
        )
        assert (np.abs(one - other).max() > 1e-3) == moves


@pytest.mark.parametrize("feeding", ["input", "none"])
def test_an_empty_source_gives_an_empty_context(feeding: str) -> None:
    call, _ = prepared(spec(feeding=feeding))
    source, target = batch()
    source = np.where(np.arange(3)[:, None] == 1, 0, source)
    found = call(source, target)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], call(*batch())[0], atol=1e-6)
