"""Fixtures of this room."""

from tests.experiments.plan.planning import quick

__all__ = ["quick"]
