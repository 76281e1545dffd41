"""Decoders carry what looks leave to the next look: feeding word by word gives the full
pass, with every part that looks back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.systems.checks import SPECS, batch, begun, check_cached_decoding, prepared

DEFAULT = ("pointer_generator-temporal", "gnmt-monotonic")
"""By default; the others carry their looks alike."""
PARTS: dict[str, dict[str, Any]] = {
    "location_aware": {"score": {"name": "location_aware", "hidden": 5, "filters": 3, "reach": 2}},
    "coverage": {"score": {"name": "coverage", "hidden": 5}},
    "monotonic": {"score": {"name": "additive", "hidden": 5}, "alignment": "monotonic"},
    "temporal": {"score": {"name": "additive", "hidden": 5}, "alignment": "temporal"},
}


def looking(part: str) -> dict[str, Any]:
    return {"name": "single", **PARTS[part]}


def heads(part: str) -> dict[str, Any]:
    """Each with looks of its own."""
    return {"name": "multihead", "heads": 2, **PARTS[part]}


CASES: list[tuple[str, str, dict[str, Any]]] = [
    *(
        (name, part, {"attention": looking(part)})
        for name, part in (
            ("rnnsearch", "location_aware"),
            ("rnnsearch-released", "coverage"),
            ("luong", "temporal"),
            ("cgru", "coverage"),
            ("gnmt", "monotonic"),
            ("pointer_generator", "temporal"),
            ("pointer_generator-uncovered", "coverage"),
            ("convs2s", "location_aware"),
        )
    ),
    # without input feeding all looks come at once
    ("luong", "coverage", {"feeding": "none", "attention": looking("coverage")}),
    # in the cross-attention of every layer
    *(
        ("transformer", part, {"cross_attention": heads(part), "layers": 1 + (part == "temporal")})
        for part in PARTS
    ),
    # whether the look enters the cell of every step, or all looks come after the states
    *(
        ("lstmn_seq2seq", part, {"fusion": fusion, "inter_attention": looking(part)})
        for fusion, part in (("deep", "coverage"), ("shallow", "monotonic"))
    ),
]


@pytest.mark.parametrize(
    ("name", "part", "fields"),
    [
        pytest.param(*case, marks=[pytest.mark.full] * (f"{case[0]}-{case[1]}" not in DEFAULT))
        for case in CASES
    ],
)
def test_word_by_word_equals_the_full_pass(name: str, part: str, fields: dict[str, Any]) -> None:
    check_cached_decoding({**SPECS[name], **fields})


@pytest.mark.full
@pytest.mark.parametrize("name", ["transformer", "rnnsearch-released"])
def test_looks_that_are_lost_would_be_noticed(name: str) -> None:
    """The state holds what the looks leave, and the logits depend on it."""
    slot = {"cross_attention": heads("temporal")} if name == "transformer" else {}
    spec = {**SPECS[name], **(slot or {"attention": looking("coverage")})}
    call, _ = prepared(spec)
    _, target = batch()
    memory, first, _ = begun(spec)
    _, state = call(first, memory, target[:, 0], method="step")
    kept, _ = call(state, memory, target[:, 1], method="step")
    lost, _ = call(state.replace(looks=first.looks), memory, target[:, 1], method="step")
    assert np.abs(kept - lost).max() > 1e-5
