"""Finished runs of both systems, trained once by the train command itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.tiny import Called, arguments, called


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Called]]:
    """`runs(system)`: the workdir of a finished run and how its command ended; trained on first use."""
    finished: dict[str, tuple[Path, Called]] = {}

    def trained(system: str) -> tuple[Path, Called]:
        if system not in finished:
            workdir = tmp_path_factory.mktemp(system) / "run"
            finished[system] = workdir, called(arguments(system, workdir))
            assert finished[system][1].code == 0, finished[system][1].err
        return finished[system]

    return trained


@pytest.fixture(params=["rnnsearch", "transformer"])
def trained(request: pytest.FixtureRequest, runs: Callable[[str], tuple[Path, Called]]) -> Path:
    """The workdir of a finished run of each system."""
    return runs(request.param)[0]


@pytest.fixture
def searched(runs: Callable[[str], tuple[Path, Called]]) -> Path:
    """The workdir of a finished RNNsearch run, where one system is enough."""
    return runs("rnnsearch")[0]
