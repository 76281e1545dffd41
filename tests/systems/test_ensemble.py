"""An ensemble says the mean of what its members say, whichever they are."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.systems.ensemble import Ensemble, ensemble
from tests.systems.checks import SPECS, batch, make, parameters, prepared

MEMBERS = ("luong", "gnmt")


@functools.cache
def joined(names: tuple[str, ...] = MEMBERS) -> tuple[Ensemble, Any]:
    system = ensemble([make(SPECS[name]) for name in names])
    return system, {
        f"members_{number}": parameters(make(SPECS[name])) for number, name in enumerate(names)
    }


@functools.partial(jax.jit, static_argnames=("names", "method"))
def call(*arguments: Any, names: tuple[str, ...] = MEMBERS, method: str = "__call__") -> Any:
    return joined(names)[0].apply({"params": joined(names)[1]}, *arguments, method=method)


def softmax(logits: Any) -> np.ndarray:
    raised = np.exp(np.asarray(logits, np.float64))
    return raised / raised.sum(axis=-1, keepdims=True)


@pytest.mark.quick
def test_its_probabilities_are_the_mean_of_those_of_its_members() -> None:
    source, target = batch()
    expected = np.mean(
        [softmax(prepared(SPECS[name])[0](source, target)) for name in MEMBERS], axis=0
    )
    np.testing.assert_allclose(np.exp(call(source, target)), expected, atol=1e-6)


@pytest.mark.full
def test_step_by_step_is_all_at_once() -> None:
    source, target = batch()
    full, memory = call(source, target), call(source, method="encode")
    system, params = joined()
    state = system.apply({"params": params}, memory, 5, method="start")
    for t in range(5):
        logits, state = call(state, memory, target[:, t], method="step")  # type: ignore[misc]
        np.testing.assert_allclose(logits, full[:, t], atol=5e-6)


def test_maps_of_all_members_and_the_mean_for_an_alignment() -> None:
    system, params = joined()
    source, target = batch()
    _, collected = jax.jit(functools.partial(system.apply, mutable=[MAPS]))(
        {"params": params}, source, target
    )
    maps = system.maps(collected[MAPS])
    assert set(maps) == {"members_0/attention", "members_1/attention"}
    assert set(system.needs) == {"members_0", "members_1"}
    sides = {(one.rows, one.columns) for one in maps.values()}
    assert sides == {("target", "source")} == {system.between(name) for name in maps}
    mean = np.mean([np.asarray(one.weights)[:, 0] for one in maps.values()], axis=0)
    np.testing.assert_allclose(system.alignment(maps), mean, atol=1e-7)


def test_it_attends_only_if_all_members_do() -> None:
    assert ensemble([make(SPECS["luong"]), make(SPECS["seq2seq"])]).needs == {}
