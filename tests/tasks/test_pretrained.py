"""What a task says of the weights that its training begins with; whole runs are in
tests/api/test_pretrained.py.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import weights
from attnlab.errors import UserError
from attnlab.tasks.pretrained import InitialWeights, _fingerprint, _hash_run
from attnlab.tasks.protocol import Params
from attnlab.tasks.schemas import Pretrained
from attnlab.training.pruning import Keep, prune
from tests.weights import models
from tests.weights.comparing import shapes_of


def beginning(folder: str, shapes: Params) -> InitialWeights:
    """That of a task with parameters of such shapes."""
    config = SimpleNamespace(pretrained=Pretrained(folder=folder), system={"name": "decoder"})
    task: Any = SimpleNamespace(config=config, shapes=shapes)
    return InitialWeights(task)


def unread(*args: Any) -> Any:
    raise AssertionError("no run of ours is to be read")


def test_weights_of_a_folder_are_checked_and_taken(tmp_path: Path) -> None:
    folder = models.folder("llama", tmp_path)
    told = models.described("llama")["config"]
    shapes = shapes_of(weights.system(folder), told["vocab_size"])
    taken = beginning(str(folder), shapes)
    assert taken.check() == {"pretrained": weights.fingerprint(folder)}
    params = taken.params(jax.random.key(0), unread)
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes)
    assert any(np.asarray(one).any() for one in jax.tree.leaves(params))
    with pytest.raises(UserError, match="pretrained.take=matching"):
        beginning(str(folder), {"other": jax.ShapeDtypeStruct((2,), jnp.float32)}).check()
    assert beginning(str(tmp_path / "gone"), {}).check() == {}


@pytest.mark.parametrize("keep", ["best", "best-params"])
def test_a_run_that_is_pruned_has_the_same_weights(
    keep: Keep, searched: Path, tmp_path: Path
) -> None:
    """Whoever began from it goes on, also if its fingerprint is that of an earlier version."""
    run = Path(shutil.copytree(searched, tmp_path / "run"))
    taken, now, before = beginning(str(run), {}), _fingerprint(run), _hash_run(run)
    mine = {"pretrained": now}
    assert taken.in_saved_form(mine, {"pretrained": before}) == {"pretrained": before} != mine
    assert (
        taken.in_saved_form(mine, {}) == taken.in_saved_form(mine, {"pretrained": "other"}) == mine
    )
    prune(run, keep)
    assert _fingerprint(run) == now != _hash_run(run) != before
    for file in run.rglob("metadata"):
        file.write_text("{")
    assert _fingerprint(run) == _hash_run(run)
