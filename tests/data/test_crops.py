"""Random crops: what follows what, every place equally often, random access, processes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from attnlab.data.crops import Crops
from attnlab.errors import UserError


def test_targets_follow_sources_and_every_place_is_equally_likely() -> None:
    ids = np.arange(100, 120, dtype=np.int32)
    crops = Crops(ids, size=8, length=5, seed=3)
    begins = Counter[int]()
    for step in range(400):
        batch = crops(step)
        assert batch["source"].shape == (8, 5) and batch["fresh"].all()
        np.testing.assert_array_equal(batch["target"], batch["source"] + 1)
        np.testing.assert_array_equal(np.diff(batch["source"], axis=1), 1)
        begins.update((batch["target"][:, 0] - 100).tolist())
    assert set(begins) == set(range(1, 16))  # the last target is the last id
    expected = 3200 / 15
    # 99.9 %, 14 df
    assert sum((count - expected) ** 2 / expected for count in begins.values()) < 36


def test_a_step_needs_no_other_and_processes_share_its_rows() -> None:
    ids = np.random.default_rng(0).integers(4, 9, 300).astype(np.int32)
    whole = Crops(ids, size=6, length=7, seed=1)
    parts = [
        Crops(ids, size=6, length=7, seed=1, process_index=i, process_count=3) for i in range(3)
    ]
    for step in (5, 0, 5):
        joined = np.concatenate([part(step)["source"] for part in parts])
        np.testing.assert_array_equal(joined, whole(step)["source"])
    assert (whole(0)["source"] != whole(1)["source"]).any()
    assert (whole(0)["source"] != Crops(ids, size=6, length=7, seed=2)(0)["source"]).any()
    assert whole.shapes == ((6, 7),) and parts[0].shapes == ((2, 7),)
    assert whole.batches_per_epoch == 8 and whole.note == "6 crops of 7 tokens a step, of 300"


def test_what_cannot_be_cut_is_refused() -> None:
    ids = np.arange(7, dtype=np.int32)
    words = "max_length=7: config.data has 7 tokens, which are too few"
    with pytest.raises(UserError, match=words):
        Crops(ids, size=2, length=7, seed=0)
    with pytest.raises(UserError):
        Crops(ids, size=3, length=2, seed=0, multiple=2)
