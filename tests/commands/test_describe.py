"""What components say of themselves, as text, where no component of the page docs/mechanisms.md shows
it; the rest is on that page, which `test_catalogue.py` compares with the code.

    a = b

Args:
  width: of a rule.

  height: no argument's meaning, since the section is over.
"""

import dataclasses

from attnlab.attention.protocol import Capabilities
from attnlab.commands import describe

PLAIN = "self, cross, causal, bidirectional, padding, dense, cache, maps exact, positions embedding"


def rule(width: int = 3, height: int = 4) -> None:
    """A function."""


class Priced:
    """Has its own formula.

        c = d

    Cost: nothing.

    Attributes:
      width: takes
        two lines.
    """


def test_a_bounded_length_a_function_and_a_class_with_its_cost() -> None:
    """A function has no formula, though its module, which explains its arguments, may have some."""
    assert describe.capability_names(Capabilities(max_length=7)) == f"{PLAIN}, up to 7 keys"
    fields = [dataclasses.astuple(field) for field in describe.settable_fields(rule)]
    assert fields == [("width", "3", "of a rule."), ("height", "4", "")]
    assert (describe.formula(rule), describe.formula(Priced)) == ("", "c = d")
