"""Rules of visibility in the Transformer, by config: maps show the rule, decoding keeps to it, misfits
are named.
"""

import numpy as np
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import MAPS, Capabilities
from attnlab.attention.view import View
from attnlab.attention.visibility import VISIBILITIES
from attnlab.config.registry import made
from attnlab.data.vocabulary import PAD
from tests.systems.checks import SPECS, batch, check_cached_decoding, prepared
from tests.test_lengths import check, check_refused

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
    check_cached_decoding(RULED)


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
