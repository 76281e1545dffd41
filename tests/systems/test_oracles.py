"""Logits of whole systems against `oracles.py`, with random parameters, padded sources, and every
setting that changes the formula.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Seq2Seq
from tests.systems.checks import (
    SPECS,
    batch,
    check_equal,
    check_every_parameter_is_read,
    compared,
    make,
    parameters,
)
from tests.systems.oracles import ORACLES

ONE_LAYER = {**SPECS["transformer"], "layers": 1}


def _luong(
    score: dict[str, Any], alignment: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    attention = {"name": "single", "score": score, "alignment": alignment or {"name": "softmax"}}
    return {**SPECS["luong"], "attention": attention, **fields}


CASES: dict[str, dict[str, Any]] = {
    **{f"seq2seq-{order}": {**SPECS["seq2seq"], "order": order} for order in ("reversed", "plain")},
    "luong-general": SPECS["luong"],
    "luong-dot-plain": _luong({"name": "dot"}, order="plain"),
    "luong-concat-local_m": _luong(
        {"name": "concat", "hidden": 6}, {"name": "local_m", "reach": 1}
    ),
    "luong-location-unfed": _luong({"name": "location", "limit": 6}, feeding="none"),
    "luong-general-local_p": _luong({"name": "general"}, {"name": "local_p", "reach": 2}),
    "seq2seq-gru-both-ways": {**SPECS["seq2seq"], "width": 6, "cell": "gru", "directions": 2},
    "luong-tanh-both-ways": _luong({"name": "dot"}, width=6, cell="tanh", directions=2),
    "luong-gru-unfed": _luong({"name": "general"}, cell="gru", feeding="none"),
    "gnmt-gru-one-way-unsummed": {
        **SPECS["gnmt"],
        **{"cell": "gru", "directions": 1, "residual": False, "decoder_layers": 3},
    },
    "gnmt-previous": SPECS["gnmt"],
    "gnmt-current": {**SPECS["gnmt"], "query": "current", "first": "encoder", "decoder_layers": 3},
    "rnn_encoder_decoder": SPECS["rnn_encoder_decoder"],
    **{
        f"rnnsearch-{readout}": {**SPECS["rnnsearch"], "readout": readout}
        for readout in ("current", "previous", "released")
    },
    "rnnsearch-lstm-one-way": {**SPECS["rnnsearch"], "cell": "lstm", "directions": 1},
    "rnnsearch-tanh": {**SPECS["rnnsearch"], "cell": "tanh", "readout": "released"},
    "cgru": SPECS["cgru"],
    "pointer_generator": SPECS["pointer_generator"],
    "pointer_generator-uncovered": {**SPECS["pointer_generator-uncovered"], "share": "none"},
    "rctm": SPECS["rctm"],
    "rctm-longer-than-laid-out": {**SPECS["rctm"], "longest": 2},
    "convs2s": SPECS["convs2s"],
    **{
        f"convs2s-looking-{where}": {**SPECS["convs2s"], "attend": where}
        for where in ("last", "first", "none")
    },
    "convs2s-one-layer-without-neighbours": {
        **SPECS["convs2s"],
        "kernel": 1,
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
    "convs2s-wide-window-without-positions": {
        **SPECS["convs2s"],
        "kernel": 5,
        "positions": {"name": "none"},
    },
    "lstmn_seq2seq": SPECS[
        "lstmn_seq2seq"
        # in other forms with parameters that make attention matter more:
        # tests/systems/recurrent/test_lstmn.py
    ],
    **{
        f"transformer-{norm}-{share}": {
            **SPECS["transformer"],
            **{"norm": norm, "share": share, "layers": 2 if share == "all" else 1},
        }
        for norm, share in itertools.product(("pre", "post"), ("all", "output", "none"))
    },
    **{
        f"transformer-{norm}-{normalisation}-{feed_forward}": {
            **ONE_LAYER,
            "norm": norm,
            "normalisation": normalisation,
            "feed_forward": feed_forward,
        }
        for norm, normalisation, feed_forward in (
            ("sandwich", "rms_norm", "geglu_tanh"),
            ("res_post", "rms_norm_plus_one", "swiglu"),
            ("parallel", "layer_norm", "gelu_tanh"),
            ("rezero", "none", "squared_relu"),
            ("none", "scale_norm", "relu"),
            ("pre", "dynamic_tanh", "none"),
        )
    },
    "transformer-t5": SPECS["transformer-t5"],
    "transformer-by-layer": SPECS["transformer-by-layer"],
    "transformer-concatenated": {**ONE_LAYER, "position_width": 4},
    "transformer-leaking": {**ONE_LAYER, "leaking": True},
    "transformer-no-feed-forward-no-norm": {
        **ONE_LAYER,
        "norm": "post",
        "normalisation": "none",
        "feed_forward": "none",
    },
    "transformer-t5-1.1": {  # an untied head, and layers of two numbers
        **SPECS["transformer-t5"],
        "feed_forward": "geglu_tanh",
        "decoder_layers": 3,
        "scaled_output": False,
        "share": "input",
    },
    "transformer-bart": SPECS["transformer-bart"],
    "transformer-bart-untied": {
        **SPECS["transformer-bart"],
        **{"share": "none", "layers": 1, "decoder_layers": 0},
    },
}


@functools.cache
def found_and_expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle, for 3 sentences of 6, 3 and 1 tokens."""
    settings = {**CASES[case], "heads": 2, **({"t5": (6, 4)} if "-t5" in case else {})}
    return compared(CASES[case], ORACLES[CASES[case]["name"]], settings)


def test_every_system_has_an_oracle() -> None:
    """Every sequence-to-sequence one, and a case; those of language models and classifiers are
    tested beside them.
    """
    named = {name for name in SYSTEMS.names() if issubclass(SYSTEMS.resolve(name), Seq2Seq)}
    assert named == {spec["name"] for spec in CASES.values()} <= set(ORACLES)


FIRST = {
    spec["name"]: case for case, spec in reversed(CASES.items())
}  # of every system the first case
QUICK = [
    pytest.param(case, marks=[pytest.mark.quick] if case in FIRST.values() else [])
    for case in CASES
]


@pytest.mark.parametrize("case", QUICK)
def test_logits_equal_the_papers(case: str) -> None:
    check_equal(*found_and_expected(case))


def test_settings_change_the_formula_so_the_oracles_can_tell() -> None:
    """No two cases have the same logits."""
    logits = [found_and_expected(case)[1] for case in CASES]
    for one, other in itertools.combinations(logits, 2):
        assert np.abs(one - other).max() > 1e-2


READ = (
    "seq2seq-plain",
    "luong-concat-local_m",
    "luong-location-unfed",
    "luong-general-local_p",
    "gnmt-current",
)
READ += (
    "seq2seq-gru-both-ways",
    "luong-tanh-both-ways",
    "convs2s-looking-last",
    "rnn_encoder_decoder",
    "rnnsearch-current",
    "cgru",
    "pointer_generator",
    "rctm",
    "convs2s",
    "transformer-pre-all",
    "transformer-sandwich-rms_norm-geglu_tanh",
    "transformer-rezero-none-squared_relu",
)


@pytest.mark.parametrize("case", READ)
def test_the_oracle_reads_every_parameter(case: str) -> None:
    spec, (source, target_in) = CASES[case], batch()
    oracle = functools.partial(
        ORACLES[spec["name"]], settings={**spec, "heads": 2}, source=source, target_in=target_in
    )
    check_every_parameter_is_read(oracle, parameters(make(spec)))
