"""Texts packed into rows: every token once an epoch, in its place, and the texts of a row kept apart."""

import math
from collections import Counter

import numpy as np
import pytest

from attnlab.data.blocks import Blocks, Crops, permuted, windows
from attnlab.data.columns import Packed
from attnlab.data.vocabulary import BOS, EOS, PAD, Special
from tests.refusals import check_refused

LENGTHS = (3, 0, 7, 1, 12, 0, 2)
TEXTS = Packed([[10 + 20 * text + i for i in range(n)] + [EOS] for text, n in enumerate(LENGTHS)])
IDS = TEXTS.ids  # 32 of them


def rows(blocks: Blocks, epoch: int = 0) -> dict[str, np.ndarray]:
    """All rows of an epoch, without those of padding."""
    first = epoch * blocks.batches_per_epoch
    every = [blocks(first + step) for step in range(blocks.batches_per_epoch)]
    actual = {name: np.concatenate([batch[name] for batch in every]) for name in every[0]}
    real = actual["target"][:, 0] != PAD
    return {name: values[real] for name, values in actual.items()}


@pytest.mark.quick
@pytest.mark.parametrize("length", [1, 5, 8, 32, 40])
@pytest.mark.parametrize("size", [1, 3])
def test_every_token_is_predicted_once_and_from_its_own_text(size: int, length: int) -> None:
    blocks = Blocks(IDS, size=size, length=length)
    count = math.ceil(len(IDS) / length)
    assert blocks.batches_per_epoch == math.ceil(count / size)
    actual = rows(blocks)
    flat = {name: values.reshape(-1)[: len(IDS)] for name, values in actual.items()}
    np.testing.assert_array_equal(flat["target"], IDS)
    # what is read, text by text: BOS and all but the end
    read = np.concatenate([np.append([BOS], one[:-1]) for one in TEXTS])
    np.testing.assert_array_equal(flat["source"], read)
    number = np.repeat(np.arange(len(TEXTS)), TEXTS.lengths)
    for row, segments in enumerate(actual["segments"]):
        own = number[row * length : (row + 1) * length]
        np.testing.assert_array_equal(segments[: len(own)], own - own[0])
        assert (segments[len(own) :] == -1).all()
    assert all(values.dtype == np.int32 for values in blocks(0).values())
    assert blocks(0)["fresh"].tolist() == [1] * size


def test_an_epoch_has_the_same_rows_in_another_order() -> None:
    ordered = rows(Blocks(IDS, size=2, length=4))["target"].tolist()
    shuffled = Blocks(IDS, size=2, length=4, seed=3)
    epochs = [rows(shuffled, epoch)["target"].tolist() for epoch in range(3)]
    assert all(sorted(one) == sorted(ordered) for one in epochs)
    assert len({str(one) for one in [ordered, *epochs]}) == 4


def test_what_stands_beside_the_targets_and_the_special_ids_of_others() -> None:
    own = Special(pad=-1, bos=EOS, eos=EOS, unk=None)
    blocks = Blocks(IDS, size=1, length=20, extra={"mark": IDS % 2}, special=own)
    last = blocks(1)
    real = last["target"] != -1
    assert real.sum() == 12 and (last["source"] == -1).sum() == 8
    np.testing.assert_array_equal(last["mark"][real], last["target"][real] % 2)
    assert blocks(0)["source"][0, 0] == EOS


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 1000])
def test_the_order_is_of_all_numbers(count: int) -> None:
    actual = permuted(np.arange(count), count, (5, 0))
    assert sorted(actual.tolist()) == list(range(count))
    one_by_one = [int(permuted(np.array([at]), count, (5, 0))[0]) for at in range(min(count, 20))]
    assert one_by_one == actual[:20].tolist()


def test_the_order_is_random() -> None:
    """Neighbours, and where a number comes to stand, are as chance has them."""
    count, draws = 64, 400
    actual = np.array([permuted(np.arange(count), count, (seed, 0)) for seed in range(draws)])
    expected = draws / count
    for place in (0, 1, 31, 63):
        seen = np.bincount(actual[:, place], minlength=count)
        chi = ((seen - expected) ** 2 / expected).sum()  # 63 degrees of freedom: 63 +- 11
        assert 20 < chi < 110
    together = np.mean(np.abs(np.diff(actual, axis=1)) == 1)
    assert abs(together - 2 / count) < 0.01


def test_windows_reach_over_both_ends() -> None:
    assert windows(np.arange(5), np.array([-2, 3]), 4).tolist() == [[0, 0, 0, 1], [3, 4, 0, 0]]


def test_crops_begin_anywhere_and_every_place_is_equally_likely() -> None:
    ids = np.arange(100, 120, dtype=np.int32)
    crops = Crops(ids, size=8, length=5, seed=3)
    begins = Counter[int]()
    for step in range(400):
        batch = crops(step)
        assert batch["source"].shape == (8, 5) and batch["fresh"].all()
        np.testing.assert_array_equal(batch["target"], batch["source"] + 1)
        np.testing.assert_array_equal(np.diff(batch["source"], axis=1), 1)
        begins.update((batch["target"][:, 0] - 100).tolist())
    assert (crops(0)["source"] != crops(1)["source"]).any()
    assert crops.batches_per_epoch == 1 and crops.note == "8 crops of 5 tokens a step, of 20"
    assert set(begins) == set(range(1, 16))  # the last target is the last id
    expected = 3200 / 15
    # 99.9 %, 14 df
    assert sum((count - expected) ** 2 / expected for count in begins.values()) < 36


def test_crops_of_too_few_tokens_are_refused() -> None:
    ids = np.arange(7, dtype=np.int32)
    words = "max_length=7: config.data has 7 tokens, which are too few"
    check_refused(words, Crops, ids, size=2, length=7, seed=0)
