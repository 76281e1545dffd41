"""Commands are tried on the run of one system, and on that of another in the full mode."""

from pathlib import Path

import pytest

from tests.commands.tiny import Runs


@pytest.fixture(params=["rnnsearch", pytest.param("transformer", marks=pytest.mark.full)])
def trained(request: pytest.FixtureRequest, runs: Runs) -> Path:
    """The workdir of a finished run of each system."""
    return runs(request.param)[0]
