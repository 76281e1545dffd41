"""Whatever makes the batches of texts: processes share the rows of a step, which depend on the seed
and the step alone; marks go with their targets, and what nobody can share or read is refused.
"""

import functools
from typing import Any

import numpy as np
import pytest

from attnlab.data.batching import TrainBatches
from attnlab.data.blocks import Blocks, Crops
from attnlab.data.columns import Examples, Packed
from attnlab.data.corruption import Corrupted, Spans
from attnlab.data.masking import Masked, Masking
from attnlab.data.next_sentence import SentencePairs
from attnlab.data.streams import Apart, Lanes, Turns, lanes
from attnlab.data.vocabulary import EOS, PAD, Special
from attnlab.errors import UserError
from tests.refusals import check_refused

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
        with pytest.raises(UserError, match="no text to read"):
            make.func(Packed([]) if maker == "in turn" else [], size=4, length=4)
