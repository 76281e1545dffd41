"""Texts of one side of pairs."""

from __future__ import annotations

import pytest

from attnlab.data.associations import Associations
from attnlab.data.grammar import Grammar
from attnlab.data.one_side import OneSide
from attnlab.errors import UserError


def test_the_side_that_is_named_in_its_order() -> None:
    def grammar() -> Grammar:
        return Grammar(examples=5, valid=3, test=2)

    for side, number in (("source", 0), ("target", 1)):
        assert OneSide(grammar, side).texts("valid") == [
            pair[number] for pair in grammar().pairs("valid")
        ]  # type: ignore[arg-type]
    assert OneSide("grammar").texts("test")[0] == Grammar().pairs("test")[0][1]


def test_a_source_without_pairs_is_named() -> None:
    with pytest.raises(UserError, match="Associations has no pairs"):
        OneSide(Associations).texts("train")
