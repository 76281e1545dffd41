"""A card says where one component comes from, not what is made of it."""

import re

import pytest

from attnlab.attention import MECHANISMS
from attnlab.errors import UserError
from attnlab.layers.cards import Card, card_of
from attnlab.systems.protocol import Card as SystemCard


def written(paragraph: str) -> type:
    """A class whose docstring has a paragraph."""
    return type(
        "Mine", (), {"__doc__": f"Mine.\n\n    Attributes:\n      a: it.\n\n    {paragraph}\n    "}
    )


def test_a_card_is_not_inherited() -> None:
    class Mine(MECHANISMS.resolve("multihead")):  # type: ignore[misc]
        """Somebody's own."""

    class Bare(MECHANISMS.resolve("multihead")):  # type: ignore[misc]
        pass

    assert card_of(Mine) is card_of(Bare) is None is not card_of(MECHANISMS.resolve("multihead"))


@pytest.mark.parametrize(
    ("paragraph", "card"),
    [
        (
            "Card: one head; A et al., Align,\n    2015; time T^2 d; state T; path 1; steps T / C.",
            Card("one head", 2015, "A et al., Align, 2015", "T^2 d", "T", "1", "T / C"),
        ),
        ("Card: two; A, 1964; B, 1965; path 1.", Card("two", 1964, "A, 1964; B, 1965", path="1")),
        ("Card: A and B, 2017; C 2019\n\n    More.", Card("", 2017, "A and B, 2017; C 2019")),
        ("The Card: none, 2017.", None),
    ],
)
def test_a_card_is_a_paragraph_of_a_docstring(paragraph: str, card: Card | None) -> None:
    assert card_of(written(paragraph)) == card


@pytest.mark.parametrize(
    "paragraph",
    [
        "Card: heads; Vaswani et al.; time T^2.",
        "Card: heads; time T^2.",
        "Card: heads; A, 2017; state T; time T.",
        "Card: heads; A, 2017; time T; time T^2.",
        "Card: heads; A, 2017; time .",
    ],
)
def test_a_paragraph_that_cannot_be_read_is_refused(paragraph: str) -> None:
    refused = rf"^card of Mine: cannot read {re.escape(repr(paragraph[6:]))}; write 'Card: family;"
    with pytest.raises(UserError, match=refused):
        card_of(written(paragraph))


def test_a_class_of_a_users_own_may_have_it_as_an_attribute() -> None:
    ours, declared = written("Card: A, 2017."), Card("means", 2026, "somebody, 2026")
    ours.card = declared  # type: ignore[attr-defined]
    assert card_of(ours) == declared
    ours.card = SystemCard(2017, "A, 2017")  # type: ignore[attr-defined]
    assert card_of(ours) == Card("", 2017, "A, 2017")
