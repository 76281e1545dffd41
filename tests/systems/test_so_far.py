"""Decoders carry what looks leave to the next look: feeding word by word gives the full
pass, with every part that looks back.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.systems import checks
from tests.systems.checks import SPECS, batch, begun, prepared

PARTS: dict[str, dict[str, Any]] = {
    "location_aware": {"score": {"name": "location_aware", "hidden": 5, "filters": 3, "reach": 2}},
    "coverage": {"score": {"name": "coverage", "hidden": 5}},
    "monotonic": {"score": {"name": "additive", "hidden": 5}, "alignment": "monotonic"},
    "temporal": {"score": {"name": "additive", "hidden": 5}, "alignment": "temporal"},
}
check_cached_decoding = functools.partial(checks.check_cached_decoding, slopes=False)
CASES = [
    ("rnnsearch", "location_aware"),
    ("rnnsearch-released", "coverage"),
    ("luong", "temporal"),
    ("cgru", "coverage"),
    ("gnmt", "monotonic"),
    ("pointer_generator", "temporal"),
    ("pointer_generator-uncovered", "coverage"),
    ("convs2s", "location_aware"),
]


@pytest.mark.parametrize(("name", "part"), CASES, ids=["-".join(case) for case in CASES])
def test_word_by_word_equals_the_full_pass(name: str, part: str) -> None:
    check_cached_decoding({**SPECS[name], "attention": {"name": "single", **PARTS[part]}})


@pytest.mark.parametrize("part", PARTS)
def test_word_by_word_the_transformer_looks_back_at_its_source(part: str) -> None:
    """In the cross-attention of every layer, here of two for one of the parts, with heads that each
    have looks of their own.
    """
    heads = {"name": "multihead", "heads": 2, **PARTS[part]}
    layers = 2 if part == "temporal" else 1
    check_cached_decoding({**SPECS["transformer"], "cross_attention": heads, "layers": layers})


@pytest.mark.parametrize(("fusion", "part"), [("deep", "coverage"), ("shallow", "monotonic")])
def test_word_by_word_an_lstmn_looks_back_at_its_source(fusion: str, part: str) -> None:
    """Whether the look enters the cell of every step, or all looks come after the states."""
    looking = {"name": "single", **PARTS[part]}
    check_cached_decoding({**SPECS["lstmn_seq2seq"], "fusion": fusion, "inter_attention": looking})


def check_loss_is_noticed(spec: dict[str, Any]) -> None:
    """The state holds what the looks leave, and the logits depend on it."""
    call, _ = prepared(spec)
    _, target = batch()
    memory, first, _ = begun(spec)
    _, state = call(first, memory, target[:, 0], method="step")
    kept, _ = call(state, memory, target[:, 1], method="step")
    lost, _ = call(state.replace(looks=first.looks), memory, target[:, 1], method="step")
    assert np.abs(kept - lost).max() > 1e-5


def test_the_transformer_would_notice_looks_that_are_lost() -> None:
    heads = {"name": "multihead", "heads": 2, **PARTS["temporal"]}
    check_loss_is_noticed({**SPECS["transformer"], "cross_attention": heads, "layers": 2})


def test_a_decoder_that_forgot_would_be_told() -> None:
    looking = {"name": "single", **PARTS["coverage"]}
    check_loss_is_noticed({**SPECS["rnnsearch-released"], "attention": looking})


def test_without_input_feeding_all_looks_come_at_once() -> None:
    attention = {"name": "single", **PARTS["coverage"]}
    check_cached_decoding({**SPECS["luong"], "feeding": "none", "attention": attention})
