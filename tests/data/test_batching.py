"""Batches are a pure function of (seed, step) that shows every example once an epoch, in static shapes.
Whatever makes batches of texts: processes share the rows of a step, which depend on the seed and the
step alone; marks go with their targets, and what nobody can share or read is refused.
"""

import functools
import time
from typing import Any

import numpy as np
import pytest

from attnlab.data.batching import TrainBatches, evaluation_batches
from attnlab.data.blocks import Blocks, Crops
from attnlab.data.columns import Examples, Packed
from attnlab.data.denoising import Corrupted, Masked, Masking, Spans
from attnlab.data.next_sentence import SentencePairs
from attnlab.data.streams import Apart, Lanes, Turns, lanes
from attnlab.data.vocabulary import EOS, PAD, Special
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


LENGTHS = (7, 0, 3, 12, 1, 4, 5, 0, 6, 2)
TEXTS = Packed([[10 + 20 * text + i for i in range(n)] + [EOS] for text, n in enumerate(LENGTHS)])
SPECIAL = Special(reserved=tuple(range(300, 350)))


def masked(of: Any, *arguments: Any, size: int, seed: int, **options: Any) -> Masked:
    """Batches whose texts are masked."""
    inner = of(*arguments, size=size, seed=seed, special=SPECIAL, **options)
    first = options.get("process_index", 0) * size // options.get("process_count", 1)
    return Masked(inner, Masking(SPECIAL, 300), seed, first)


def corrupted(*arguments: Any, size: int, seed: int, **options: Any) -> Corrupted:
    """Batches whose texts are corrupted."""
    inner = Blocks(*arguments, size=size, seed=0, special=SPECIAL, **options)
    first = options.get("process_index", 0) * size // options.get("process_count", 1)
    return Corrupted(inner, Spans(SPECIAL, 0.4, 1.5), options["length"], seed, first)


COLUMNS = Examples(source=TEXTS, target=[*TEXTS][::-1])
WIDTHS: dict[str, Any] = {"buckets": (4, 8), "max_length": 16, "seed": 1}
MAKERS: dict[str, functools.partial[Any]] = {
    "rows of buckets": functools.partial(TrainBatches, COLUMNS, unit="sentences", **WIDTHS),
    "tokens of buckets": functools.partial(
        lambda *data, size, **options: TrainBatches(*data, size=16 * size, **options),
        *(COLUMNS,),
        **{"unit": "tokens", **WIDTHS},
    ),
    "masked apart": functools.partial(masked, Apart, TEXTS, max_length=13, seed=3),
    "masked blocks": functools.partial(masked, Blocks, TEXTS.ids, length=9, seed=3),
    "corrupted": functools.partial(corrupted, TEXTS.ids, length=9, seed=3),
    "lanes": functools.partial(Lanes, TEXTS.ids, length=4),
    "in turn": functools.partial(Turns, TEXTS, length=4),
    "blocks": functools.partial(Blocks, TEXTS.ids, length=4, seed=1),
    "crops": functools.partial(Crops, TEXTS.ids, length=4, seed=1),
    "pairs": functools.partial(SentencePairs, TEXTS, length=20, seed=5),
}
every_maker = pytest.mark.parametrize("maker", MAKERS)


@every_maker
def test_processes_share_the_rows_of_a_step(maker: str) -> None:
    make = MAKERS[maker]
    whole = make(size=6)
    shares = [make(size=6, process_index=index, process_count=3) for index in range(3)]
    assert [(rows // 3, width) for rows, width in whole.shapes] == list(shares[0].shapes)
    for step in (5, 0, 2):  # a step needs no other
        for name, values in whole(step).items():
            assert values.dtype == np.int32
            joined = np.concatenate([share(step)[name] for share in shares])
            np.testing.assert_array_equal(values, joined)
            np.testing.assert_array_equal(values, make(size=6)(step)[name])
    if "seed" in make.keywords:
        other = make(size=6, seed=9)
        batches = [(whole(step)["target"], other(step)["target"]) for step in range(4)]
        assert any(a.shape != b.shape or (a != b).any() for a, b in batches)


@pytest.mark.parametrize(("texts", "kind"), [("joined", Lanes), ("in_turn", Turns)])
def test_what_stands_beside_the_targets_goes_with_them(texts: str, kind: type) -> None:
    marks = Packed(ids % 2 for ids in TEXTS)
    batches = lanes(texts, TEXTS, size=4, length=4, extra={"mark": marks})
    assert isinstance(batches, kind)
    for step in range(batches.batches_per_epoch):
        batch = batches(step)
        expected = np.where(batch["target"] == PAD, 0, batch["target"] % 2)
        np.testing.assert_array_equal(batch["mark"], expected)


@every_maker
def test_rows_that_devices_cannot_share_and_nothing_to_read_are_named(maker: str) -> None:
    make = MAKERS[maker]
    if maker != "tokens of buckets":
        check_refused("config.batch.size=4 is not divisible by 3", make, size=4, multiple=3)
    if maker in ("lanes", "in turn", "blocks"):
        words = "no text to read"
        check_refused(words, make.func, Packed([]) if maker == "in turn" else [], size=4, length=4)
