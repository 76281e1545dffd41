"""Published Transformers as settings of one system, and what share_positions shares."""

import jax
import numpy as np
import pytest

from tests.systems.checks import CHECKS, SPECS, batch, make, parameters, prepared
from tests.systems.tiny import seldom


def test_one_table_of_positions_for_a_stack_or_one_for_each_layer() -> None:
    shared, alone = (
        parameters(make({**SPECS["transformer-t5"], "share_positions": share}))
        for share in (True, False)
    )
    assert {"encoder_positions", "decoder_positions"} <= set(shared)
    count = lambda params: sum(leaf.size for leaf in jax.tree.leaves(params))
    table = count(shared["encoder_positions"])
    assert table == 12 and count(alone) == count(shared) + 2 * table  # 4 tables instead of 2


@pytest.mark.parametrize("promise", seldom(CHECKS, "cached decoding"))
def test_a_mixer_that_is_no_attention_in_the_decoder(promise: str) -> None:
    """All that is promised of the Transformer holds: no look ahead, inert padding, stepwise
    decoding, rows of different lengths, ...
    """
    small = {"layers": 1, "share": "none"}  # untied: causality is told by the same program
    mixer = {"name": "convolution", "kernel": 2}
    check = CHECKS[promise]
    check({**SPECS["transformer"], **small, "decoder_attention": mixer})


CAUSAL = {**SPECS["transformer"], "layers": 1}
LEAKING = {**CAUSAL, "leaking": True}


def test_a_leaking_decoder_sees_no_padding_and_is_noted() -> None:
    (call, system), (source, target) = prepared(LEAKING), batch()
    padded = call(source, np.pad(target, ((0, 0), (0, 3))))
    np.testing.assert_allclose(padded[:, :5], call(source, target), atol=2e-6)
    (note,) = system.notes()
    assert "system.leaking=true: the decoder sees its targets" in note
    assert make(CAUSAL).notes() == []


@pytest.mark.full
def test_a_leaking_decoder_writes_as_a_causal_one_with_its_parameters() -> None:
    """Since nothing that is yet to be written can be seen."""
    (leaking, _), (causal, _) = prepared(LEAKING), prepared(CAUSAL)
    source, target = batch()
    memory = leaking(source, method="encode")
    state, actual = leaking(memory, 5, method="start"), []
    for t in range(5):
        logits, state = leaking(state, memory, target[:, t], method="step")
        actual.append(logits)
    np.testing.assert_allclose(np.stack(actual, 1), causal(source, target), atol=2e-6)
