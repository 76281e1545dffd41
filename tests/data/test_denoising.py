"""What masked language modelling hides: how much, what stands in its place, and of what it is a function.
Span corruption has the counts of T5, its texts come together again, and its noise is uniform.
"""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from attnlab.data.blocks import Blocks
from attnlab.data.columns import Packed
from attnlab.data.denoising import Corrupted, Masked, Masking, Spans, draws, with_bos
from attnlab.data.streams import Apart
from attnlab.data.vocabulary import BOS, EOS, PAD, Special
from tests.refusals import check_refused

MASK = 4
SPECIAL = Special(reserved=(MASK,))


def whole(masking: Masking, tokens: np.ndarray, *of: Any) -> tuple[np.ndarray, np.ndarray]:
    """What is read [b,T], and what is to be told at each place [b,T], padding elsewhere."""
    actual = masking(tokens, *of)
    target, there = np.full(tokens.shape, PAD), actual["target"] != PAD
    row = np.broadcast_to(np.arange(len(tokens))[:, None], there.shape)
    target[row[there], actual["places"][there]] = actual["target"][there]
    assert (target != PAD).sum() == there.sum()  # no place twice
    return actual["source"], target


def rows(count: int, length: int, vocabulary: int = 1000, seed: int = 0) -> np.ndarray:
    """Texts of no more than `length` tokens with BOS and EOS, ids from 5 on."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, vocabulary, (count, length))
    ends = rng.integers(1, length, count)
    ids[:, 0] = BOS
    ids[np.arange(count), ends] = EOS
    return np.where(np.arange(length) <= ends[:, None], ids, PAD).astype(np.int32)


def test_shares_of_a_hundred_thousand_tokens() -> None:
    """15 % are to be told; of these 80 % are hidden, 10 % another token, 10 % themselves; each
    within four standard deviations.
    """
    rng = np.random.default_rng(1)
    tokens = rng.integers(5, 1000, (1000, 102)).astype(np.int32)
    tokens[:, 0], tokens[:, -1] = BOS, EOS
    read, target = whole(Masking(SPECIAL, 1000), tokens, (3, 7), np.arange(1000))
    chosen = target != PAD
    assert (chosen.sum(axis=1) == 15).all()  # 15.3 of 102, rounded
    n = chosen.sum()
    for share, actual in (
        (0.8, (read == MASK)[chosen]),
        (0.1, ((read != MASK) & (read != tokens))[chosen]),
        (0.1, (read == tokens)[chosen]),
    ):
        assert abs(actual.mean() - share) < 4 * np.sqrt(share * (1 - share) / n)
    others = read[chosen & (read != MASK) & (read != tokens)]
    assert abs(others.mean() - 499.5) < 4 * 1000 / np.sqrt(12 * len(others))
    assert others.min() < 30 and others.max() > 970
    np.testing.assert_array_equal(read[~chosen], tokens[~chosen])
    np.testing.assert_array_equal(target[chosen], tokens[chosen])
    places = chosen.sum(axis=0)
    assert places[0] == places[-1] == 0
    assert abs(places[1:-1] - 150).max() < 4.5 * np.sqrt(150 * 0.85)


@pytest.mark.parametrize(("rate", "most"), [(0.15, 0), (0.15, 2), (0.5, 0), (1.0, 0)])
def test_the_number_of_a_row(rate: float, most: int) -> None:
    """min(most, max(1, round(rate L))), and no more than there are candidates."""
    tokens = np.concatenate([rows(60, 24), np.full((1, 24), PAD, np.int32)])
    masking = Masking(SPECIAL, 1000, rate, most)
    _, target = whole(masking, tokens, (0,), np.arange(61))
    for row, told in zip(tokens, target, strict=True):
        length = int((row != PAD).sum())
        expected = min(most or length, max(1, round(rate * length)))
        candidates = max(length - 2, 0)
        assert (told != PAD).sum() == min(expected, candidates)
        assert not {BOS, EOS} & set(told.tolist())


def test_a_row_is_masked_alike_whatever_is_beside_it() -> None:
    tokens, mask = rows(20, 16), Masking(SPECIAL, 1000)
    every = whole(mask, tokens, (5, 2), np.arange(20))
    order = np.array([7, 3, 19])
    wider = np.pad(tokens[order], ((0, 0), (0, 9)))
    for one, other in zip(every, whole(mask, wider, (5, 2), order), strict=True):
        np.testing.assert_array_equal(one[order], other[:, :16])
    for key, numbers in (((5, 3), np.arange(20)), ((6, 2), np.arange(20)), ((5, 2), order[:1])):
        told = whole(mask, tokens[: len(numbers)], key, numbers)[1]
        assert (told != every[1][: len(numbers)]).any()


def test_draws_are_uniform_and_not_alike() -> None:
    actual = draws((1, 2), np.arange(400), 250)
    assert actual.min() >= 0.0 and actual.max() < 1.0
    counts = np.histogram(actual, 100, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 150  # chi-squared of 99 degrees, p = 7e-4
    for other in (actual[1:], actual[:, 1:], draws((2, 1), np.arange(400), 250)):
        same = actual[: len(other), : other.shape[1]]
        assert abs(np.corrcoef(same.ravel(), other.ravel())[0, 1]) < 0.015


@pytest.mark.parametrize("how", ["apart", "packed"])
def test_an_epoch_has_every_token_and_the_next_other_batches(how: str) -> None:
    rng = np.random.default_rng(0)
    ids = Packed([[*rng.integers(5, 50, n), EOS] for n in rng.integers(1, 9, 40)])
    shared: dict[str, Any] = {"size": 8, "seed": 3, "special": SPECIAL}
    inner = Apart(ids, max_length=9, **shared)
    if how == "packed":
        inner = Blocks(ids.ids, length=9, **shared)
    batches = Masked(inner, Masking(SPECIAL, 50), 3, 0)
    steps = batches.batches_per_epoch
    seen = []
    for step in range(steps):
        batch = batches(step)
        tokens, told = batch["source"].copy(), batch["target"] != PAD
        row = np.broadcast_to(np.arange(8)[:, None], told.shape)
        tokens[row[told], batch["places"][told]] = batch["target"][told]
        real = (tokens != PAD).any(axis=1)
        assert (tokens[real, 0] == BOS).all() and tokens.shape[1] <= 10
        seen.append(tokens[:, 1:][tokens[:, 1:] != PAD])
        assert ("segments" in batch) == (how == "packed")
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.sort(ids.ids))
    again = [(batches(step)["source"], batches(step + steps)["source"]) for step in range(steps)]
    assert any(one.shape != other.shape or (one != other).any() for one, other in again)
    assert batches.shapes[0][1] <= 10 and len(batches.counts) == len(batches.shapes)


def test_what_begins_a_row_belongs_to_its_first_text() -> None:
    batch = {
        "target": np.array([[7, EOS, 8], [PAD, PAD, PAD]], np.int32),
        "segments": np.array([[0, 0, 1], [-1, -1, -1]], np.int32),
    }
    actual = with_bos(batch, SPECIAL)
    assert actual["source"].tolist() == [[BOS, 7, EOS, 8], [PAD] * 4]
    assert actual["segments"].tolist() == [[0, 0, 0, 1], [-1] * 4]


def test_a_vocabulary_without_a_mask() -> None:
    check_refused(r"set config\.vocabulary\.reserved=1", lambda: Masking(Special(), 10).mask)


def test_a_text_is_masked_anew_in_each_step() -> None:
    """Four rows, the same in every step, and what is hidden of them another."""
    ids = np.arange(5, 41, dtype=np.int32)
    batches = Masked(Blocks(ids, size=4, length=9, special=SPECIAL), Masking(SPECIAL, 50), 1, 0)
    one, other = batches(0), batches(1)
    np.testing.assert_array_equal(one["segments"], other["segments"])
    assert (one["places"] != other["places"]).any()
    np.testing.assert_array_equal(one["places"], batches(0)["places"])


SENTINELS = Special(reserved=tuple(range(900, 1000)))
SPANS = Spans(SENTINELS)


def reassembled(source: np.ndarray, target: np.ndarray) -> list[int]:
    """The text: behind each sentinel of the source what stands behind it in the target."""
    assert source[-1] == target[-1] == EOS
    told: dict[int, list[int]] = {}
    for index in target[:-1].tolist():
        if index in SENTINELS.reserved:
            now = told.setdefault(index, [])
        else:
            now.append(index)
    every = [told.get(one, [one]) for one in source[:-1].tolist()]
    return list(itertools.chain.from_iterable(every))


@pytest.mark.parametrize(
    ("source", "raw", "target"),
    [(64, 70, 14), (128, 141, 29), (256, 284, 58), (512, 568, 114), (1024, 1137, 229)],
)
def test_lengths_are_those_of_t5(source: int, raw: int, target: int) -> None:
    assert SPANS.raw(source) == raw and SPANS.lengths(raw)[1] == target
    assert SPANS.lengths(raw)[0] <= source < SPANS.lengths(raw + 1)[0]


def test_the_noise_of_512_tokens() -> None:
    assert SPANS.noise(568) == (85, 28) and SPANS.lengths(568) == (512, 114)
    assert SPANS.noise(2) == (1, 1) and SPANS.noise(10) == (2, 1)  # 1.5 is rounded to 2


@pytest.mark.parametrize("length", [2, 3, 10, 70, 568])
def test_source_and_target_are_the_text_and_sentinels_descend(length: int) -> None:
    ids = np.arange(100, 100 + length, dtype=np.int32)
    for seed in range(20):
        source, target = SPANS(ids, np.random.default_rng(seed))
        assert (len(source), len(target)) == SPANS.lengths(length)
        assert reassembled(source, target) == ids.tolist()
        _, count = SPANS.noise(length)
        expected = list(range(999, 999 - count, -1))
        for one in (source, target):
            assert [index for index in one.tolist() if index >= 900] == expected
        assert source[0] == ids[0] and source[-2] == expected[-1]  # ends with noise
        assert target[0] == expected[0] and target[-2] == ids[-1]  # no sentinel closes it


def test_all_ways_to_divide_noise_and_the_rest_are_equally_likely() -> None:
    """10 tokens, 4 of noise in 2 spans: 3 divisions of the noise, 5 of the rest."""
    spans, rng = Spans(SENTINELS, density=0.4, span=2.0), np.random.default_rng(0)
    assert spans.noise(10) == (4, 2)
    number = 6000
    actual = Counter(tuple(spans.marks(10, rng).tolist()) for _ in range(number))
    assert len(actual) == 15
    expected = number / 15
    chi = sum((count - expected) ** 2 / expected for count in actual.values())
    assert chi < 36.1  # 14 degrees of freedom, p = 0.001


def test_an_epoch_has_the_widths_of_its_text_and_loses_nothing_but_ends() -> None:
    rng = np.random.default_rng(3)
    texts = [np.append(rng.integers(10, 800, rng.integers(1, 40)), EOS) for _ in range(40)]
    ids = np.concatenate(texts).astype(np.int32)
    raw = SPANS.raw(32)
    blocks = Blocks(ids, size=4, length=raw, seed=0, special=SENTINELS)
    batches = Corrupted(blocks, SPANS, raw, 0, 0)
    for name, width in zip(("source", "target"), SPANS.lengths(raw), strict=True):
        assert batches(5)[name].shape == (4, width)
    read: Counter[int] = Counter()
    for step in range(batches.batches_per_epoch):
        batch = batches(step)
        for source, target in zip(batch["source"], batch["target"], strict=True):
            if source.any():
                read += Counter(reassembled(source[source != 0], target[target != 0]))
    lost = Counter(ids.tolist())
    del lost[EOS]  # ends of texts are left out, and a row of a single token
    assert (lost - read).total() <= 1 and not read - lost


def test_what_cannot_be_is_refused() -> None:
    words = r"2 sentinels, and .* 28 spans; .*reserved=28"
    check_refused(words, Spans(Special(reserved=(7, 8))).check, 568)
    check_refused(r"batch.max_length=2: a source has at least 3 tokens", SPANS.raw, 2)
