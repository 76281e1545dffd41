"""What no model of transformers can say of a system is named."""

from pathlib import Path
from typing import Any

import pytest

from attnlab import weights
from attnlab.errors import UserError
from attnlab.weights.writing import config_of, with_defaults
from tests.weights import models

ROPE = {"name": "differential", "positions": "rope"}
SOFT = {"name": "multihead", "heads": 4, "positions": "rope", "alignment": "entmax"}
UNSAID: list[tuple[str, dict[str, Any], str, str]] = [
    ("llama", {"attention": SOFT}, "", "alignment.name='entmax'"),
    ("llama", {"norm": "post"}, "", "system.norm='post', it has 'pre'"),
    ("llama", {"logit_cap": 3.0}, "", "system.logit_cap=3.0"),
    ("llama", {"attention": ROPE}, "llama", "multihead attention with rope"),
    ("llama", {}, "lama", "did you mean 'llama'"),
    ("llama", {}, "gpt2", "nearest is 'gpt2': it has learned positions"),
    ("encoders/bert_masked", {"norm": "pre"}, "", "system.norm='pre', it has 'post'"),
    (
        "encoders/bert_masked",
        {},
        "llama",
        "system=bert has no counterpart .*: llama; decoder, bert",
    ),
    ("pairs/t5", {"norm": "post"}, "", "nearest is 't5': system.norm='post', it has 'pre'"),
    ("images/vit", {"class_token": False}, "", "system.class_token=False, it has True"),
    ("images/vit", {"positions": {"name": "sinusoidal_2d"}}, "", "it has learned positions"),
    ("images/resnet50", {"strided": "first"}, "", "system.strided='first', it has 'second'"),
]
"""Of golden models, what is changed in them, the kind that is asked for, and what its line says."""


@pytest.mark.parametrize(("name", "change", "kind", "message"), UNSAID)
def test_what_cannot_be_said_is_named(
    name: str, change: dict[str, Any], kind: str, message: str, tmp_path: Path
) -> None:
    node = weights.system(models.folder(name, tmp_path))
    with pytest.raises(UserError, match=message):
        config_of(with_defaults({**node, **change}), *([kind] if kind else []))
    with pytest.raises(UserError, match="system=lstm_lm has no counterpart"):
        config_of({"name": "lstm_lm"})
