"""Batches are a pure function of (seed, step) that shows every example once an epoch, in static
shapes.
"""

import time
from typing import Any

import numpy as np
import pytest

from attnlab.data.batching import TrainBatches, evaluation_batches
from attnlab.data.columns import Examples
from attnlab.data.vocabulary import EOS, PAD
from tests.refusals import check_refused


def examples(n: int = 200, longest: int = 30, seed: int = 0) -> Examples:
    """Pairs whose first source token is 10 + their number, of random lengths."""
    rng = np.random.default_rng(seed)
    source = [[10 + i, *rng.integers(4, 9, rng.integers(0, longest - 1)), EOS] for i in range(n)]
    target = [[*rng.integers(4, 9, rng.integers(0, longest - 1)), EOS] for _ in range(n)]
    return Examples(source=source, target=target)


def train_batches(data: Examples | None = None, **changes: Any) -> TrainBatches:
    settings: dict[str, Any] = {"size": 8, "unit": "sentences", "buckets": (8, 16, 32), "seed": 1}
    changes = {**settings, "max_length": 32, **changes}
    return TrainBatches(examples() if data is None else data, **changes)


def numbers(batch: dict[str, np.ndarray]) -> list[int]:
    """The examples in a batch, rows of padding left out."""
    first = batch["source"][:, 0]
    return [int(token) - 10 for token in first if token != PAD]


@pytest.mark.quick
@pytest.mark.parametrize("unit,size", [("sentences", 8), ("tokens", 128)])
def test_each_epoch_has_every_example_once_and_unaltered(unit: str, size: int) -> None:
    data = examples()
    batches = train_batches(data, unit=unit, size=size)
    for epoch in range(3):
        seen: list[int] = []
        shapes: list[tuple[int, ...]] = []
        for step in range(batches.batches_per_epoch):
            batch = batches(epoch * batches.batches_per_epoch + step)
            assert batch["source"].shape == batch["target"].shape
            assert batch["source"].shape in batches.shapes
            assert batch["source"].dtype == batch["target"].dtype == np.int32
            width = batch["source"].shape[1]
            for row, number in enumerate(numbers(batch)):
                # the narrowest bucket that holds both sides
                longer = max(len(column[number]) for column in data.sequences)
                assert width == next(bucket for bucket in (8, 16, 32) if longer <= bucket)
                for side in ("source", "target"):
                    ids = data.packed(side)[number]
                    assert batch[side][row].tolist() == ids.tolist() + [PAD] * (width - len(ids))
            seen += numbers(batch)
            shapes.append(batch["source"].shape)
        assert sorted(seen) == list(range(200))
        assert tuple(map(shapes.count, batches.shapes)) == batches.counts


def test_epochs_differ_in_order() -> None:
    batches = train_batches()
    n = batches.batches_per_epoch
    order = [[numbers(batches(epoch * n + i)) for i in range(n)] for epoch in (0, 1)]
    assert order[0] != order[1]
    widths = [batches(i)["source"].shape[1] for i in range(n)]
    assert widths != sorted(widths)  # buckets are mixed, not one after the other


def test_rows_by_tokens_are_a_multiple_and_never_none() -> None:
    batches = train_batches(unit="tokens", size=100, multiple=3)
    assert batches.shapes == ((12, 8), (6, 16), (3, 32))
    assert train_batches(unit="tokens", size=16, multiple=2).shapes == ((2, 8), (2, 16), (2, 32))


def test_too_long_pairs_are_counted_and_the_limit_is_a_bucket() -> None:
    data = examples()
    lengths = data.lengths
    batches = train_batches(data, max_length=20)
    assert batches.left_out == (lengths > 20).sum() > 0
    assert {width for _, width in batches.shapes} == {8, 16, 20}
    seen = sorted(n for step in range(batches.batches_per_epoch) for n in numbers(batches(step)))
    assert seen == [i for i, length in enumerate(lengths) if length <= 20]
    # the limit is the last bucket
    assert train_batches(data, buckets=(8,), max_length=40).left_out == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 10, "multiple": 4}, r"batch\.size=10 is not divisible by 4 .*take 8 or 12"),
        ({"size": 3, "multiple": 4}, "take 4"),
        ({"size": 8, "process_count": 3}, "not divisible by 3"),
        ({"unit": "token"}, "batch.unit='token': expected 'sentences' or 'tokens'"),
        ({"max_length": 1}, r"within config\.batch\.max_length=1: of 200 pairs, the shortest has"),
        ({"buckets": (0, 8)}, "must be positive"),
        ({"size": 0, "unit": "tokens"}, "batch.size=0 must be positive"),
    ],
)
def test_impossible_settings(changes: dict[str, Any], message: str) -> None:
    check_refused(message, train_batches, **changes)


def test_no_examples_at_all_and_evaluation_in_batches_of_no_rows() -> None:
    nothing = Examples(source=[], target=[])
    check_refused("there is none at all", train_batches, nothing)
    assert evaluation_batches(nothing, size=4, buckets=(8,)) == []
    check_refused("size=0 must be positive", evaluation_batches, examples(), size=0, buckets=(8,))


def test_evaluation_has_every_example_once_in_a_fixed_order_whatever_its_length() -> None:
    """From short to long, in the narrowest width; only the first batch is filled up."""
    data = examples(longest=60)
    batches = evaluation_batches(data, size=48, buckets=(8, 16))
    actual = np.concatenate([indices for indices, _ in batches])
    assert sorted(actual[actual >= 0].tolist()) == list(range(200))
    assert (np.diff(data.lengths[actual[actual >= 0]]) >= 0).all()
    assert [(indices < 0).sum() for indices, _ in batches] == [40, 0, 0, 0, 0]
    widths = (8, 16, 32, data.lengths.max())
    for indices, batch in batches:
        longest = data.lengths[indices[indices >= 0]].max()
        assert batch["source"].shape == (48, min(width for width in widths if width >= longest))
        assert [i for i in indices.tolist() if i >= 0] == numbers(batch)
        assert (batch["source"][indices < 0] == PAD).all()
        assert (batch["target"][indices < 0] == PAD).all()
        for row, i in zip(batch["target"], indices, strict=True):
            if i >= 0:
                ids = data.packed("target")[i].tolist()
                assert row[: len(ids)].tolist() == ids
    again = evaluation_batches(data, size=48, buckets=(8, 16))
    assert all(np.array_equal(a, b) for (a, _), (b, _) in zip(batches, again, strict=True))


def test_a_batch_takes_well_under_a_millisecond() -> None:
    batches = train_batches(examples(2000), size=64)
    batches(0)
    times = []
    for step in range(30):
        start = time.perf_counter()
        batches(step % batches.batches_per_epoch)
        times.append(time.perf_counter() - start)
    assert sorted(times)[10] < 1e-3
