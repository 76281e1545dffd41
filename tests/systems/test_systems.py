"""All systems, with several mechanisms in their slots: the promises of `checks.py`, learning, maps,
named refusals.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from tests.rounding import assert_close
from tests.systems.checks import (
    CHECKS,
    SPECS,
    VOCABULARY,
    batch,
    check_dropout,
    check_learning,
    check_maps,
    make,
    passed,
    prepared,
)
from tests.systems.oracles.parts import in_layer

LOOKING = [
    *("luong", "gnmt", "rnnsearch", "rnnsearch-multihead", "cgru", "pointer_generator"),
    *("pointer_generator-heads", "convs2s", "lstmn_seq2seq", "transformer"),
    *("transformer-by-layer", "transformer-bart"),
]
"""Every system with attention, and what changes its maps: heads, and layers without a look."""
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
    "transformer": {"width": 32, "hidden": 64, "layers": 1},
}


ESSENTIAL = {(name, "causality") for name in ("rnn_encoder_decoder", "rnnsearch", "transformer")}
COMPARED = (
    *("rnnsearch-previous", "rnnsearch-released", "pointer_generator-uncovered"),
    *("transformer-by-layer", "transformer-t5", "transformer-bart"),
)
"""Of these test_oracles.py compares the logits of padded sentences with those of a loop over words
that sees neither padding nor a later word."""
PROMISES = [
    pytest.param(
        spec,
        check,
        id=f"{promise}-{name}",
        marks=[pytest.mark.quick] if (name, promise) in ESSENTIAL else [],
    )
    for name, spec in SPECS.items()
    for promise, check in CHECKS.items()
    if not (name in COMPARED and promise in ("causality", "padding"))
]


@pytest.mark.parametrize(("spec", "check"), PROMISES)
def test_promise(spec: dict[str, Any], check: Any) -> None:
    check(spec)


@pytest.mark.parametrize("name", {spec["name"]: None for spec in SPECS.values()})
def test_a_source_of_one_word_is_read_as_beside_longer_ones(name: str) -> None:
    spec = next(spec for spec in SPECS.values() if spec["name"] == name)
    source, target = batch()
    alone = prepared(spec)[0](source[2:3, :1], target[2:3])
    assert_close(alone[0], passed(spec, target)[1][2], eps=8)


def _attentions(spec: dict[str, Any]) -> int:
    """Of a Transformer, in all its layers."""
    counts = {slot: spec.get("layers", 0) for slot in ("encoder", "decoder", "cross")}
    if spec.get("decoder_layers"):
        counts |= dict.fromkeys(("decoder", "cross"), spec["decoder_layers"])
    return sum(
        in_layer(spec, layer)[f"{slot}_attention"]["name"] != "none"
        for slot, count in counts.items()
        for layer in range(count)
    )


def test_every_system_that_looks_is_asked_for_its_maps() -> None:
    looks = {spec["name"] for spec in SPECS.values() if SYSTEMS.resolve(spec["name"]).needs}
    assert looks == {SPECS[name]["name"] for name in LOOKING}


@pytest.mark.parametrize("name", LOOKING)
def test_maps_of_every_layer_and_head_and_the_same_in_decoding(name: str) -> None:
    spec = SPECS[name]
    match spec["name"]:
        case "transformer":
            several = _attentions(spec)
        case "convs2s":
            several = spec.get("decoder_layers", 0)
        case "lstmn_seq2seq":
            several = 3
        case _:
            several = 1
    check_maps(spec, several)


@pytest.mark.parametrize("name", LARGER)
def test_eight_pairs_can_be_learnt_by_heart(name: str) -> None:
    check_learning(SPECS[name] | LARGER[name])


def test_published_start_of_rnnsearch_is_uniform_attention() -> None:
    system, (source, target) = make(SPECS["rnnsearch"]), batch()

    @jax.jit
    def started(key: Any) -> Any:
        params = system.init(key, source, target)["params"]
        return system.apply({"params": params}, source, target, mutable=[MAPS])

    _, collected = started(jax.random.key(0, impl="rbg"))  # whose programs are small
    weights = np.asarray(system.maps(collected[MAPS])["attention"].weights)[:, 0]  # type: ignore[index]
    for row, length in enumerate((6, 3, 1)):
        np.testing.assert_allclose(weights[row, :, :length], 1 / length, atol=1e-7)


def test_parameter_count_of_the_published_base_model() -> None:
    one = {"name": "multihead", "heads": 8}
    spec = {
        "name": "transformer",
        "width": 512,
        "layers": 6,
        "hidden": 2048,
        "norm": "post",
        "positions": {"name": "sinusoidal"},
    }
    from ml_collections import ConfigDict

    from attnlab.config.registry import build

    factory = build(
        SYSTEMS,
        ConfigDict(spec | {f"{slot}_attention": one for slot in ("encoder", "decoder", "cross")}),
        "system",
    )
    system = factory(source_vocabulary=37000, target_vocabulary=37000)
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    shapes = jax.eval_shape(system.init, jax.random.key(0), ids, ids)["params"]
    count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    attention, feed_forward, norm = 4 * 512 * 512, 2 * 512 * 2048 + 2048 + 512, 2 * 512
    assert count == 37000 * 512 + 6 * (attention + feed_forward + 2 * norm) + 6 * (
        2 * attention + feed_forward + 3 * norm
    )
    assert 62e6 < count < 64e6  # "63M computed"


@pytest.mark.quick
def test_sizes_that_do_not_fit_are_named() -> None:
    source, target = batch()
    for change, words in (
        ({"width": 9, "share": "none"}, "width=9.*heads=2"),
        ({"share": "all"}, "share='all'"),
    ):
        spec = SPECS["transformer"] | change
        from ml_collections import ConfigDict

        from attnlab.config.registry import build

        system = build(SYSTEMS, ConfigDict(spec), "system")(
            source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY + 1
        )
        with pytest.raises(UserError, match=words):
            system.init(jax.random.key(0), source, target)


@pytest.mark.parametrize("name", LARGER)
def test_dropout_acts_only_with_its_stream(name: str) -> None:
    check_dropout(SPECS[name] | ({"layers": 1} if name == "transformer" else {}))
