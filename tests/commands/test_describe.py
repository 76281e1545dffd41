"""What components say of themselves, as text, where no component of the page docs/mechanisms.md shows
it; the rest is on that page, which `test_catalogue.py` compares with the code.

    a = b
"""

from attnlab.attention.protocol import Capabilities
from attnlab.commands import describe

PLAIN = "self, cross, causal, bidirectional, padding, dense, cache, maps exact, positions embedding"


def rule(width: int = 3) -> None:
    """A function."""


def test_a_bounded_length_and_a_function() -> None:
    """A function has no formula, though its module may have some."""
    assert describe.capability_names(Capabilities(max_length=7)) == f"{PLAIN}, up to 7 keys"
    assert describe.settable_fields(rule) == [describe.Field("width", "3", "")]
    assert describe.formula(rule) == ""
