"""Costs add up; a projection costs its matrix."""

from __future__ import annotations

from attnlab.layers.cards import Cost, dense


def test_costs_of_parts_add_up() -> None:
    assert dense(3, 4, 5) == Cost(20, 2 * 3 * 4 * 5)
    assert dense(3, 4, 5, bias=True) + Cost(1, 2, 3) == Cost(26, 122, 3)
