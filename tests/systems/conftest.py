"""`--system=my_file:MySystem`: what every registered system of its kind is put through, for one
that is not registered.
"""

import os
import sys
from pathlib import Path

import pytest

from attnlab.errors import UserError
from tests.systems import own

OWN = "test_own.py"


def pytest_configure(config: pytest.Config) -> None:
    """Before any test file is read, for `test_own.py` takes its cases as it is imported."""
    chosen = config.getoption("system", default=None)
    if chosen:
        sys.path.append(os.getcwd())  # as the command line does
        try:
            own.only(chosen, config.getoption("oracle"))
        except UserError as error:
            raise pytest.UsageError(f"--system={chosen}: {error}") from error


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--system` its file and no other; without, every other."""
    if collection_path.suffix != ".py":
        return None
    return (
        True
        if (collection_path.name == OWN) != bool(config.getoption("system", default=None))
        else None
    )
