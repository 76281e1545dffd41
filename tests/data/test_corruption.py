"""Span corruption has the counts of T5, its texts come together again, and its noise is uniform."""

import itertools
from collections import Counter

import numpy as np
import pytest

from attnlab.data.blocks import Blocks
from attnlab.data.corruption import Corrupted, Spans
from attnlab.data.vocabulary import Special
from attnlab.errors import UserError
from tests.refusals import check_refused

SPECIAL = Special(reserved=tuple(range(900, 1000)))
SPANS = Spans(SPECIAL)
EOS = SPECIAL.eos


def reassembled(source: np.ndarray, target: np.ndarray) -> list[int]:
    """The text: behind each sentinel of the source what stands behind it in the target."""
    assert source[-1] == target[-1] == EOS
    told: dict[int, list[int]] = {}
    for index in target[:-1].tolist():
        if index in SPECIAL.reserved:
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
    spans, rng = Spans(SPECIAL, density=0.4, span=2.0), np.random.default_rng(0)
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
    blocks = Blocks(ids, size=4, length=raw, seed=0, special=SPECIAL)
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
    with pytest.raises(UserError, match=r"2 sentinels, and .* 28 spans; .*reserved=28"):
        Spans(Special(reserved=(7, 8))).check(568)
    check_refused(r"batch.max_length=2: a source has at least 3 tokens", SPANS.raw, 2)
