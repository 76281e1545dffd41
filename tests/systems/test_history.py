"""Decoders carry what looks leave to the next look: feeding word by word gives the full pass, with one
part that looks back for each way that a decoder takes, and with heads over the tape of shallow
fusion. That each slot is handed what it declares is in
`slots.py`, what the parts make of it in `tests/attention/test_weights_and_history.py`.
"""

from typing import Any

import pytest

from tests.systems.checks import SPECS, check_cached_decoding
from tests.systems.tiny import seldom

MONOTONIC = {"score": {"name": "additive", "hidden": 5}, "alignment": "monotonic"}
TEMPORAL = {"score": {"name": "additive", "hidden": 5}, "alignment": "temporal"}
COVERAGE = {"score": {"name": "coverage", "hidden": 5}}
HEADS = {"name": "multihead", "heads": 2, **TEMPORAL}


def single(part: dict[str, Any]) -> dict[str, Any]:
    return {"name": "single", **part}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a look before the cell": ("gnmt", {"attention": single(MONOTONIC)}),
    "beside a coverage of its own": ("pointer_generator", {"attention": single(TEMPORAL)}),
    "after all states": ("luong", {"feeding": "none", "attention": single(COVERAGE)}),
    "in every layer": ("transformer", {"cross_attention": HEADS}),
    "in the cell": ("lstmn_seq2seq", {"fusion": "deep", "inter_attention": single(COVERAGE)}),
    "in convolutions": ("convs2s", {"attention": single(COVERAGE)}),
    "behind both sequences": (
        "lstmn_seq2seq",
        {"fusion": "shallow", "inter_attention": {"name": "multihead", "heads": 5}},
    ),
}
DEFAULT = ("a look before the cell", "beside a coverage of its own")


@pytest.mark.parametrize("way", seldom(CASES, *DEFAULT))
def test_word_by_word_equals_the_full_pass(way: str) -> None:
    name, fields = CASES[way]
    check_cached_decoding({**SPECS[name], **fields})
