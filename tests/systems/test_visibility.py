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

WINDOW = {"name": "window", "width": 2}
FIRST, STRIDE = {"name": "first", "length": 1}, {"name": "stride", "stride": 2}
JOINED = {"name": "any_of", "one": WINDOW, "other": FIRST}
PARTED = {"name": "per_head", "one": WINDOW, "other": STRIDE, "heads": 2}
BIGBIRD = {"name": "bigbird", "length": 6, "block": 1, "random": 1, "heads": 2}
FIXED = {"name": "fixed", "stride": 2, "summary": 1}
RULES: dict[str, tuple[Any, Any]] = {
    "longformer and a window": ({"name": "longformer", "window": 2, "tokens": (0,)}, WINDOW),
    "bigbird and a join": (BIGBIRD, JOINED),
    "strided and fixed": ({"name": "strided", "stride": 2}, FIXED),
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


def built(*overrides: str) -> Any:
    changes = [f"system.{one}" for one in overrides]
    return build_system(configs.load("configs/translation.py:transformer", changes), 8, 8)


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
    with pytest.raises(UserError, match=words) as caught:
        built(*(f"{side}_{one}" for one in overrides.split()))
    assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_what_only_honours_causal_goes_with_causal_rules() -> None:
    attentions = [f"{slot}_attention={HERE}OnlyCausal" for slot in ("encoder", "decoder")]
    assert built(*attentions, "encoder_visibility=causal")
