"""The benchmark of shards reads what it has made, and sees the memory of a command."""

import os
from pathlib import Path

import numpy as np
import pytest

from attnlab.data.vocabulary import EOS
from benchmarks import shards


def test_what_is_read(tmp_path: Path) -> None:
    ids = shards._shards(tmp_path, 60_000)
    assert len(ids) == 200 and 40_000 < len(ids.ids) < 80_000
    assert (ids.ids[:] == EOS).sum() == 200
    np.testing.assert_array_equal([one[-1] for one in ids[:20]], EOS)
    counted = []
    assert shards._rate(counted.append, 0.05) > 0 and counted[:3] == [0, 1, 2]


def test_text_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "KINDS", 2_000)
    shards._written(tmp_path / "a.txt", 100_000)
    text = (tmp_path / "a.txt").read_text()
    assert 100_000 <= len(text) < 3_000_000 and len(text.split("\n")[0].split()) == 20
    memory, seconds = shards._of_tree(os.getpid())
    assert memory > 10 * 2**20 and seconds > 0 and shards._own_memory() > 0
