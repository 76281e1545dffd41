"""Random crops: what follows what, and every place equally often."""

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
    assert (crops(0)["source"] != crops(1)["source"]).any()
    assert crops.batches_per_epoch == 1 and crops.note == "8 crops of 5 tokens a step, of 20"
    assert set(begins) == set(range(1, 16))  # the last target is the last id
    expected = 3200 / 15
    # 99.9 %, 14 df
    assert sum((count - expected) ** 2 / expected for count in begins.values()) < 36


def test_what_cannot_be_cut_is_refused() -> None:
    ids = np.arange(7, dtype=np.int32)
    words = "max_length=7: config.data has 7 tokens, which are too few"
    with pytest.raises(UserError, match=words):
        Crops(ids, size=2, length=7, seed=0)
