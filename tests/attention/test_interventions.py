"""Changes at the places of every mechanism and mixer, and of systems with loops."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.interventions import Change, intervene
from attnlab.attention.protocol import Attention
from attnlab.attention.view import EVERYTHING
from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from tests.attention.cases import SETTINGS, causally, inputs, make, parameters
from tests.rounding import assert_close
from tests.systems import checks, language_models, tiny

HALVES = ("retention", "gated_linear", "mlstm", "ttt_linear", "ttt_mlp")
FITTING: dict[str, dict[str, Any]] = {
    **{name: {"heads": 2} for name in HALVES},
    **{name: {"heads": 3} for name in ("gated_delta_net", "gated_delta_product")},
    "mamba": {"head_width": 6, "state": 4},
}
# without heads side by side: mixers, mechanisms
WHOLE = {"recurrent", "convolution", "average", "fourier", "none"}
WHOLE |= {"single", "key_value", "key_value_predict"}
# that do not compute their weights as one array: mixers, mechanisms
MIXED = {"average", "fourier", "longformer", "nystrom", "reformer", "performer"}
MIXED |= {"native_sparse", "linear", "linformer"}
NAMES = [name for name in MIXERS.names() if name != "by_layer"]  # it is one of two others


@pytest.mark.parametrize("name", NAMES)
def test_all_mixers_take_gates_of_heads_or_say_that_they_have_none(name: str) -> None:
    module = make(name, FITTING.get(name) or SETTINGS.get(name, [{}])[0])
    params, (query, source, valid) = parameters(module), inputs()
    places: dict[str, Any] = {}

    def run(changes: Any, params: Any = params) -> Any:
        with intervene(changes, weights=True) as seen:
            y = mixed(params)
        places.update(seen.places)
        return y, seen.values

    def mixed(params: Any) -> Any:
        if isinstance(module, Attention):
            return module.apply({"params": params}, query, source, EVERYTHING, valid).context
        return module.apply({"params": params}, query, causally(module), method="mix")[0]

    jax.eval_shape(run, {})
    class_name, heads = type(module).__name__, "looks/heads" if name == "multi_step" else "heads"
    assert (heads not in places) == (name in WHOLE)
    exact = [place.name for place in places.values() if place.kind == "weights"]
    assert bool(exact) == (module.capabilities.maps == "exact" and name not in MIXED)
    for kind, words, lacks in (
        ("heads", "has no heads side by side", name in WHOLE),
        ("weights", "does not compute its attention weights", not exact),
    ):
        if lacks:
            with pytest.raises(UserError, match=f"^{kind}: {class_name} {words}"):
                jax.eval_shape(run, {kind: Change(0.0)})

    @jax.jit
    def outputs(params: Any, cut: Any) -> Any:
        plain, values = run({}, params)
        same = {place: Change(0.0, values[place]) for place in exact}
        gate = {} if heads not in places else {heads: Change(np.arange(places[heads].heads) > 0)}
        filled = run({"layer": Change(0.0, 3.0)}, params)[0]
        return plain, mixed(params), run(same, params)[0], filled, run(gate, params)[0], mixed(cut)

    cut = jax.tree.map(np.copy, params)
    if heads == "heads" and heads in places:  # the steps of multi_step are places of their own
        kernel = cut["out"]["kernel"]
        kernel[: len(kernel) // places["heads"].heads] = 0
    plain, outside, same, filled, off, without = outputs(params, cut)
    for other in (outside, same):
        assert_close(other, plain, eps=64)
    np.testing.assert_array_equal(filled, np.full(plain.shape, 3.0))
    if heads in places:
        assert (np.asarray(off) != np.asarray(plain)).any()
    if heads == "heads" and heads in places:
        assert_close(off, without, eps=64)


def test_uniform_weights_are_means_over_the_keys_that_are_seen() -> None:
    module = make("multihead", {"heads": 3})
    params, (query, source, valid) = parameters(module), inputs()
    with intervene({"weights": Change(0.0, uniform=1.0)}):
        actual = module.apply({"params": params}, query, source, EVERYTHING, valid).context
    wide = jax.tree.map(np.float64, params)
    values = np.float64(source) @ wide["w_value"]["kernel"]
    means = np.stack([row[real].mean(axis=0) for row, real in zip(values, valid, strict=True)])
    expected = (means @ wide["out"]["kernel"])[:, None]
    assert_close(actual, np.broadcast_to(expected, actual.shape), eps=32)


def test_changes_inside_others_add_up() -> None:
    """Weights that an outer pass makes uniform stay so, whatever an inner one changes."""
    module = make("multihead", {"heads": 3})
    params, (query, source, valid) = parameters(module), inputs()
    apart = {"weights": Change(0.0, uniform=1.0)}, {"heads": Change(np.array([0.0, 1.0, 2.0]))}

    def context(*changes: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for change in changes:
                stack.enter_context(intervene(change))
            return module.apply({"params": params}, query, source, EVERYTHING, valid).context

    together = context({**apart[0], **apart[1]})
    assert_close(context(*apart), together, eps=32)
    assert_close(context(*apart[::-1]), together, eps=32)


def test_a_loop_over_layers_is_written_out_inside_alone() -> None:
    spec = {**language_models.SPECS["decoder"], "layers": 3}
    plain, scanned = tiny.make(spec), tiny.make({**spec, "scan": True})
    params, tokens = language_models.parameters(plain), language_models.batch()
    gates = {"layer_1/attention/heads": Change(np.array([0.0, 2.0]))}

    def run(system: Any, changes: Any) -> Any:
        with intervene(changes):
            return system.apply({"params": params}, tokens)

    off = jax.jit(run, static_argnums=0)(plain, gates)
    np.testing.assert_array_equal(jax.jit(run, static_argnums=0)(scanned, gates), off)
    outside = lambda system: jax.jit(lambda: system.apply({"params": params}, tokens))
    before = outside(plain)()
    assert not np.allclose(off, before)
    np.testing.assert_array_equal(jax.jit(run, static_argnums=0)(plain, {}), before)
    assert " scan[" in str(jax.make_jaxpr(outside(scanned))())
    assert " scan[" not in str(jax.make_jaxpr(lambda: run(scanned, {}))())


@pytest.mark.parametrize("name", ["rnnsearch-multihead", "lstmn_seq2seq"])
def test_steps_of_a_loop_over_time_share_a_change(name: str) -> None:
    system = tiny.make(checks.SPECS[name])
    tokens = np.array([[4, 5, 6, 2], [5, 4, 2, 0]], np.int32)
    params = tiny.drawn(system, tokens, tokens, rule=lambda _, noise: 2 * tiny.by_rows(noise))
    place: Any = None

    def energy(gate: Any) -> Any:
        nonlocal place
        with intervene({} if place is None else {place.name: Change(gate)}, weights=True) as seen:
            logits = system.apply({"params": params}, tokens, tokens)
        place = next(x for x in seen.places.values() if x.kind == "layer")
        assert place.stepwise and place.name not in seen.values
        return jnp.square(logits).sum()

    jax.eval_shape(energy, 1.0)
    words = rf"{place.name}: an array \[2, 1, 4\] does not fit \[2, 1, 1,"
    with pytest.raises(UserError, match=words):
        jax.eval_shape(energy, jnp.ones((2, 1, 4)))
    params = tiny.wide(params)
    with jax.enable_x64(True):
        value = jax.jit(jax.value_and_grad(energy))
        (above, _), (below, _), (_, slope) = jax.device_get([value(x) for x in (1.001, 0.999, 1.0)])
    assert slope == pytest.approx((above - below) / 0.002, rel=1e-5) and abs(slope) > 1e-3


def test_mistakes_are_told_in_one_line() -> None:
    system = tiny.make(language_models.SPECS["decoder"])
    params, tokens = language_models.parameters(system), language_models.batch()
    for name, change, words in (
        (
            "layer_0/attention/head",
            Change(),
            "no such place in this pass; did you mean 'layer_0/attention/heads'",
        ),
        (
            "layer_0/attention/heads",
            Change(uniform=1.0),
            "only weights can be made uniform, not heads",
        ),
        (
            "layer_0/attention/heads",
            Change(np.ones(3)),
            r"an array \[3\] does not fit \[4, 2, 6, 4\] there",
        ),
    ):
        with pytest.raises(UserError, match=f"{name}: {words}"), intervene({name: change}):
            system.apply({"params": params}, tokens)
