"""Systems as models of transformers: out and back, and what cannot be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab import weights
from attnlab.errors import UserError
from attnlab.weights.writing import config_of, with_defaults
from tests.weights import comparing, models
from tests.weights.systems import shapes_of


@comparing.over(models.NAMES, comparing.BACK)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """The model type that is found is its own."""
    folder = models.folder(name, tmp_path / "in")
    node, told = weights.system(folder), models.described(name)["config"]
    params = weights.parameters(folder, shapes_of(node, told["vocab_size"]))
    comparing.assert_out_and_back(name, params, folder, tmp_path / "out")
    assert config_of(with_defaults(node), told["model_type"]) == config_of(with_defaults(node))


def test_what_cannot_be_said_is_named(tmp_path: Path) -> None:
    node = weights.system(models.folder("llama", tmp_path))
    attention = node["attention"]
    for change, message in (
        ({"attention": {**attention, "alignment": "entmax"}}, "alignment.name='entmax'"),
        ({"norm": "post"}, "system.norm='post', it has 'pre'"),
        ({"logit_cap": 3.0}, "system.logit_cap=3.0"),
    ):
        with pytest.raises(UserError, match=message):
            config_of(with_defaults({**node, **change}))
    other = {"name": "differential", "positions": "rope"}
    with pytest.raises(UserError, match="multihead attention with rope"):
        config_of(with_defaults({**node, "attention": other}), "llama")
    with pytest.raises(UserError, match="system=lstm_lm has no counterpart"):
        config_of({"name": "lstm_lm"})
    with pytest.raises(UserError, match="did you mean 'llama'"):
        config_of(with_defaults(node), "lama")
    with pytest.raises(UserError, match="nearest is 'gpt2': it has learned positions"):
        config_of(with_defaults(node), "gpt2")
