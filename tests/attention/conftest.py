"""`--mechanism=my_file:MyAttention`: what every registered mechanism is put through, for one that
is not registered.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

from attnlab.errors import UserError
from tests.attention import cases
from tests.sampling import rounds

settings.register_profile(
    "attnlab", derandomize=True, deadline=None, database=None, max_examples=rounds(4, 20)
)
settings.load_profile("attnlab")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test file is read, for they take their cases as they are imported."""
    chosen = config.getoption("mechanism", default=None)
    if chosen:
        sys.path.append(os.getcwd())  # as the command line does
        try:
            cases.only(chosen, config.getoption("oracle"))
        except UserError as error:
            raise pytest.UsageError(f"--mechanism={chosen}: {error}") from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--mechanism`, leaves only what runs over it."""
    chosen = config.getoption("mechanism", default=None)
    if chosen:
        kept = [
            item
            for item in items
            if getattr(item, "callspec", None)
            and item.callspec.params.get("name") == chosen
            and (cases.reads(chosen) or item.path.stem == "test_mixer")
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
