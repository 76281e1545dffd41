"""All systems, with several mechanisms in their slots: the promises of `checks.py`, learning, maps, named refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.data.vocabulary import PAD
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from tests.systems.checks import CHECKS, SPECS, VOCABULARY, batch, make, parameters, prepared

every = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
LOOKING = {name: spec for name, spec in SPECS.items() if SYSTEMS.resolve(spec["name"]).needs}  # the others have no attention
looking = pytest.mark.parametrize("spec", LOOKING.values(), ids=LOOKING.keys())
LARGER = {
    "seq2seq": {"embedding": 24, "width": 48, "layers": 1},
    "luong": {"embedding": 24, "width": 24, "layers": 1},
    "gnmt": {"embedding": 24, "width": 48, "encoder_layers": 1},
    "rnn_encoder_decoder": {"embedding": 24, "encoder": 24, "decoder": 24},
    "rnnsearch": {"embedding": 24, "encoder": 24, "decoder": 24},
    "cgru": {"embedding": 24, "encoder": 24, "decoder": 24, "readout": 24},
    "pointer_generator": {"embedding": 24, "encoder": 24, "decoder": 48, "readout": 24},
    "rctm": {"width": 64},
    "convs2s": {"embedding": 24, "width": 24},
    "lstmn_seq2seq": {"embedding": 24, "width": 24},
    "transformer": {"width": 32, "hidden": 64},
}


ESSENTIAL = {(name, "causality") for name in ("rnn_encoder_decoder", "rnnsearch", "transformer")}
PROMISES = [
    pytest.param(spec, check, id=f"{promise}-{name}", marks=[pytest.mark.quick] if (name, promise) in ESSENTIAL else [])
    for name, spec in SPECS.items()
    for promise, check in CHECKS.items()
]


@pytest.mark.parametrize(("spec", "check"), PROMISES)
def test_promise(spec: dict[str, Any], check: Any) -> None:
    check(spec)


@looking
def test_maps_of_every_layer_and_head_and_the_same_in_decoding(spec: dict[str, Any]) -> None:
    call, system = prepared(spec)
    source, target = batch()
    logits, collected = call(source, target, mutable=[MAPS])
    np.testing.assert_array_equal(logits, call(source, target))
    maps = system.maps(collected[MAPS])
    several = {"transformer": 3 * spec.get("layers", 0), "convs2s": spec.get("decoder_layers", 0), "lstmn_seq2seq": 3}
    assert len(maps) == several.get(spec["name"], 1)
    lengths = {"source": 6, "target": 5, "target_in": 5}
    for one in maps.values():
        assert one.weights.shape[2:] == (lengths[one.query], lengths[one.key])
        own_past = spec["name"] == "lstmn_seq2seq" and one.query == one.key  # shown without the slot before the first word
        if not own_past:
            np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-6)
    alignment = system.alignment(maps)
    assert (np.asarray(alignment)[np.broadcast_to((source == PAD)[:, None], alignment.shape)] == 0.0).all()
    memory = call(source, method="encode")
    state = call(memory, 5, method="start")
    for t in range(5):
        (_, state), collected = call(state, memory, target[:, t], method="step", mutable=[MAPS])
        np.testing.assert_allclose(system.alignment(system.maps(collected[MAPS]))[:, 0], alignment[:, t], atol=2e-6)


@pytest.mark.parametrize("name", LARGER)
def test_eight_pairs_can_be_learnt_by_heart(name: str) -> None:
    system = make(SPECS[name] | LARGER[name])
    rng = np.random.default_rng(0)
    source, target = rng.integers(4, VOCABULARY, (8, 6)), rng.integers(4, VOCABULARY, (8, 5))
    target_in = np.pad(target, ((0, 0), (1, 0)), constant_values=1)[:, :-1]
    params = jax.jit(system.init)(jax.random.key(0), source, target_in)["params"]
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 250))  # at a constant pace the last loss would be a matter of rounding

    @jax.jit
    def update(carry: Any, _: None = None) -> tuple[Any, jax.Array]:
        params, state = carry

        def loss(params: Any) -> jax.Array:
            logits = system.apply({"params": params}, source, target_in)
            return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    _, losses = jax.jit(lambda carry: jax.lax.scan(update, carry, length=250))((params, optimizer.init(params)))
    assert -0.3 < float(losses[0]) - np.log(VOCABULARY) < 1.5  # about chance at first: no target leaks in (tied tables start above it)
    assert losses[-1] < 0.01, losses[-1]


@every
def test_every_parameter_gets_a_gradient(spec: dict[str, Any]) -> None:
    system, (source, target) = make(spec), batch()
    grads = jax.grad(lambda params: (system.apply({"params": params}, source, target) ** 2).sum())(parameters(system))  # type: ignore[operator]
    silent = [jax.tree_util.keystr(path) for path, grad in jax.tree_util.tree_leaves_with_path(grads) if not np.abs(grad).max() > 1e-9]
    # A key's bias shifts all scores of a row alike; softmax does not see it.
    assert [path for path in silent if "w_key']['bias" not in path] == []


def test_published_start_of_rnnsearch_is_uniform_attention() -> None:
    system, (source, target) = make(SPECS["rnnsearch"]), batch()
    params = system.init(jax.random.key(0), source, target)["params"]
    _, collected = system.apply({"params": params}, source, target, mutable=[MAPS])
    weights = np.asarray(system.maps(collected[MAPS])["search"].weights)[:, 0]  # type: ignore[index]
    for row, length in enumerate((6, 3, 1)):
        np.testing.assert_allclose(weights[row, :, :length], 1 / length, atol=1e-7)


def test_parameter_count_of_the_published_base_model() -> None:
    one = {"name": "multihead", "heads": 8}
    spec = {"name": "transformer", "width": 512, "layers": 6, "hidden": 2048, "norm": "post", "positions": {"name": "sinusoidal"}}
    from ml_collections import ConfigDict

    from attnlab.registry import build

    factory = build(SYSTEMS, ConfigDict(spec | {f"{slot}_attention": one for slot in ("encoder", "decoder", "cross")}), "system")
    system = factory(source_vocabulary=37000, target_vocabulary=37000)
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    shapes = jax.eval_shape(system.init, jax.random.key(0), ids, ids)["params"]
    count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    attention, feed_forward, norm = 4 * 512 * 512, 2 * 512 * 2048 + 2048 + 512, 2 * 512
    assert count == 37000 * 512 + 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert 62e6 < count < 64e6  # "63M computed"


@pytest.mark.quick
def test_sizes_that_do_not_fit_are_named() -> None:
    source, target = batch()
    for change, words in (({"width": 9, "share": "none"}, "width=9.*heads=2"), ({"share": "all"}, "share='all'")):
        spec = SPECS["transformer"] | change
        from ml_collections import ConfigDict

        from attnlab.registry import build

        system = build(SYSTEMS, ConfigDict(spec), "system")(source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY + 1)
        with pytest.raises(UserError, match=words):
            system.init(jax.random.key(0), source, target)


def test_dropout_acts_only_with_its_stream() -> None:
    for name in LARGER:
        system, (source, target) = make(SPECS[name] | {"dropout": 0.5}), batch()
        variables = {"params": parameters(system)}
        quiet = system.apply(variables, source, target)
        np.testing.assert_array_equal(quiet, make(SPECS[name]).apply(variables, source, target))
        one, two = (system.apply(variables, source, target, rngs={"dropout": jax.random.key(k)}) for k in (0, 1))
        assert np.abs(one - two).max() > 1e-3  # type: ignore[operator]
