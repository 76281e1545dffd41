"""Greedy search writes what a plain loop writes, within limits, and breaks ties by the lowest id."""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.data.vocabulary import Special
from attnlab.decoding.hypotheses import Hypotheses
from attnlab.decoding.rules import Rules
from tests.decoding.conftest import MarkovModel, sample
from tests.decoding.conftest import unrolled as greedy

EOS = 2
SENTENCES = [0, 1, 2, 3, 4, 5, 6]


def check(model: Any, texts: Hypotheses, limits: list[int], least: int) -> None:
    for row, sentence in enumerate(SENTENCES):
        oracle = model.greedy(sentence, limits[row], least)
        tokens = texts.tokens[row, 0].tolist()
        assert tokens == oracle + [0] * (len(tokens) - len(oracle))
        assert texts.lengths[row, 0] == len(oracle)
        log_prob, weights = model.rescored(sentence, oracle)
        assert texts.log_probs[row, 0] == pytest.approx(log_prob, abs=1e-4)
        assert texts.scores[row, 0] == texts.log_probs[row, 0]
        if texts.alignment is not None:
            np.testing.assert_allclose(texts.alignment[row, 0, : len(oracle)], weights, atol=1e-6)
            assert not texts.alignment[row, 0, len(oracle) :].any()


@pytest.mark.quick
def test_equals_a_plain_loop(run: Any, prefix_model: Any) -> None:
    texts = run(greedy, prefix_model, SENTENCES, max_length=6, alignment=True)
    assert texts.alignment is not None and texts.alignment.shape == (7, 1, 6, 3)
    check(prefix_model, texts, [6] * 7, 0)
    assert len(set(texts.lengths[:, 0].tolist())) > 1, "the sentences should end at different steps"


def test_limits_and_least_length(run: Any, prefix_model: Any) -> None:
    """No EOS before three tokens are out; each sentence keeps to its own limit; probabilities stay
    the model's.
    """
    limits = [1, 2, 3, 4, 5, 6, 6]
    how = {"max_length": 6, "rules": Rules(min_length=3), "limits": np.array(limits)}
    texts = run(greedy, prefix_model, SENTENCES, **how)
    check(prefix_model, texts, limits, 3)
    assert texts.alignment is None


def test_any_of_several_ends_ends_a_text(run: Any, prefix_model: Any) -> None:
    """In greedy search and in sampling; the first token is the forced one."""
    special = Special(ends=(5,), forced=4)
    how = {"max_length": 6, "rules": Rules(special=special)}
    texts = run(greedy, prefix_model, SENTENCES, **how)
    drawn = run(sample, prefix_model, SENTENCES, key=jax.random.key(0), temperature=0.0, **how)
    np.testing.assert_array_equal(texts.tokens, drawn.tokens)
    for row, sentence in enumerate(SENTENCES):
        tokens = [4]
        while len(tokens) < 6 and tokens[-1] not in special.ending:
            tokens.append(int(np.argmax(prefix_model.known(sentence, tokens)[0])))
        assert texts.tokens[row, 0].tolist() == tokens + [0] * (6 - len(tokens))


def test_ties_go_to_the_lowest_id_and_reserved_ids_are_never_chosen(run: Any) -> None:
    table = np.full((6, 6), 0.2)
    table[:, [0, 1]] = 0.9
    table[:, EOS] = 0.1
    texts = run(greedy, MarkovModel(table), [0, 1], max_length=4, alignment=True)
    assert texts.tokens[:, 0].tolist() == [[3, 3, 3, 3]] * 2
    assert texts.alignment is None, "a model without weights has no alignment"
    assert texts.log_probs[0, 0] == pytest.approx(4 * np.log(0.2 / 2.5), abs=1e-5)
