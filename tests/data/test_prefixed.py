"""Sources behind a prefix."""

from __future__ import annotations

import pytest

from attnlab.data import SOURCES
from attnlab.data.copying import Copying
from attnlab.data.prefixed import Prefixed
from attnlab.errors import UserError


def test_the_prefix_stands_before_every_source_and_no_target() -> None:
    node = {"name": "copying", "examples": 5, "valid": 3, "test": 2}
    for split in ("train", "valid", "test"):
        plain = Copying(examples=5, valid=3, test=2).pairs(split)
        found = SOURCES.resolve("prefixed")(node, "copy: ").pairs(split)
        assert found == [(f"copy: {source}", target) for source, target in plain]


def test_a_source_without_pairs_has_no_prefix() -> None:
    with pytest.raises(UserError, match="Associations has no pairs"):
        Prefixed("associations").pairs("train")
