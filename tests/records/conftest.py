"""Fixtures of this room."""

from tests.records.own_code import folder

__all__ = ["folder"]
