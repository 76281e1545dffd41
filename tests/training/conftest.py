"""A store of checkpoints that keeps nobody waiting: what `OrbaxSteps` is, in plain files and in the
foreground, for tests of what is saved and when, where how it is stored is not the question (that is
asked in `test_checkpoints.py`).
"""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.training import checkpoints
from attnlab.training.orbax_steps import fingerprint


class PlainSteps:
    """One folder per step with a record and the arrays; it appears by a rename."""

    def __init__(self, directory: Path, together: bool) -> None:
        self.directory = directory

    def write(self, step: int, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
        """Write one step; the arrays are copied."""
        draft = self.directory / f"{step}.draft"
        draft.mkdir()
        prints = {path: fingerprint(array) for path, array in arrays.items()}
        (draft / "record.json").write_text(json.dumps({"step": step, "arrays": prints, **record}))
        (draft / "arrays.pickle").write_bytes(pickle.dumps(dict(arrays)))
        draft.rename(self.directory / str(step))

    def wait(self) -> None:
        """Nothing goes on in the background."""

    def read_record(self, step: int) -> dict[str, Any]:
        """What `write` was given; any exception means damage."""
        return json.loads((self.directory / str(step) / "record.json").read_text())

    def read_arrays(self, step: int, saved: Mapping[str, Any], like: Any) -> dict[str, np.ndarray]:
        """The arrays of one step by path, each checked; any exception means damage."""
        arrays = pickle.loads((self.directory / str(step) / "arrays.pickle").read_bytes())
        for path, leaf in saved.items():
            if fingerprint(arrays[path]) != leaf:
                raise ValueError(f"checksum of {path} differs")
        return arrays

    def reload(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Nothing to stop."""


@pytest.fixture
def plain_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are plain files, but in tests marked by `stored_by_orbax`."""
    if request.node.get_closest_marker("stored_by_orbax") is None:
        monkeypatch.setattr(checkpoints, "OrbaxSteps", PlainSteps)
