"""What components say of themselves, as text."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.struct
import jax
import pytest

from attnlab.attention.protocol import Attention, Capabilities, Memory
from attnlab.commands import describe
from attnlab.config.registry import Table
from attnlab.layers.cards import Card


@flax.struct.dataclass
class Kept(Memory):
    """keys [B,1,Tk,A],
    of the source.

    And more.
    """

    keys: jax.Array


class Base(Attention):
    """A base.

    Attributes:
      given: known to the code.
      rate, start: two of
        one kind.
    """

    rate: float = 0.5
    start: float = 1.0

    card = Card("family", 1999, "Somebody, 1999", "T^2", "T")

    def remember(self, source: jax.Array, valid: Any = None, capacity: Any = None) -> Kept:
        """Remembers."""
        raise NotImplementedError


class Heir(Base):
    """An heir. Other fields as in `Base`.

    Attributes:
      start: another one.
      end: (of it): all.
    """

    end: int = 3
    parts: ClassVar[Mapping[str, Table]] = {}


@dataclasses.dataclass
class Bare:
    """No formula, no card."""

    number: int = 4


def rule(width: int = 3) -> None:
    """A function."""


def test_a_card_is_of_the_one_that_carries_it() -> None:
    cells = ["family", "1999", "Somebody, 1999", "T^2", "T", "", ""]
    assert list(describe.card_cells(Base).values()) == cells
    for other in (Heir, Bare, rule):
        assert set(describe.card_cells(other).values()) == {""}


def test_fields_mean_what_the_nearest_docstring_says() -> None:
    fields = {x.name: (x.default, x.meaning) for x in describe.settable_fields(Heir)}
    assert fields == {
        "rate": ("0.5", "two of one kind."),
        "start": ("1.0", "another one."),
        "end": ("3", "(of it): all."),
    }
    assert describe.settable_fields(rule) == [describe.Field("width", "3", "")]


PLAIN = "self, cross, causal, bidirectional, padding, dense, cache, maps exact, positions embedding"


@pytest.mark.parametrize(
    ("capabilities", "words"),
    [
        (None, ""),
        (Capabilities(), PLAIN),
        (
            Capabilities(
                roles=frozenset({"self"}),
                directions=frozenset({"bidirectional"}),
                padding=False,
                dense=False,
                dropout=True,
                cache=False,
                maps="none",
                positions=frozenset(),
                max_length=7,
            ),
            "self, bidirectional, dropout, maps none, up to 7 keys",
        ),
    ],
)
def test_capabilities_in_words(capabilities: Any, words: str) -> None:
    assert describe.capability_names(capabilities) == words


def test_formulas_are_the_indented_blocks_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "About.\n\n    a = b\n      c = d\n\nProse.\n\n    e = f\n\nSource: g.\n"
    monkeypatch.setitem(globals(), "__doc__", text)
    assert describe.formula(Base) == "a = b\n  c = d\n\ne = f"
    monkeypatch.setitem(globals(), "__doc__", "Nothing indented.")
    assert describe.formula(Base) == ""
    assert describe.formula(rule) == ""


def test_what_a_memory_keeps() -> None:
    assert describe.memory_contents(Heir) == "keys [B,1,Tk,A], of the source."
    assert describe.memory_contents(Attention) == ""
