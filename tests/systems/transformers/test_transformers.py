"""Transformers: where dropout is, and how their layers are run; what share_positions shares, and a decoder
that leaks; and rules of visibility by config: maps show the rule, decoding keeps to it, misfits are named.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import MAPS, Capabilities
from attnlab.attention.view import View
from attnlab.attention.visibility import VISIBILITIES
from attnlab.config.registry import made
from attnlab.data.vocabulary import PAD
from attnlab.systems.protocol import LanguageModel
from attnlab.systems.transformers import loops
from attnlab.training.updates import first_params
from tests.systems.checks import CHECKS, SPECS, batch, make, parameters, prepared
from tests.systems.test_parameters import drawn
from tests.systems.tiny import seldom
from tests.test_lengths import check, check_refused

DECODER: dict[str, Any] = {
    **{"name": "decoder", "width": 8, "layers": 4, "hidden": 12, "dropout": 0.0},
    **{"positions": {"name": "sinusoidal"}, "attention": {"name": "multihead", "heads": 2}},
}
TOKENS = jnp.asarray([[1, 2, 3, 4, 5], [3, 2, 6, 0, 0]])


def decoder(**changes: Any) -> Any:
    return make({**DECODER, **changes})


@pytest.mark.parametrize(
    ("changes", "random"),
    [
        ({"dropout": 0.5}, True),
        ({"dropout": 0.5, "embedding_dropout": 0.0, "hidden_dropout": 0.0}, True),
        ({"embedding_dropout": 0.5}, True),
        ({"hidden_dropout": 0.5}, True),
        ({"hidden_dropout": 0.5, "feed_forward": "none"}, False),
        ({"dropout": 0.5, "embedding_dropout": 0.0, "feed_forward": "none"}, False),
        ({"attention": {"name": "multihead", "heads": 2, "dropout": 0.5}}, True),
    ],
)
def test_each_place_has_its_dropout(changes: dict[str, Any], random: bool) -> None:
    if changes.get("feed_forward"):
        changes = {**changes, "attention": {"name": "none"}}
    system = decoder(**{"layers": 1, **changes})
    params = jax.eval_shape(system.init, jax.random.key(0), TOKENS)
    run = lambda params, key: system.apply(params, TOKENS, rngs={"dropout": key})
    assert bool(drawn(jax.make_jaxpr(run)(params, jax.random.key(0)).jaxpr)) == random


SOME = {"name": "by_layer", "one": {"name": "multihead", "heads": 2}, "other": {"name": "none"}}
HYBRID = {**SOME, "other": {"name": "recurrent"}, "pattern": ("one", "other", "other")}


def sharing(positions: str) -> dict[str, Any]:
    """Two stacks, each with one table of positions for all its layers."""
    heads = {"name": "multihead", "heads": 2, "positions": {"name": positions}}
    looks = {"encoder_attention": heads, "decoder_attention": heads}
    return {**SPECS["transformer-t5"], "dropout": 0.0, "layers": 4, **looks}


LOOPS: dict[str, dict[str, Any]] = {
    "alike": DECODER,
    "periods": {**DECODER, "attention": SOME},
    "periods-and-a-rest": {**DECODER, "attention": HYBRID, "layers": 7},
    "window": {
        **{**DECODER, "layers": 2},
        "visibility": {"name": "by_layer", "one": "full", "other": "window"},
    },
    "two-stacks": {**SPECS["transformer-by-layer"], "layers": 4},
    "shared-t5": sharing("t5"),
    "shared-alibi": sharing("alibi"),
}
SCAN, REMAT = {"scan": True}, {"remat": True}
BOTH = SCAN | REMAT
RUNS = [
    *(("alike", SCAN), ("alike", REMAT), ("alike", BOTH), ("periods", BOTH)),
    *(("periods-and-a-rest", SCAN), ("periods-and-a-rest", REMAT), ("window", BOTH)),
    *(("two-stacks", BOTH), ("shared-t5", SCAN), ("shared-t5", BOTH), ("shared-alibi", BOTH)),
]


@pytest.mark.parametrize(("case", "run"), seldom(RUNS, ("periods", BOTH), ("window", BOTH)))
def test_loops_compute_the_same_and_keep_parameters(case: str, run: dict[str, bool]) -> None:
    """Values and gradients are those of layers written out. A stack is one loop, which gets a table
    that its layers share once, not once for each layer.
    """
    params, one, slope = _plain(case)
    other = make({**LOOPS[case], **run})
    jax.tree.map(np.testing.assert_array_equal, params, _parameters(other))
    two, slope_two = _slope(other, params)
    np.testing.assert_allclose(one, two, rtol=1e-6)
    there = dict(jax.tree_util.tree_leaves_with_path(slope_two))
    for name, leaf in jax.tree_util.tree_leaves_with_path(slope):
        np.testing.assert_allclose(leaf, there[name], rtol=2e-5, atol=1e-6)
    if "shared" in case:
        text = str(jax.make_jaxpr(lambda params: _loss(other, params))(params))
        assert text.count("scan[") == 2
        assert "[4,32,2]" not in text.replace(" ", "")  # four tables of 32 buckets, 2 heads


@functools.cache
def _plain(case: str) -> Any:
    """Parameters, value and slope of layers that are written out; one for all ways to run them."""
    system = make(LOOPS[case])
    params = _parameters(system)
    return params, *_slope(system, params)


def _read(system: Any) -> tuple[Any, ...]:
    return (TOKENS,) if isinstance(system, LanguageModel) else batch()


def _parameters(system: Any) -> Any:
    return first_params(system.init, jax.random.key(0), *_read(system))


def _loss(system: Any, params: Any) -> jax.Array:
    return (system.apply(params, *_read(system)) ** 2).mean()


def _slope(system: Any, params: Any) -> Any:
    return jax.jit(jax.value_and_grad(lambda params: _loss(system, params)))(params)


def test_a_loop_is_a_loop_and_drops_by_layer() -> None:
    """The program has one loop, remat computes again, and each layer has a key of its own."""
    system = decoder(scan=True, hidden_dropout=0.5, layers=6)
    params = first_params(system.init, jax.random.key(0), TOKENS)
    text = str(jax.make_jaxpr(lambda params: system.apply(params, TOKENS))(params))
    assert text.count("scan[") == 1
    plain = decoder(layers=6)
    assert "scan[" not in str(jax.make_jaxpr(lambda params: plain.apply(params, TOKENS))(params))
    again = decoder(remat=True, layers=6)
    assert str(jax.make_jaxpr(lambda p: again.apply(p, TOKENS))(params)).count("remat") >= 6
    run = jax.jit(lambda key: system.apply(params, TOKENS, rngs={"dropout": key}))
    outs = [np.asarray(run(jax.random.key(seed))) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(outs[0], outs[1])
    assert np.any(outs[0] != outs[2])
    bound = system.bind(params, rngs={"dropout": jax.random.key(0)})
    assert len({str(key) for key in loops.keys_of(bound, 3)["dropout"]}) == 3


def test_maps_losses_and_pieces_are_not_lost_in_loops() -> None:
    system = decoder(scan=True)
    params = first_params(system.init, jax.random.key(0), TOKENS)

    @jax.jit
    def run(params: Any) -> Any:
        whole, collected = system.apply(params, TOKENS, mutable=[MAPS])
        state = system.apply(params, 2, 5, method="start")
        first, state = system.apply(params, state, TOKENS[:, :2], method="read")
        rest, _ = system.apply(params, state, TOKENS[:, 2:], method="read")
        return whole, collected, jnp.concatenate([first, rest], 1), system.apply(params, TOKENS)

    watched, collected, pieces, whole = run(params)
    assert len(system.maps(collected[MAPS])) == 4
    np.testing.assert_allclose(pieces[0], whole[0], atol=1e-5)
    np.testing.assert_allclose(watched, whole, atol=1e-5)


def test_one_table_of_positions_for_a_stack_or_one_for_each_layer() -> None:
    shared, alone = (
        parameters(make({**SPECS["transformer-t5"], "share_positions": share}))
        for share in (True, False)
    )
    assert {"encoder_positions", "decoder_positions"} <= set(shared)
    count = lambda params: sum(leaf.size for leaf in jax.tree.leaves(params))
    table = count(shared["encoder_positions"])
    assert table == 12 and count(alone) == count(shared) + 2 * table  # 4 tables instead of 2


@pytest.mark.parametrize("promise", seldom(CHECKS, "cached decoding"))
def test_a_mixer_that_is_no_attention_in_the_decoder(promise: str) -> None:
    """All that is promised of the Transformer holds: no look ahead, inert padding, stepwise
    decoding, rows of different lengths, ...
    """
    small = {"layers": 1, "share": "none"}  # untied: causality is told by the same program
    mixer = {"name": "convolution", "kernel": 2}
    check_promise = CHECKS[promise]
    check_promise({**SPECS["transformer"], **small, "decoder_attention": mixer})


CAUSAL = {**SPECS["transformer"], "layers": 1}
LEAKING = {**CAUSAL, "leaking": True}


def test_a_leaking_decoder_sees_no_padding_and_is_noted() -> None:
    (call, system), (source, target) = prepared(LEAKING), batch()
    padded = call(source, np.pad(target, ((0, 0), (0, 3))))
    np.testing.assert_allclose(padded[:, :5], call(source, target), atol=2e-6)
    (note,) = system.notes()
    assert "system.leaking=true: the decoder sees its targets" in note
    assert make(CAUSAL).notes() == []


@pytest.mark.full
def test_a_leaking_decoder_writes_as_a_causal_one_with_its_parameters() -> None:
    """Since nothing that is yet to be written can be seen."""
    (leaking, _), (causal, _) = prepared(LEAKING), prepared(CAUSAL)
    source, target = batch()
    memory = leaking(source, method="encode")
    state, actual = leaking(memory, 5, method="start"), []
    for t in range(5):
        logits, state = leaking(state, memory, target[:, t], method="step")
        actual.append(logits)
    np.testing.assert_allclose(np.stack(actual, 1), causal(source, target), atol=2e-6)


WINDOW = {"name": "window", "width": 2}
PARTED = {
    **{"name": "per_head", "heads": 2, "one": WINDOW},
    "other": {"name": "stride", "stride": 2},
}
RULED = {
    **{**SPECS["transformer"], "layers": 1},
    **{"encoder_visibility": PARTED, "decoder_visibility": PARTED},
}


def test_maps_show_exactly_the_rule() -> None:
    call, system = prepared(RULED)
    source, target = batch()
    maps = system.maps(call(source, target, mutable=[MAPS])[1][MAPS])
    for side, length in (("encoder", 6), ("decoder", 5)):
        seen = np.asarray(View(made(VISIBILITIES, PARTED)()).mask(length, length, length))
        expected = (
            seen & (source != PAD)[:, None, None]
            if side == "encoder"
            else seen & np.tril(np.ones((length, length), bool))
        )
        weights = np.asarray(maps[f"{side}_0/self_attention"].weights)
        np.testing.assert_array_equal(weights > 0, np.broadcast_to(expected, weights.shape))


def test_a_rule_goes_with_decoding_word_by_word() -> None:
    check_decoding = CHECKS["cached decoding"]
    check_decoding(RULED)


class OnlyCausal(MultiHead):
    """Sees all or the past, nothing between."""

    capabilities = Capabilities(dense=False)


class Forward(MultiHead):
    """Has no causal form."""

    capabilities = Capabilities(directions=frozenset({"bidirectional"}))


HERE = f"{__name__}:"


ONLY = f"attention={HERE}OnlyCausal"
MISFITS = {
    "encoder": {
        f"{ONLY} visibility=longformer": "encoder_attention=.*choose 'full' or a mechanism with",
        f"attention={HERE}Forward visibility=causal": "does not support the direction 'causal'",
        "attention.alignment=local_p visibility=causal": "encoder_attention.*the future",
        "visibility=bigbird visibility.heads=3": (
            "MultiHead does not support a visibility of 3 heads; it has 4"
        ),
    },
    "decoder": {
        f"{ONLY} visibility=window": "OnlyCausal does not support a visibility of its own",
        "visibility=window visibility.width=0": (
            "config.system.decoder_visibility.width=0: expected a whole number"
        ),
        "visibility=longformer visibility.window=5": "longformer: window=5 is to be halved",
        "visibility=attnlab.errors:nearest": (
            "the function nearest .*has the field .word. without a default"
        ),
        "visibility=fractions:Fraction": "a visibility must be a Rule; Fraction makes a Fraction",
    },
}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("side", "overrides", "words"),
    [(side, *case) for side, cases in MISFITS.items() for case in cases.items()],
)
def test_misfits_are_one_line(side: str, overrides: str, words: str) -> None:
    settings = [f"system.{side}_{one}" for one in overrides.split()]
    check_refused(" ".join(["translation.py:transformer", *settings]), words)


@pytest.mark.quick
def test_what_only_honours_causal_goes_with_causal_rules() -> None:
    attentions = " ".join(f"system.{slot}_{ONLY}" for slot in ("encoder", "decoder"))
    check(f"translation.py:transformer {attentions} system.encoder_visibility=causal")
