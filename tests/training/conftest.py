"""A store of checkpoints that keeps nobody waiting."""

import pytest

from attnlab.training import checkpoints
from tests.training.plain_steps import PlainSteps


@pytest.fixture
def plain_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are plain files, but in tests marked by `stored_by_orbax`."""
    if request.node.get_closest_marker("stored_by_orbax") is None:
        monkeypatch.setattr(checkpoints, "OrbaxSteps", PlainSteps)
