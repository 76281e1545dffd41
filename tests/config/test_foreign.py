"""Other frameworks' words lead to settings that there are."""

import pytest

from attnlab import config as configs
from attnlab.config.foreign import NAMES, settings_meant
from attnlab.config.patterns import covers
from attnlab.errors import UserError

WORDS = [
    ("optimizer.lr", "schedule.peak"),
    ("lr", "schedule.peak"),
    ("training.learning_rate", "schedule.peak"),
    ("optimizer.learning-rate", "schedule.peak"),
    ("system.heads", "system.cross_attention.heads"),
    ("system.n_head", "system.cross_attention.heads"),
    ("system.d_model", "system.width"),
    ("training.epochs", "training.steps"),
    ("training.batch_size", "batch.size"),
    ("vocab_size", "vocabulary.size"),
    ("training.schedule.warmup", "schedule.warmup"),
    ("training.dropout", "system.dropout"),
    ("training.weight_decay", "optimizer.weight_decay"),
]


@pytest.mark.parametrize(("word", "setting"), WORDS)
def test_what_others_call_a_setting(word: str, setting: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{setting}'"):
        configs.load("configs/translation.py:transformer", ["optimizer=adamw", f"{word}=1"])


def test_every_meaning_is_a_setting() -> None:
    full = set[str]()
    for file in ("translation.py:transformer", "language_modelling.py", "translation.py:rnnsearch"):
        full |= {*configs.flat(configs.load(f"configs/{file}", ["optimizer=adamw"]))}
    for word, patterns in NAMES.items():
        for pattern in patterns:
            assert any(covers(pattern, name) for name in full), (word, pattern)
        assert settings_meant(f"x.{word}", full), word
