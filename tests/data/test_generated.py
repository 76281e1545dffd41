"""Generated sources count their examples and give the same ones on every machine."""

from __future__ import annotations

import pytest

from attnlab.data import SOURCES
from attnlab.data.dataset import fingerprint_of_texts
from attnlab.data.generated import Generated


def test_count_and_the_base_itself() -> None:
    wanted = [5, 1_000, 1_000]
    assert [Generated(examples=5).count(split) for split in ("train", "valid", "test")] == wanted
    with pytest.raises(NotImplementedError):
        Generated().pairs("train")
    with pytest.raises(NotImplementedError):
        Generated().alignment(("", ""))


def test_the_pairs_are_the_same_on_every_machine() -> None:
    """A number measured on generated data means something elsewhere only as long as these hold."""
    found = {
        name: fingerprint_of_texts(SOURCES.resolve(name)(examples=500).pairs("train"))[:12]
        for name in ("dates", "grammar", "copying")
    }
    assert found == {"dates": "45fefdca87af", "grammar": "e83733ae9e36", "copying": "b3a2f43c733b"}


def test_every_source_in_the_table_resolves_and_has_only_defaults() -> None:
    for name in SOURCES.names():
        assert SOURCES.resolve(name)(**SOURCES.defaults(name)) == SOURCES.resolve(name)()
