"""Systems as models of transformers: out and back, and what cannot be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab import weights
from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.names import flat
from attnlab.weights.writing import canonical, completed, config_of
from tests.weights import models
from tests.weights.systems import shapes_of


@pytest.mark.parametrize("name", models.NAMES)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """Tensors by name, and the system that the written config tells of."""
    folder = models.folder(name, tmp_path / "in")
    node, told = weights.system(folder), models.described(name)["config"]
    params = weights.parameters(folder, shapes_of(node, told["vocab_size"]))
    config = config_of(completed(node), told["model_type"])
    table = weights.names_of(told["model_type"])
    out = tmp_path / "out"
    folders.write(out, config, table.write(flat(params), np.float32))
    tensors, written = models.tensors(name), dict(folders.tensors(folders.files(out)))
    assert written.keys() == tensors.keys()
    for key, one in written.items():
        assert one.dtype == np.float32 and np.array_equal(one, tensors[key]), key
    assert canonical(weights.system(out)) == canonical(node)
    assert config["architectures"] == told["architectures"]


@pytest.mark.parametrize("name", models.NAMES)
def test_a_model_type_is_found_that_can_say_it(name: str, tmp_path: Path) -> None:
    """Not always its own: a Mistral without windows is a Llama."""
    node = weights.system(models.folder(name, tmp_path))
    config = config_of(completed(node))
    own = models.described(name)["config"]["model_type"]
    assert config["model_type"] == own
    folders.write(tmp_path / "out", config, {"a": np.zeros(1)})
    assert canonical(weights.system(tmp_path / "out")) == canonical(node)


def changed(node: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**node, **changes}


def test_what_cannot_be_said_is_named(tmp_path: Path) -> None:
    node = weights.system(models.folder("llama", tmp_path))
    attention = node["attention"]
    for change, message in (
        (
            {"attention": {**attention, "alignment": "entmax"}},
            "system.attention.alignment.name='entmax'",
        ),
        ({"norm": "post"}, "system.norm='post', it has 'pre'"),
        ({"logit_cap": 3.0}, "system.logit_cap=3.0"),
    ):
        with pytest.raises(UserError, match=message):
            config_of(completed(changed(node, **change)))
    other = {"name": "differential", "positions": "rope"}
    with pytest.raises(UserError, match="multihead attention with rope"):
        config_of(completed(changed(node, attention=other)), "llama")
    with pytest.raises(UserError, match="system=lstm_lm has no counterpart"):
        config_of({"name": "lstm_lm"})
    with pytest.raises(UserError, match="did you mean 'llama'"):
        config_of(completed(node), "lama")
    with pytest.raises(UserError, match="nearest is 'gpt2': it has learned positions"):
        config_of(completed(node), "gpt2")
