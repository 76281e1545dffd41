"""Texts that share a row are modelled as if each stood alone."""

import numpy as np
import pytest

from attnlab.data.blocks import Blocks
from tests.tasks.tiny import loader, noisy
from tests.tasks.tiny_language import SHARED, SIZES

SMALL = [
    *(*SHARED[1:], "system.width=8", "system.hidden=16"),
    *("system.attention.heads=2", "decoding.batch=4"),
]
SCHEMES = {
    "learned": [],
    "sinusoidal": ["system.positions=sinusoidal"],
    "rope": ["system.positions=none", "system.attention.positions=rope"],
    "alibi": ["system.positions=none", "system.attention.positions=alibi"],
    "t5": ["system.positions=none", "system.attention.positions=t5"],
    "window": ["system.visibility=window", "system.visibility.width=3"],
}


load = loader("language_modelling.py:decoder", SMALL, tuple(SIZES))


full = pytest.mark.full  # mechanisms and positions are tested on packed rows where they are at home


@pytest.mark.parametrize(
    "scheme", ["learned", *(pytest.param(name, marks=full) for name in [*SCHEMES][1:])]
)
def test_texts_of_a_row_are_scored_as_texts_apart(scheme: str) -> None:
    """A row that holds the whole split cuts no text."""
    packed = load("batch.texts=packed", "batch.max_length=150", *SCHEMES[scheme])
    apart = load("batch.texts=apart", "batch.max_length=150", *SCHEMES[scheme])
    params = noisy(apart, 0.3)
    assert len(packed.data.ids["valid"].ids) < 150
    one, other = (task.evaluate(params, "valid") for task in (packed, apart))
    assert one == pytest.approx(other, rel=2e-6)
    rows = [task.items(params, "valid", []) for task in (packed, apart)]
    assert rows[0] is not None and rows[1] is not None
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(*(one.rows[name] for one in rows), rtol=1e-5, atol=1e-6)


def test_training_reads_shuffled_rows() -> None:
    task = load("batch.texts=packed", "batch.max_length=12")
    batches = task.batches(1)
    assert isinstance(batches, Blocks) and "shuffled" in batches.note
    assert task.remembered() is None
    batch = batches(0)
    assert batch["source"].shape == (8, 12) and batch["segments"].max() > 0


def test_crops_are_trained_on_anywhere_and_scored_in_turn_from_nothing() -> None:
    task = load("batch.texts=crops", "batch.max_length=12")
    batch, stream = task.batches(1)(0), task.data.ids["train"].ids
    for source, target in zip(batch["source"], batch["target"], strict=True):
        np.testing.assert_array_equal(source[1:], target[:-1])
        assert any((stream[at : at + 12] == target).all() for at in range(1, len(stream) - 11))
    params = noisy(task, 0.3)
    actual = task.evaluate(params, "valid")
    totals = task.totals(task.batch_sums(params, "valid"), "valid")
    assert totals["tokens"] == len(task.data.ids["valid"].ids)
    joined = load("batch.texts=joined", "batch.max_length=12")
    assert actual == joined.evaluate(params, "valid")  # a decoder carries nothing on
