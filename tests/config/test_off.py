"""The value that switches a setting off, or one line that says why there is none."""

import re

import pytest

from attnlab.config import off_value
from attnlab.config.warmup import note
from tests.refusals import check_refused

CONFIG = "configs/translation.py:transformer"
NONE = "has no value that switches it off; write"


@pytest.mark.quick
def test_a_setting_is_off_in_the_form_it_has() -> None:
    off = {"system.positions": "none", "system.norm": "none", "system.scaled_embedding": False}
    off |= {"system.dropout": 0.0, "schedule.warmup": 0, "system.hidden_dropout": None}
    for name, value in off.items():
        actual = off_value(CONFIG, name, ("system.hidden_dropout=0.2",))
        assert actual == value and type(actual) is type(value)


REFUSED = [
    ("system.positons", "did you mean 'system.positions'"),
    ("system.layers", f"system.layers {NONE} system.layers=VALUE"),
    ("pretrained.folder", NONE),  # any text is a folder
    ("system.**.dropout", NONE),
    ("training", "is a group of settings"),
    ("system.remat", "system.remat is false already"),
]


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_what_cannot_be_switched_off_is_named(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note.cache_clear()
    check_refused(re.escape(message), off_value, CONFIG, name)
    assert capsys.readouterr().err == ""
