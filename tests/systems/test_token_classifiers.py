"""All classifiers of tokens: promises, and whole forward passes against float64 oracles."""

from __future__ import annotations

from typing import Any

import pytest

from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import TokenClassifier
from tests.systems.checks import check_equal, check_every_parameter_is_read
from tests.systems.oracles import ORACLES
from tests.systems.token_classifiers import (
    CHECKS,
    PLACED,
    SPECS,
    batch,
    check_dropout,
    check_learning,
    compared,
    prepared,
    types,
)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_promise(name: str, check: Any) -> None:
    check(SPECS[name])


def test_every_classifier_of_tokens_has_an_oracle() -> None:
    kinds = {name: SYSTEMS.resolve(name) for name in SYSTEMS.names()}
    assert {name for name, kind in kinds.items() if issubclass(kind, TokenClassifier)} <= set(
        ORACLES
    )


@pytest.mark.quick
@pytest.mark.parametrize("name", [*SPECS, *PLACED])
def test_outputs_equal_the_papers(name: str) -> None:
    spec = {**SPECS, **PLACED}[name]
    check_equal(*compared(spec, ORACLES[spec["name"]], spec))


@pytest.mark.parametrize("name", ["encoder", "encoder-tied"])
def test_the_oracle_reads_every_parameter(name: str) -> None:
    oracle, params = ORACLES[SPECS[name]["name"]], prepared(SPECS[name])[1]
    check_every_parameter_is_read(
        lambda params: oracle(params, SPECS[name], batch(), types()), params, by=0.3
    )


def test_dropout_acts_only_with_its_stream() -> None:
    check_dropout(SPECS["encoder"])


def test_neighbours_can_be_learnt() -> None:
    check_learning(SPECS["encoder"])
