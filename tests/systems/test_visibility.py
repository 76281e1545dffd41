"""Rules of visibility in the Transformer, by config: the promises of every system hold, maps show
the rule, misfits are named.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlab import config as configs
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import MAPS, Capabilities
from attnlab.attention.view import View
from attnlab.attention.visibility import VISIBILITIES
from attnlab.config.registry import made
from attnlab.data.vocabulary import PAD
from attnlab.errors import UserError
from attnlab.tasks.pairs import build_system
from tests.systems.checks import CHECKS, SPECS, batch, prepared
from tests.systems.tiny import seldom

JOINED = {
    "name": "any_of",
    "one": {"name": "window", "width": 2},
    "other": {"name": "first", "length": 1},
}
PARTED = {
    "name": "per_head",
    "one": {"name": "window", "width": 2},
    "other": {"name": "stride", "stride": 2},
    "heads": 2,
}
RULES: dict[str, tuple[Any, Any]] = {
    "longformer and a window": (
        {"name": "longformer", "window": 2, "tokens": (0,)},
        {"name": "window", "width": 2},
    ),
    "bigbird and a join": (
        {"name": "bigbird", "length": 6, "block": 1, "random": 1, "heads": 2},
        JOINED,
    ),
    "strided and fixed": (
        {"name": "strided", "stride": 2},
        {"name": "fixed", "stride": 2, "summary": 1},
    ),
    "heads apart": (PARTED, PARTED),
}


def spec_of(encoder: Any, decoder: Any) -> dict[str, Any]:
    return {**SPECS["transformer"], "encoder_visibility": encoder, "decoder_visibility": decoder}


@pytest.mark.parametrize("name", seldom(RULES, "heads apart"))
def test_maps_show_exactly_the_rule(name: str) -> None:
    rules = RULES[name]
    layers = 1 if name == "heads apart" else 2
    call, system = prepared({**spec_of(*rules), "layers": layers})
    source, target = batch()
    _, collected = call(source, target, mutable=[MAPS])
    maps = system.maps(collected[MAPS])
    for side, node, length in (("encoder", rules[0], 6), ("decoder", rules[1], 5)):
        seen = np.asarray(View(made(VISIBILITIES, node)()).mask(length, length, length))
        wanted = (
            seen & (source != PAD)[:, None, None]
            if side == "encoder"
            else seen & np.tril(np.ones((length, length), bool))
        )
        for layer in range(layers):
            weights = np.asarray(maps[f"{side}_{layer}/self_attention"].weights)
            np.testing.assert_array_equal(weights > 0, np.broadcast_to(wanted, weights.shape))


@pytest.mark.parametrize("promise", seldom(CHECKS, "cached decoding"))
def test_promises_hold_under_a_rule(promise: str) -> None:
    """Among them: feeding one token at a time gives the logits of the full pass."""
    CHECKS[promise]({**spec_of(*RULES["bigbird and a join"]), "layers": 1})


class OnlyCausal(MultiHead):
    """Sees all or the past, nothing between."""

    capabilities = Capabilities(dense=False)


class Forward(MultiHead):
    """Has no causal form."""

    capabilities = Capabilities(directions=frozenset({"bidirectional"}))


HERE = f"{__name__}:"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            [f"decoder_attention={HERE}OnlyCausal", "decoder_visibility=window"],
            "OnlyCausal does not support a visibility of its own",
        ),
        (
            [f"encoder_attention={HERE}OnlyCausal", "encoder_visibility=longformer"],
            "encoder_attention=.*choose 'full' or a mechanism with",
        ),
        (
            [f"encoder_attention={HERE}Forward", "encoder_visibility=causal"],
            "does not support the direction 'causal'",
        ),
        (
            ["encoder_attention.alignment=local_p", "encoder_visibility=causal"],
            "encoder_attention.*the future",
        ),
        (
            ["encoder_visibility=bigbird", "encoder_visibility.heads=3"],
            "MultiHead does not support a visibility of 3 heads; it has 4",
        ),
        (
            ["decoder_visibility=window", "decoder_visibility.width=0"],
            "config.system.decoder_visibility.width=0: expected a whole number",
        ),
        (
            ["decoder_visibility=longformer", "decoder_visibility.window=5"],
            "longformer: window=5 is to be halved",
        ),
        (
            ["decoder_visibility=attnlab.errors:nearest"],
            "the function nearest .*has the field .word. without a default",
        ),
        (
            ["decoder_visibility=fractions:Fraction"],
            "a visibility must be a Rule; Fraction makes a Fraction",
        ),
    ],
)
def test_misfits_are_one_line(overrides: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        build_system(
            configs.load(
                "configs/translation.py:transformer", [f"system.{one}" for one in overrides]
            ),
            8,
            8,
        )
    assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_what_only_honours_causal_goes_with_causal_rules() -> None:
    attentions = [f"system.{slot}_attention={HERE}OnlyCausal" for slot in ("encoder", "decoder")]
    assert build_system(
        configs.load(
            "configs/translation.py:transformer", [*attentions, "system.encoder_visibility=causal"]
        ),
        8,
        8,
    )
