"""What a look hands out and carries on. Weights are a result, `read(..., weights=True)`, in a scan and in
cached decoding too, and slots ask for them only where they are handed out. Looks that depend on the looks
before have gradients through a loop; what cannot carry them on is refused.

That weights are the maps, and that their gradients are those of the oracles, is tested over all settings
in `test_conformance.py`; that looks give the same one after the other as all at once in `test_memories.py`.
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
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.errors import UserError
from tests.attention import cases
from tests.attention.test_memories import CAPACITY, LENGTH, Scanned
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


def test_inside_a_scan_with_gradients() -> None:
    module = cases.make("single", {"score": {"name": "coverage", "hidden": 5}})
    params, (query, source, valid) = cases.parameters(module), cases.inputs()

    def at_once(params: Any) -> Any:
        reading = module.apply({"params": params}, query, source, View(CAUSAL.rule, 2), valid)
        return (reading.context**2).sum()  # type: ignore[union-attr]

    def scanned(params: Any) -> Any:
        within = {"params": {"mechanism": params}}
        contexts, _ = Scanned(module).apply(within, query, source, valid, 2)  # type: ignore[misc]
        return (contexts**2).sum()

    both = [jax.jit(jax.value_and_grad(total))(params) for total in (at_once, scanned)]
    for leaf, same in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(leaf, same, rtol=1e-4, atol=1e-5)


CARRYING = Need(role="cross", stepwise=True, history=True)


@pytest.mark.quick
def test_what_cannot_carry_is_refused_by_name() -> None:
    talking, heads = (MECHANISMS.resolve(name) for name in ("talking_heads", "multihead"))
    for part in ({"score": "coverage"}, {"alignment": "temporal"}):
        CARRYING.check(heads, "slot", part)
        with pytest.raises(UserError, match=r"slot\.(score|alignment): .*TalkingHeads"):
            CARRYING.check(talking, "slot", part)
    for score in ("coverage", {"name": "soft_capped", "score": "location_aware"}):
        with pytest.raises(UserError, match="slot.score: .*nothing is carried on"):
            Need(role="cross", stepwise=True).check(heads, "slot", {"score": score})
        with pytest.raises(UserError, match="slot.kernel: kernel 'blockwise' never has looks"):
            CARRYING.check(heads, "slot", {"score": score, "kernel": "blockwise"})
    query, source, _ = cases.inputs()
    with pytest.raises(UserError, match="TalkingHeads: the score Coverage depends"):
        init = cases.make("talking_heads", {"heads": 3, "score": "coverage"}).init
        jax.eval_shape(init, jax.random.key(0), query, source)
    with pytest.raises(UserError, match="kernel 'blockwise' never has looks"):
        init = cases.make(
            "multihead", {"heads": 3, "score": "coverage", "kernel": "blockwise"}
        ).init
        jax.eval_shape(init, jax.random.key(0), query, source)


def test_a_capped_score_looks_back_as_the_one_inside() -> None:
    inside = {"name": "coverage", "hidden": 5}
    capped = {"score": {"name": "soft_capped", "cap": 1e4, "score": inside}}
    plain, (query, source, valid) = cases.make("single", {"score": inside}), cases.inputs()
    params = cases.parameters(plain)
    within = {"score": {"score": params["score"]}}

    @jax.jit
    def contexts() -> list[Any]:
        both = (plain, params), (cases.make("single", capped), within)
        looks = [one.apply({"params": of}, query, source, valid=valid) for one, of in both]
        return [look.context for look in looks]

    expected, actual = contexts()
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_padding_that_would_never_be_looked_at_divides_nothing_by_zero() -> None:
    """Its fertility is 0 in float32, and so are its weights."""
    module, (query, source, valid) = cases.make("single", {"score": "coverage"}), cases.inputs()
    params = cases.parameters(module)
    params["score"]["fertile"] = np.ones_like(params["score"]["fertile"])

    @jax.jit
    @jax.value_and_grad
    def total(params: Any, dirty: Any) -> Any:
        return (module.apply({"params": params}, query, dirty, valid=valid).context ** 2).sum()  # type: ignore[union-attr]

    for garbage in (1e4, -1e4):
        actual = total(params, np.where(valid[..., None], source, np.float32(garbage)))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(actual))
