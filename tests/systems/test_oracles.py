"""Logits of whole systems against `oracles.py`, with random parameters, padded sources, and every setting that changes the formula."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.systems import SYSTEMS
from tests.systems.checks import SPECS, batch, make, parameters
from tests.systems.oracles import ORACLES

CASES: dict[str, dict[str, Any]] = {
    "rnn_encoder_decoder": SPECS["rnn_encoder_decoder"],
    **{f"rnnsearch-{readout}": {**SPECS["rnnsearch"], "readout": readout} for readout in ("current", "previous", "released")},
    **{
        f"transformer-{norm}-{share}": {**SPECS["transformer"], "norm": norm, "share": share}
        for norm, share in itertools.product(("pre", "post"), ("all", "output", "none"))
    },
}


@functools.cache
def found_and_expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle, for 3 sentences of 6, 3 and 1 tokens."""
    spec = CASES[case]
    system, (source, target_in) = make(spec), batch()
    params = parameters(system)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    settings = {**spec, "heads": 2}
    with jax.default_matmul_precision("highest"):
        logits = jax.jit(lambda params: system.apply({"params": params}, source, target_in))(params)
    return np.asarray(logits, np.float64), ORACLES[spec["name"]](wide, settings, source, target_in)


def test_every_system_has_an_oracle() -> None:
    assert set(ORACLES) == set(SYSTEMS.names()) == {spec["name"] for spec in CASES.values()}


@pytest.mark.quick
@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_papers(case: str) -> None:
    found, expected = found_and_expected(case)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_settings_change_the_formula_so_the_oracles_can_tell() -> None:
    """No two cases have the same logits."""
    logits = [found_and_expected(case)[1] for case in CASES]
    for one, other in itertools.combinations(logits, 2):
        assert np.abs(one - other).max() > 1e-2


@pytest.mark.parametrize("case", ["rnn_encoder_decoder", "rnnsearch-current", "transformer-pre-all"])
def test_the_oracle_reads_every_parameter(case: str) -> None:
    """An array that it forgot would be one that the system may get wrong."""
    spec, (source, target_in) = CASES[case], batch()
    oracle = functools.partial(ORACLES[spec["name"]], settings={**spec, "heads": 2}, source=source, target_in=target_in)
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), parameters(make(spec))))
    before, rng = oracle(jax.tree.unflatten(tree, leaves)), np.random.default_rng(0)
    for number, leaf in enumerate(leaves):
        changed = [*leaves[:number], leaf + 0.1 * rng.normal(size=leaf.shape), *leaves[number + 1 :]]
        assert np.abs(oracle(jax.tree.unflatten(tree, changed)) - before).max() > 1e-5
