"""Weights are a result of a look, `read(..., weights=True)`, in a scan and in cached decoding too, and
slots ask for them only where they are handed out.

That they are the maps, and that their gradients are those of the oracles, is tested over all
settings in `test_conformance.py`.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.kernels import blockwise
from attnlab.attention.mechanisms.multi_step import MultiStep
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.mechanisms.single import Single
from attnlab.attention.needs import Need, hands_out_weights
from attnlab.attention.protocol import MAPS, Capabilities, Reading
from attnlab.attention.view import CAUSAL, EVERYTHING
from attnlab.errors import UserError
from tests.attention import cases
from tests.attention.test_memories import CAPACITY, LENGTH
from tests.rounding import assert_close

SLOT = Need(role="cross", weights=True)


def scanned(name: str, config: dict[str, Any]) -> bool:
    """Whether a mechanism hands out weights while it is read query by query."""
    module = cases.make(name, config)
    return module.capabilities.cache and cases.stepwise(config) and hands_out_weights(type(module))


SCANNED = [case for case in cases.first_settings() if scanned(*case)]


@cases.over(
    SCANNED, drawn=[case for case in SCANNED if case[0] in ("single", "multihead", "latent")]
)
def test_weights_come_in_a_scan_and_in_cached_decoding(name: str, config: dict[str, Any]) -> None:
    """With the slots to spare that maps leave out, so that their shape does not depend on whether the
    length is known; slots that nothing was written to have weight 0.
    """
    call, x = cases.prepared(name, config)[0], jnp.asarray(cases.inputs(queries=LENGTH)[0])
    read = functools.partial(call, weights=True, method="read", mutable=[MAPS, "intermediates"])

    def step(memory: Any, token: Any) -> tuple[Any, Any]:
        memory = call(memory, token[:, None], method="extend")
        return memory, read(token[:, None], memory, CAUSAL)[0].weights[:, :, 0]

    @jax.jit
    def looks(x: Any) -> Any:
        begun = call(x[:, :2], capacity=CAPACITY, method="remember")
        _, steps = jax.lax.scan(step, begun, x[:, 2:].swapaxes(0, 1))
        return read(x, call(x, capacity=CAPACITY, method="remember"), CAUSAL), steps

    (full, collected), steps = looks(x)
    assert full.weights.shape[-1] == CAPACITY > LENGTH
    assert not np.asarray(full.weights[..., LENGTH:]).any()
    assert set(collected) == {MAPS}
    np.testing.assert_array_equal(jax.tree.leaves(collected)[-1], full.weights[..., :LENGTH])
    assert_close(np.moveaxis(np.asarray(steps), 0, 2), np.asarray(full.weights)[:, :, 2:], eps=16)


def test_only_a_kernel_that_has_the_weights_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """For "auto" that is the plain one, also where blockwise would be faster; a kernel that is
    named is refused by its name.
    """
    query, source, valid = cases.inputs()
    params = cases.parameters(cases.make("multihead", {"heads": 3}))
    made = {
        name: cases.make("multihead", {"heads": 3, "kernel": name}) for name in ("auto", "plain")
    }
    look = {name: functools.partial(one.apply, {"params": params}) for name, one in made.items()}
    monkeypatch.setattr("attnlab.attention.kernels.plain.LEAST", 1)
    monkeypatch.setattr(blockwise.Blockwise, "__call__", lambda *_: pytest.fail("has no weights"))
    actual, expected = (call(query, source, CAUSAL, valid, weights=True) for call in look.values())
    np.testing.assert_array_equal(actual.weights, expected.weights)
    np.testing.assert_array_equal(actual.context, expected.context)
    # else the choice would show nothing
    with pytest.raises(pytest.fail.Exception, match="has no weights"):
        look["auto"](query, source, CAUSAL, valid)
    for kernel in ("blockwise", "xla"):
        words = (
            rf"kernel {kernel!r} never has the weights that are asked for; kernel='plain' and"
            r" kernel='auto' do"
        )
        with pytest.raises(UserError, match=f"MultiHead: {words}"):
            module = cases.make("multihead", {"heads": 3, "kernel": kernel})
            module.apply({"params": params}, query, source, weights=True)
        with pytest.raises(UserError, match=f"slot.kernel: {words}"):
            SLOT.check(MultiHead, "slot", {"kernel": kernel})
        Need(role="cross").check(MultiHead, "slot", {"kernel": kernel})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("linformer", {}),
        ("multi_step", {"looks": "linformer"}),
        ("performer", {}),
        ("none", {}),
    ],
)
def test_where_there_are_none_a_look_that_asks_for_them_gives_none(
    name: str, config: dict[str, Any]
) -> None:
    module, x = cases.make(name, config), jnp.zeros((1, 3, cases.WIDTH))
    look = lambda key: module.init_with_output(key, x, x, weights=True)[0]
    assert jax.eval_shape(look, jax.random.key(0)).weights is None


@pytest.mark.parametrize("name", ["linformer", "linear", "performer", "none"])
def test_a_history_may_be_given_to_a_look_that_does_not_need_it(name: str) -> None:
    module, x = cases.make(name, {}), jnp.zeros((1, 3, cases.WIDTH))

    def look(module: Any, **history: Any) -> Any:
        return module.read(x, module.remember(x), **history).context

    run = nn.init_with_output(look, module)
    given, without = (run(jax.random.key(0), **named)[0] for named in ({"history": ()}, {}))
    np.testing.assert_array_equal(given, without)


class Older(Single):
    """Written before weights could be asked for."""

    def read(self, query: Any, memory: Any, view: Any = EVERYTHING) -> Reading:
        return super().read(query, memory, view)


class Implied(MultiHead):
    """Says that its maps are only effective."""

    capabilities = Capabilities(maps="effective")


class Starred(Single):
    """Hands on whatever it is given."""

    def read(self, *given: Any, **named: Any) -> Reading:
        return super().read(*given, **named)


@pytest.mark.quick
def test_a_slot_that_needs_weights_takes_whatever_hands_them_out() -> None:
    for name in MECHANISMS.names():
        mechanism = MECHANISMS.resolve(name)
        assert hands_out_weights(mechanism) == (mechanism.capabilities.maps == "exact")
        if hands_out_weights(mechanism):
            dataclasses.replace(SLOT, **cases.own_place(mechanism)).check(mechanism, "slot")
    SLOT.check(Starred, "slot")
    refused = "slot{}: {} does not support weights as a result"
    for mechanism, chosen, words in (
        (Older, {}, refused.format("", "Older") + "; give its `read` an argument `weights`"),
        (
            Implied,
            {},
            refused.format("", "Implied") + "; its maps are 'effective', choose .* 'exact'",
        ),
        (MultiStep, {"looks": Older}, refused.format(".looks", "Older")),
    ):
        with pytest.raises(UserError, match=words) as caught:
            SLOT.check(mechanism, "slot", chosen)
        assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_what_weights_may_sum_to_is_part_of_the_need() -> None:
    """A distribution over the source wants rows that sum to one; what a recurrence takes up again,
    rows of at most one.
    """
    one, less = Need(role="cross", weights="distribution"), Need(role="cross", values="unprojected")
    for name in ("single", "multihead", "hops", "multi_step"):
        one.check(MECHANISMS.resolve(name), "slot")
    added: dict[str, Any] = {"looks": {"name": "single", "alignment": "sigmoid"}}
    plus_one = {"alignment": "softmax_plus_one"}
    for need, mechanism, chosen, name, sums in (
        (one, "differential", {}, "Differential", "anything, here they must sum to one"),
        (one, "multihead", {"alignment": "sigmoid"}, "MultiHead", "anything, .* to one"),
        (less, "single", {"alignment": "sigmoid"}, "Single", "anything, .* to at most one"),
        (one, "single", plus_one, "Single", "at most one, here they must sum to one"),
        (one, "multi_step", added, "Single", "anything, here they must sum to one"),
    ):
        actual = MECHANISMS.resolve(mechanism)
        words = f"slot.*: the weights of {name} sum to {sums}; choose"
        with pytest.raises(UserError, match=words) as caught:
            need.check(actual, "slot", chosen)
        assert "\n" not in str(caught.value)
        Need(role="cross").check(actual, "slot", chosen)
    less.check(MECHANISMS.resolve("single"), "slot", plus_one)


def test_what_is_not_called_any_more_is_refused_where_it_is_overridden() -> None:
    with pytest.raises(UserError, match=r"Old.key_value is not called any more; override arrays"):
        type("Old", (MultiHead,), {"key_value": None})
