"""`--mechanism=my_file:MyAttention`: what every registered mechanism is put through, for one that
is not registered.
"""

import functools
import os
import sys

import pytest
from hypothesis import settings

from attnlab.errors import UserError
from tests.attention import cases, own_parts
from tests.sampling import rounds

settings.register_profile(
    "attnlab", derandomize=True, deadline=None, database=None, max_examples=rounds(4, 20)
)
settings.load_profile("attnlab")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test file is read, for they take their cases as they are imported."""
    for kind in ("mechanism", *own_parts.KINDS):
        if chosen := config.getoption(kind, default=None):
            sys.path.append(os.getcwd())  # as the command line does
            take = cases.only if kind == "mechanism" else functools.partial(own_parts.only, kind)
            try:
                take(chosen, config.getoption("oracle"))
            except UserError as error:
                raise pytest.UsageError(f"--{kind}={chosen}: {error}") from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--mechanism` or another part, leaves only what runs over it."""
    chosen = config.getoption("mechanism", default=None)
    if chosen:
        kept = [
            item
            for item in items
            if getattr(item, "callspec", None)
            and item.callspec.params.get("name") == chosen
            and (cases.reads(chosen) or item.path.stem == "test_mixer")
        ]
    elif own_parts.CHOSEN:
        kept = list(filter(own_parts.runs_over_chosen, items))
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
