"""What a task says of the weights that its training begins with; whole runs are in
tests/api/test_pretrained.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab import weights
from attnlab.errors import UserError
from attnlab.tasks.pretrained import Pretrained
from attnlab.tasks.protocol import Params
from tests.weights import models
from tests.weights.systems import shapes_of


class Beginner(Pretrained):
    """Parameters of such shapes, all zeros."""

    def __init__(self, folder: str, shapes: Params) -> None:
        pretrained = {"folder": folder, "take": "all"}
        self.config: Any = ConfigDict({"pretrained": pretrained, "system": {"name": "decoder"}})
        self.shapes = shapes

    def init(self, key: jax.Array) -> Params:
        return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), self.shapes)


def unread(*args: Any) -> Any:
    raise AssertionError("no run of ours is to be read")


def test_weights_that_are_drawn_stay_as_they_are(tmp_path: Path) -> None:
    task, key = Beginner("", {"w": jax.ShapeDtypeStruct((1,), jnp.float32)}), jax.random.key(0)
    assert task.pretrained is None and task.check_pretrained() == {}
    assert task.begun(key, unread) == {"w": np.zeros(1)}
    assert Beginner(str(tmp_path / "gone"), {}).check_pretrained() == {}


def test_weights_of_a_folder_are_checked_and_taken(tmp_path: Path) -> None:
    folder = models.folder("llama", tmp_path)
    told = models.described("llama")["config"]
    shapes = shapes_of(weights.system(folder), told["vocab_size"])
    task = Beginner(str(folder), shapes)
    assert task.check_pretrained() == {"pretrained": weights.fingerprint(folder)}
    begun = task.begun(jax.random.key(0), unread)
    assert jax.tree.map(np.shape, begun) == jax.tree.map(np.shape, shapes)
    assert any(np.asarray(one).any() for one in jax.tree.leaves(begun))
    with pytest.raises(UserError, match="pretrained.take=matching"):
        Beginner(str(folder), {"other": jax.ShapeDtypeStruct((2,), jnp.float32)}).check_pretrained()
