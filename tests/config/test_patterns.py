"""A pattern sets all settings of a kind, in any order with full names; else one line refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from attnlab import config as configs
from attnlab.config.patterns import covers, is_dotted_name
from attnlab.errors import UserError

TRANSFORMER = "configs/translation.py:transformer"
SLOTS = ("cross_attention", "decoder_attention", "encoder_attention")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["system.*attention=linear"], dict.fromkeys(SLOTS, "linear")),
        (["system.**attention.name=linear"], dict.fromkeys(SLOTS, "linear")),
        (
            ["system.**.features=relu", "system.*attention=linear"],
            {f"{slot}.features": "relu" for slot in SLOTS},
        ),
        (
            ["system.*attention=linear", "system.encoder_attention=multihead"],
            {"cross_attention": "linear", "encoder_attention": "multihead"},
        ),
        (
            ["system.encoder_attention.dropout=0.3", "system.**.dropout=0.1"],
            {"dropout": 0.1, "encoder_attention.dropout": 0.1},
        ),
        (
            ["system.**.dropout=0.1", "system.encoder_attention.dropout=0.3"],
            {"dropout": 0.1, "encoder_attention.dropout": 0.3},
        ),
    ],
)
def test_what_a_pattern_sets(overrides: list[str], expected: dict[str, Any]) -> None:
    settings = configs.flat(configs.load(TRANSFORMER, overrides).system)
    for name, value in expected.items():
        assert settings.get(f"{name}.name", settings.get(name)) == value, name


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("system.*.attention=linear", "no setting; there are system.cross_attention"),
        ("system.*.attention=linear", "write system.**.*attention for those"),
        ("system.**.hiden=3", "no setting; there are system.hidden"),
        ("system.**.name=linear", "(mixer)"),
        ("system.*=1", "kinds: "),
        ("**.dropout=0.1", "begin with a group"),
        ("system.*attention=linaer", "did you mean 'linear'"),
        ("system.**.dropout=much", "dropout='much': expected float"),
    ],
)
def test_refused(override: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        configs.load(TRANSFORMER, [override])
    assert words in str(refusal.value)


def test_a_pattern_is_told_by_full_names() -> None:
    overrides = ["seed=3", "system.*attention=linear"]
    notes = configs.pattern_notes(configs.load(TRANSFORMER, overrides), overrides)
    assert notes == [f"{overrides[1]} sets {', '.join(f'system.{slot}' for slot in SLOTS)}"]


@pytest.mark.parametrize(
    ("pattern", "name", "stands"),
    [
        ("system.**.dropout", "system.dropout", True),
        ("system.**.dropout", "system.a.b.dropout", True),
        ("system.*.dropout", "system.a.dropout", True),
        ("system.*.dropout", "system.a.b.dropout", False),
        ("system.*", "system.dropout", True),
        ("system.a+", "system.aa", False),
        ("system.**", "systems.a", False),
    ],
)
def test_which_names_a_pattern_stands_for(pattern: str, name: str, stands: bool) -> None:
    assert covers(pattern, name) is stands


def test_the_names_of_patterns() -> None:
    names = ("a.*.b", "a.**.b", "a.*b")
    assert all(map(is_dotted_name, names))
    assert not any(map(is_dotted_name, ("", "*.a", "a..b", "a.?", None)))
