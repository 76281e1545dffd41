"""A card says where one component comes from, not what is made of it."""

from __future__ import annotations

from attnlab.attention import MECHANISMS
from attnlab.commands.describe import Origin, origin


def test_a_card_is_not_inherited() -> None:
    class Mine(MECHANISMS.resolve("multihead")):  # type: ignore[misc]
        """Somebody's own."""

    assert origin(Mine) == Origin() != origin(MECHANISMS.resolve("multihead"))
