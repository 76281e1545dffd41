"""Pairs for next sentence prediction: what follows what, how often, and of what a row is a function."""

from typing import Any

import numpy as np
import pytest

from attnlab.data.columns import Packed
from attnlab.data.denoising import Masked, Masking
from attnlab.data.next_sentence import SentencePairs
from attnlab.data.vocabulary import BOS, EOS, PAD, Special
from attnlab.errors import UserError

FIRST = 10  # the id of the first token; each token has one of its own


def corpus(documents: int, seed: int = 0) -> tuple[Packed, np.ndarray, np.ndarray]:
    """Documents of one to nine sentences of one to seven tokens, blank texts between them, and by
    id the number of the document and of the sentence.
    """
    rng = np.random.default_rng(seed)
    texts, of_document, of_sentence, token = [], [0] * FIRST, [0] * FIRST, FIRST
    for document in range(documents):
        for _ in range(rng.integers(1, 10)):
            length = int(rng.integers(1, 8))
            texts.append([*range(token, token + length), EOS])
            of_document += [document] * length
            of_sentence += [len(texts)] * length
            token += length
        texts += [[EOS]] * int(rng.integers(1, 3))
    return Packed(texts, pad=PAD), np.array(of_document), np.array(of_sentence)


def parts(batch: Any, row: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The two segments of a row, checked, and their relation."""
    target, types = batch["target"][row], batch["types"][row]
    (one, other) = np.flatnonzero(target == EOS)
    assert (target[other + 1 :] == PAD).all() and (target[: other + 1] != PAD).all()
    at = np.arange(len(target))
    np.testing.assert_array_equal(types, (one < at) & (at <= other))
    return target[:one], target[one + 1 : other], int(batch["relation"][row])


def epoch(pairs: SentencePairs, number: int = 0) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """All pairs of an epoch."""
    actual = []
    for step in range(number * pairs.batches_per_epoch, (number + 1) * pairs.batches_per_epoch):
        batch = pairs(step)
        real = (batch["target"] != PAD).any(axis=1)
        actual += [parts(batch, row) for row in np.flatnonzero(real)]
        assert not batch["relation"][~real].any() and not batch["types"][~real].any()
    return actual


@pytest.mark.quick
@pytest.mark.parametrize("length", [6, 15, 31])
def test_half_of_the_pairs_follow_and_the_others_are_of_other_documents(length: int) -> None:
    ids, document, sentence = corpus(120)
    pairs = SentencePairs(ids, size=16, length=length, seed=3)
    alone = np.bincount(document[FIRST:][np.unique(sentence[FIRST:], return_index=True)[1]])
    follow = several = 0
    for number in range(4):
        for one, other, relation in epoch(pairs, number):
            assert len(one) >= 1 and len(other) >= 1 and len(one) + len(other) <= length - 2
            for tokens in (one, other):  # a stretch of one document
                np.testing.assert_array_equal(np.diff(tokens), 1)
                assert len(set(document[tokens])) == 1
            same = document[one[0]] == document[other[0]]
            assert same == (relation == 0)
            if relation == 0:  # the sentence after that in which A ends, but for what is cut off
                assert sentence[other[0]] > sentence[one[-1]]
                if len(one) + len(other) < length - 2:
                    assert other[0] == one[-1] + 1
            follow += relation == 0
            several += alone[document[one[0]]] > 1
    if length == 31:  # nearly all chunks of documents with several sentences have several
        assert abs(follow / several - 0.5) < 4 * np.sqrt(0.25 / several) + 0.05


def test_every_chunk_is_read_once_in_an_epoch_and_cut_anew_in_the_next() -> None:
    ids, _, sentence = corpus(40)
    pairs = SentencePairs(ids, size=8, length=25, seed=1)
    whole, again = ([one for one, _, _ in epoch(pairs, number)] for number in (0, 1))
    begins, others = ([sentence[one[0]] for one in epoch] for epoch in (whole, again))
    assert len(set(begins)) == len(begins) == len(set(others)) and begins != others
    assert len({one.tobytes() for one in whole} & {one.tobytes() for one in again}) < len(whole)


def test_a_split_that_is_scored_has_the_same_pairs_in_any_batches() -> None:
    ids, _, _ = corpus(30)
    small, large = (SentencePairs(ids, size=size, length=20) for size in (3, 11))
    for one, other in zip(epoch(small), epoch(large), strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def test_masked_pairs_begin_and_keep_types_and_relation() -> None:
    ids, _, _ = corpus(20)
    pairs = SentencePairs(ids, size=4, length=20, seed=0)
    masking = Masking(Special(reserved=(4,)), 500, rate=0.3)
    batch, bare = Masked(pairs, masking, 0, 0)(2), pairs(2)
    real = (bare["target"] != PAD).any(axis=1)
    assert (batch["source"][real, 0] == BOS).all() and batch["source"].shape == (4, 21)
    np.testing.assert_array_equal(batch["types"][:, 1:], bare["types"])
    np.testing.assert_array_equal(batch["relation"], bare["relation"])
    assert not batch["types"][:, 0].any()
    told = np.take_along_axis(batch["source"], batch["places"], axis=1)
    assert (told == 4).any() and not np.isin(batch["target"], (BOS, EOS)).any()


def test_one_document_is_enough_where_it_is_long() -> None:
    texts = [[FIRST + 2 * number, FIRST + 2 * number + 1, EOS] for number in range(12)]
    pairs = SentencePairs(Packed(texts, pad=PAD), size=4, length=8, seed=0)
    relations = []
    for number in range(20):
        for one, other, relation in epoch(pairs, number):
            assert (other[0] == one[-1] + 1) == (relation == 0)
            relations.append(relation)
    assert 0.3 < np.mean(relations) < 0.7


@pytest.mark.parametrize(
    ("texts", "length", "words"),
    [
        (2, 20, "2 sentences of one document are too few"),
        (0, 20, "0 sentences of one document are too few"),
        (9, 3, "batch.max_length=4: a pair takes at least 5 tokens"),
    ],
)
def test_what_has_no_pairs_is_named(texts: int, length: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        SentencePairs(Packed([[FIRST, EOS]] * texts, pad=PAD), size=4, length=length)
