"""Greedy search writes what a plain loop writes, within limits, and breaks ties by the lowest id.
Sampling draws what its filters leave, as often as the model says, by its keys alone.
"""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.data.vocabulary import Special
from attnlab.decoding.rules import Rules
from attnlab.decoding.sampling import filter_logits, keep_largest, keep_likely, keep_nucleus
from attnlab.decoding.steps import Hypotheses
from tests.decoding.conftest import MarkovModel, sample
from tests.decoding.conftest import unrolled as greedy

EOS = 2
SENTENCES = [0, 1, 2, 3, 4, 5, 6]
CHI_SQUARE = {1: 15.1, 2: 18.4, 3: 21.1}  # 1e-4 quantiles


def check(model: Any, texts: Hypotheses, limits: list[int], least: int) -> None:
    """Every hypothesis is that of a plain greedy loop, with its log-probability and its weights."""
    assert len(texts.lengths) == len(limits)
    for row, k in np.ndindex(texts.lengths.shape):
        oracle = model.greedy(row, limits[row], least)
        tokens = texts.tokens[row, k].tolist()
        assert tokens == oracle + [0] * (len(tokens) - len(oracle))
        assert texts.lengths[row, k] == len(oracle)
        log_prob, weights = model.rescored(row, oracle)
        assert texts.log_probs[row, k] == pytest.approx(log_prob, abs=1e-4)
        assert texts.scores[row, k] == texts.log_probs[row, k]
        if texts.alignment is not None:
            np.testing.assert_allclose(texts.alignment[row, k, : len(oracle)], weights, atol=1e-6)
            assert not texts.alignment[row, k, len(oracle) :].any()


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


def kept(logits: jax.Array) -> list[int]:
    return np.flatnonzero(np.isfinite(np.asarray(logits)[0])).tolist()


EVERY = [0, 1, 2, 3]
FILTERS: list[tuple[Any, list[float], dict[Any, list[int]]]] = [
    (keep_nucleus, [0.3, 0.05, 0.15, 0.5], {0.75: [0, 3], 0.85: [0, 2, 3], 1e-6: [3], 1.0: EVERY}),
    (keep_nucleus, [0.25, 0.25, 0.25, 0.25], {0.4: [0, 1]}),  # ties go to the lowest id
    (keep_largest, [0.3, 0.1, 0.3, 0.3], {0: EVERY, 1: [0, 2, 3], 4: EVERY, 9: EVERY}),  # all ties
    (keep_largest, [0.2, 0.1, 0.2, 0.5], {1: [3], 2: [0, 2, 3]}),
    (keep_likely, [0.3, 0.05, 0.15, 0.5], {0.0: EVERY, 0.2: [0, 2, 3], 0.5: [0, 3], 1.0: [3]}),
]


@pytest.mark.parametrize(("keep", "probabilities", "ids"), FILTERS)
def test_a_filter_leaves_what_it_says(keep: Any, probabilities: Any, ids: Any) -> None:
    logits = np.log(np.array([probabilities], np.float32))
    assert {amount: kept(keep(logits, amount)) for amount in ids} == ids


@pytest.mark.parametrize(
    ("k", "p", "ids"),
    [(2, 0.5, [3]), (2, 0.6, [0, 3]), (3, 0.75, [0, 3]), (0, 0.75, [0, 2, 3]), (2, 1.0, [0, 3])],
)
def test_the_nucleus_is_one_of_the_largest(k: int, p: float, ids: list[int]) -> None:
    """Top-k first, and the share of the nucleus is one of what that leaves: 0.4 of 0.7 are more
    than half.
    """
    assert kept(filter_logits(np.log(np.array([[0.3, 0.1, 0.2, 0.4]])), 1.0, k, p)) == ids


FREQUENCIES = [
    pytest.param({}, {2: 0.1, 3: 0.5, 4: 0.3, 5: 0.1}, marks=pytest.mark.full),
    pytest.param({"top_k": 2}, {3: 0.625, 4: 0.375}, marks=pytest.mark.full),
    # After temperature .5 the first two hold .944; a nucleus taken before it would keep a
    # third.
    ({"temperature": 0.5, "top_p": 0.85}, {3: 0.25 / 0.34, 4: 0.09 / 0.34}),
]


@pytest.mark.parametrize(("how", "oracle"), FREQUENCIES)
def test_frequencies(run: Any, how: dict[str, Any], oracle: dict[int, float]) -> None:
    """100,000 draws match the renormalised probabilities; what is filter_logits out, PAD and BOS are
    never drawn.
    """
    table = np.tile([0.7, 0.4, 0.1, 0.5, 0.3, 0.1], (6, 1))
    draws = 100_000
    texts = run(
        sample, MarkovModel(table), [0], max_length=1, key=jax.random.key(1), n=draws, **how
    )
    ids, counts = np.unique(np.asarray(texts.tokens), return_counts=True)
    assert ids.tolist() == list(oracle)
    expected = draws * np.array(list(oracle.values()))
    assert np.sum((counts - expected) ** 2 / expected) < CHI_SQUARE[len(oracle) - 1]
    assert (np.diff(np.asarray(texts.scores[0])) <= 0).all()


def test_sequences_have_the_probability_of_the_model(run: Any, prefix_model: Any) -> None:
    """Whole sequences, of which the state is part, come as often as the model says of what may be
    written, and carry their log-probability.
    """
    draws = 20_000
    texts = run(sample, prefix_model, [5], max_length=3, key=jax.random.key(0), n=draws)
    options: Any = {"axis": 0, "return_index": True, "return_counts": True}
    sequences, first, counts = np.unique(np.asarray(texts.tokens[0]), **options)
    spread = 0.0
    for sequence, index, count in zip(sequences, first, counts, strict=True):
        tokens = sequence[sequence != 0].tolist()
        log_prob = prefix_model.rescored(5, tokens)[0]
        assert texts.log_probs[0, index] == pytest.approx(log_prob, abs=1e-4)
        assert texts.lengths[0, index] == len(tokens)
        steps = [np.exp(prefix_model.known(5, tokens[:t])[0]) for t in range(len(tokens))]
        shares = [step[token] / step.sum() for step, token in zip(steps, tokens, strict=True)]
        expected = draws * np.prod(shares)
        spread += (count - expected) ** 2 / expected
    assert spread < 3 * len(sequences)


EXTREMES = [
    {"temperature": 0.0},
    {"top_p": 1e-6},
    pytest.param({"temperature": 1e-4}, marks=pytest.mark.full),
    pytest.param({"top_k": 1}, marks=pytest.mark.full),
]


@pytest.mark.parametrize("how", EXTREMES)
def test_extremes_are_greedy(run: Any, prefix_model: Any, how: dict[str, Any]) -> None:
    how = how | {"max_length": 5, "rules": Rules(min_length=1), "n": 2, "key": jax.random.key(2)}
    texts = run(sample, prefix_model, SENTENCES, **how)
    assert texts.lengths.shape == (7, 2)
    check(prefix_model, texts, [5] * 7, 1)


def test_keys_decide_alone(prefix_model: Any) -> None:
    """The same key gives the same samples, another key others; with a key for each sentence the
    batch does not matter.
    """

    @jax.jit
    def program(key: jax.Array, *begun: Any) -> Hypotheses:
        return sample(prefix_model.step, *begun, rows=4, max_length=5, n=3, key=key, alignment=True)

    def drawn(sentences: Any, key: jax.Array) -> np.ndarray:
        texts = jax.device_get(program(key, *prefix_model.begin(sentences)))
        assert texts.alignment is not None
        np.testing.assert_allclose(texts.alignment.sum((2, 3)), texts.lengths, atol=1e-5)
        return np.asarray(texts.tokens)

    four = SENTENCES[:4]
    one = drawn(four, jax.random.key(7))
    np.testing.assert_array_equal(one, drawn(four, jax.random.key(7)))
    assert (one != drawn(four, jax.random.key(8))).any()
    keys, order = jax.random.split(jax.random.key(3), 4), np.array([2, 0, 3, 1])
    np.testing.assert_array_equal(drawn(four, keys)[order], drawn(order, keys[order]))
