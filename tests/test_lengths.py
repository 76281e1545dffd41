"""What cannot fit the sequences, the parts of a mechanism or the task is refused when the config is
checked, wherever it stands in it.
"""

import dataclasses
import json

import pytest

from attnlab import config as configs
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.errors import UserError
from attnlab.tasks import TASKS
from attnlab.training import run


class Placed(MultiHead):
    """Says that it takes values as they are, and has position schemes."""

    capabilities = dataclasses.replace(MultiHead.capabilities, unprojected=True)


REFUSED = {
    "a location score that ends too early": (
        "translation.py:luong system.attention.score=location system.attention.score.limit=6",
        r"config.system.attention.score.limit=6: sequences have up to batch.max_length=32 "
        r"tokens; take 32 or more",
    ),
    "the same in a classifier": (
        "classification.py:attention_pooling system.attention.score=location"
        " system.attention.score.limit=50",
        r"score.limit=50: .*batch.max_length=64 tokens; take 64 or more",
    ),
    "a window beyond all sequences": (
        "translation.py:luong system.order=plain system.attention.alignment=local_m "
        "system.attention.alignment.reach=33",
        r"config.system.attention.alignment.reach=33: .*take 32 or less",
    ),
    "a span beyond all sequences": (
        "translation.py:lstmn_seq2seq system.span=33",
        r"config.system.span=33: .*take 32 or less",
    ),
    "windows of a sentence model beyond all sequences": (
        "translation.py:rctm system.longest=33",
        r"config.system.longest=33: .*take 32 or less",
    ),
    "a span beyond all pairs": (
        "inference.py:lstmn_pair system.span=65",
        r"config.system.span=65: .*take 64 or less",
    ),
    "positions that end before decoding does": (
        "translation.py:convs2s batch.max_length=200 batch.buckets=200",
        r"length=256, but a sequence is 410 long",
    ),
    "an unfit alignment inside a mechanism that looks twice": (
        "language_modelling.py:attention system.attention=multi_step "
        "system.attention.looks=single system.attention.looks.alignment=monotonic",
        r"system.attention=multi_step.looks.alignment: .*needs all queries",
    ),
    "cells that are projected at every step": (
        "language_modelling.py:lstmn system.attention=multihead system.attention.heads=2 "
        "system.attention.positions=alibi",
        r"system.attention=multihead: MultiHead does not support unprojected values; choose "
        r"'single'",
    ),
    "cells that are projected in either of two texts": (
        "inference.py:lstmn_pair system.fusion=shallow system.attention=multihead",
        r"system.attention=multihead: MultiHead does not support unprojected values",
    ),
    "distances from a slot that stands nowhere": (
        f"language_modelling.py:lstmn system.attention={__name__}:Placed "
        "system.attention.positions=alibi",
        r"system.attention.positions: .*measures distances, also from slot 0; set "
        r"system.origin='none'",
    ),
    "cells that are added up": (
        "translation.py:lstmn_seq2seq system.attention=single system.attention.alignment=sigmoid",
        r"system.attention=single: the weights of Single sum to anything, here they must "
        r"sum to at most one",
    ),
    "a checkpoint chosen by what is only known at the end": (
        "translation.py:luong checkpoint.by=bleu",
        r"config.checkpoint.by='bleu'; choose from: accuracy, loss, perplexity",
    ),
    "a checkpoint chosen by a score of another task": (
        "classification.py:self_attentive checkpoint.by=macro",
        r"config.checkpoint.by='macro'; did you mean 'macro_f1'",
    ),
    "hops without a penalty": (
        "classification.py:self_attentive auxiliary.hops=0",
        r"auxiliary.hops=0.0: 4 hops without a penalty",
    ),
}
TAKEN = {
    "a window as long as the longest sequence": (
        "translation.py:luong system.order=plain system.attention.alignment=local_m "
        "system.attention.alignment.reach=32"
    ),
    "an LSTMN that sees one step back": (
        "classification.py:lstmn_classifier system.span=1 system.origin=none"
    ),
    "a checkpoint chosen by another score": (
        "classification.py:self_attentive checkpoint.by=macro_f1"
    ),
    "one hop beside many heads": (
        "inference.py:lstmn_pair system.fusion=shallow system.attention=single "
        "system.inter_attention=hops system.inter_attention.hops=1"
    ),
    "projected values that no recurrence takes up again": (
        "translation.py:lstmn_seq2seq system.inter_attention=multihead"
    ),
    "projected values between convolutions": "translation.py:convs2s system.attention=multihead",
}


def check(settings: str) -> None:
    """A config and its overrides are checked as a command does it before it reads data."""
    file, *overrides = settings.split()
    config = configs.load(f"configs/{file}", overrides)
    run.check(TASKS.resolve(config.task), config)


def check_refused(settings: str, words: str) -> None:
    """Such a config is refused in one line with these words."""
    with pytest.raises(UserError, match=words) as caught:
        check(settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("settings", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(settings: str, words: str) -> None:
    check_refused(settings, words)


LONG = "batch.max_length=600 batch.buckets=600"
FITTING = {
    "classification.py:attention_pooling system.attention.score=location": ("score.limit", 64),
    "translation.py:luong system.attention.score=location": ("score.limit", 50),
    f"translation.py:luong system.attention.score=location {LONG}": ("score.limit", 600),
    f"classification.py:transformer system.attention=linformer {LONG}": ("length", 600),
    "classification.py:transformer system.attention=synthesizer": ("length", 512),
}


@pytest.mark.parametrize("settings", FITTING)
def test_a_default_fits_the_longest_sequence(settings: str) -> None:
    """Where nobody names it; what is stored names it."""
    file, *overrides = settings.split()
    config, (field, value) = configs.load(f"configs/{file}", overrides), FITTING[settings]
    name = f"system.attention.{field}"
    assert configs.flat(config)[name] == value
    stored = configs.from_dict(json.loads(json.dumps(configs.to_dict(config))))
    assert configs.flat(configs.prepare(stored)) == configs.flat(config)
    with pytest.raises(UserError, match=f"{name}=8: sequences have up to"):
        configs.load(f"configs/{file}", [*overrides, f"{name}=8"])


@pytest.mark.parametrize("settings", TAKEN.values(), ids=TAKEN.keys())
def test_taken(settings: str) -> None:
    check(settings)
