"""Every token of a stream or a text is predicted once, in its place, from the token before it."""

import numpy as np
import pytest

from attnlab.data.columns import Packed
from attnlab.data.streams import Apart, Lanes, Turns, lanes, shifted_texts, widths
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.errors import UserError

IDS = np.arange(10, 33, dtype=np.int32)  # 23 ids: lanes of 6, 6, 6, 5


@pytest.mark.quick
@pytest.mark.parametrize("length", [1, 4, 6, 50])
@pytest.mark.parametrize("size", [1, 4, 23, 30])
def test_every_token_is_predicted_once_from_the_one_before_it(size: int, length: int) -> None:
    lanes, columns = Lanes(IDS, size=size, length=length), -(-23 // size)
    assert lanes.batches_per_epoch == -(-columns // length) and lanes.shapes == ((size, length),)
    epoch = [lanes(step) for step in range(lanes.batches_per_epoch)]
    target, source = (np.hstack([batch[name] for batch in epoch]) for name in ("target", "source"))
    read = []
    for row, (before, after) in enumerate(zip(source, target, strict=True)):
        own = IDS[row * columns : (row + 1) * columns]
        # padding only at the end
        np.testing.assert_array_equal(after, np.pad(own, (0, len(after) - len(own))))
        np.testing.assert_array_equal(before != PAD, after != PAD)
        read += before[before != PAD].tolist()
    assert read == [EOS, *IDS[:-1]]
    assert [batch["fresh"].tolist() for batch in epoch] == [
        [int(step == 0)] * size for step in range(len(epoch))
    ]
    assert all(array.dtype == np.int32 for batch in epoch for array in batch.values())
    for name, values in epoch[-1].items():  # an epoch follows another
        np.testing.assert_array_equal(values, lanes(3 * len(epoch) - 1)[name])


TEXTS = Packed(
    [[10 + 20 * t + i for i in range(n)] + [EOS] for t, n in enumerate((7, 0, 3, 12, 1, 4, 5))]
)  # 2, 1, 1, 4, 1, 2, 2 steps


@pytest.mark.quick
@pytest.mark.parametrize(("size", "steps"), [(1, 13), (3, 5), (7, 4), (9, 4)])
def test_every_text_is_read_whole_in_a_lane_of_its_own(size: int, steps: int) -> None:
    """From a fresh BOS to its EOS, in steps that follow each other; padding only at the end of what
    a text has left.
    """
    turns = lanes("in_turn", TEXTS, size=size, length=4)
    assert isinstance(turns, Turns)
    assert turns.batches_per_epoch == steps
    assert turns.shapes == ((size, 4),)
    epoch = [turns(step) for step in range(steps)]
    read = []
    for row in range(size):
        for batch in epoch:
            source, target = (
                batch[name][row][batch[name][row] != PAD].tolist() for name in ("source", "target")
            )
            assert batch["target"][row].tolist() == [*target, *[PAD] * (4 - len(target))]
            assert len(source) == len(target)
            if batch["fresh"][row]:
                read.append(([], []))
            if target:
                read[-1][0].extend(source)
                read[-1][1].extend(target)
    assert sorted(target for _, target in read) == sorted(ids.tolist() for ids in TEXTS)
    assert all(source == [BOS, *target[:-1]] for source, target in read)
    np.testing.assert_array_equal(turns(steps + 1)["target"], epoch[1]["target"])
    assert all(array.dtype == np.int32 for array in epoch[0].values())


def test_texts_apart_begin_with_bos_and_are_fresh() -> None:
    texts = [[10, 11, EOS], [12, EOS], [EOS], [13, 14, 15, 16, EOS]]
    batches = Apart(Packed(texts), size=2, max_length=4, seed=0)
    assert batches.left_out == 1
    assert widths(4) == (1, 2, 4)
    assert widths(1) == (1,)
    assert widths(41) == (11, 21, 41)
    seen = []
    for step in range(batches.batches_per_epoch):
        batch = batches(step)
        assert batch["fresh"].tolist() == [1, 1]
        for source, target in zip(batch["source"], batch["target"], strict=True):
            target = target[target != PAD].tolist()
            assert source[source != PAD].tolist() == [BOS, *target[:-1]][: len(target)]
            seen += [target] if target else []
    assert sorted(seen) == sorted(texts[:3])
    assert shifted_texts(Packed(texts)).packed("source")[2].tolist() == [BOS]
    with pytest.raises(UserError, match="max_length=3: of 1 pairs, the shortest has 4 tokens"):
        Apart(Packed(texts[:1]), size=1, max_length=2, extra_tokens=1, seed=0)
