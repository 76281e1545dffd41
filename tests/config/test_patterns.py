"""A pattern sets all settings of a kind, in any order with full names; else one line refuses it.
Other frameworks' words lead to settings that there are. The value that switches a setting off, or
one line that says why there is none.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.config.patterns import FOREIGN_NAMES, covers, is_dotted_name, settings_meant
from attnlab.errors import UserError, note
from tests.refusals import check_refused

TRANSFORMER = "configs/translation.py:transformer"
ENCODER = "system.encoder_attention.dropout=0.3"
SLOTS = ("cross_attention", "decoder_attention", "encoder_attention")


ALL, CROSS = "system.*attention=linear", "system.cross_attention=multihead"
SET = [
    ([ALL], dict.fromkeys(SLOTS, "linear")),
    (["system.**attention.name=linear"], dict.fromkeys(SLOTS, "linear")),
    (["system.**.features=relu", ALL], {f"{slot}.features": "relu" for slot in SLOTS}),
    ([ALL, CROSS], {"cross_attention": "multihead", "encoder_attention": "linear"}),
    ([ENCODER, "system.**.dropout=0.1"], {"dropout": 0.1, "encoder_attention.dropout": 0.1}),
    (["system.**.dropout=0.1", ENCODER], {"dropout": 0.1, "encoder_attention.dropout": 0.3}),
]


@pytest.mark.parametrize(("overrides", "expected"), SET)
def test_what_a_pattern_sets(overrides: list[str], expected: dict[str, Any]) -> None:
    settings = configs.flat(configs.load(TRANSFORMER, overrides).system)
    for name, value in expected.items():
        assert settings.get(f"{name}.name", settings.get(name)) == value, name


HEADS = [
    ((ALL, CROSS), 2),
    ((CROSS, ALL), 4),
    ((ALL, CROSS, "system.**.heads=8"), 8),
    ((ALL, "system.*attention=multihead"), 2),
]


@pytest.mark.parametrize(("overrides", "heads"), HEADS)
def test_what_stands_there_in_the_end_has_the_settings_of_the_file(
    overrides: tuple[str, ...], heads: int
) -> None:
    own = {"system": {"cross_attention": {"heads": 2, "positions": "none"}}}
    config = configs.merge(configs.read_config_file(TRANSFORMER), own)
    settings = configs.flat(configs.prepare(config, overrides).system)
    assert settings["cross_attention.heads"] == heads


REFUSED = [
    ("system.*.attention=linear", "no setting; there are system.cross_attention"),
    ("system.*.attention=linear", "write system.**.*attention for those"),
    ("system.**.hiden=3", "no setting; there are system.hidden"),
    ("system.**.dropuot=0.1", "no setting; there are system.cross_attention.dropout"),
    ("system.**.name=linear", "(mixer)"),
    ("system.*=1", "kinds: "),
    ("**.dropout=0.1", "begin with a group"),
    ("system.*attention=linaer", "did you mean 'linear'"),
    ("system.**.dropout=much", "dropout='much': expected float"),
]


@pytest.mark.parametrize(("override", "words"), REFUSED)
def test_refused(override: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        configs.load(TRANSFORMER, [override])
    assert words in str(refusal.value)


def test_a_pattern_is_told_by_full_names_once(capsys: pytest.CaptureFixture[str]) -> None:
    note.cache_clear()
    for _ in range(2):
        configs.load(TRANSFORMER, ["seed=3", "system.*attention=linear"])
    names = ", ".join(f"system.{slot}" for slot in SLOTS)
    assert capsys.readouterr().err == f"note: system.*attention=linear sets {names}\n"


WARMUPS = [
    ((), 100),
    (("training.steps=100",), 100),
    (("training.steps=60",), 6),
    (("training.steps=1",), 0),
    (("training.steps=60", "schedule.warmup=80"), 80),  # which `train` refuses
    (("training.steps=60", "schedule.**.warmup=80"), 80),
    (("training.steps=60", "schedule=constant"), 0),
    (("training.steps=60", "schedule=linear"), 0),
]


@pytest.mark.parametrize(("overrides", "warmup"), WARMUPS)
def test_the_warmup_of_a_file_gives_way(
    overrides: tuple[str, ...], warmup: int, capsys: pytest.CaptureFixture[str]
) -> None:
    note.cache_clear()
    config = configs.load("configs/translation.py:rnnsearch", overrides)
    assert config.schedule.warmup == warmup
    message = capsys.readouterr().err
    assert ("gives way" in message) is (warmup == 6 or overrides == ("training.steps=1",))


KEPT = [
    ((), False),
    (("training.steps=60", "schedule.peak=1.0"), False),
    (("training.steps=90",), True),
    (("training.steps=90", "schedule.warmup=6"), False),
    (("training.steps=90", "schedule=constant"), False),
]


@pytest.mark.parametrize(("overrides", "kept"), KEPT)
def test_a_longer_run_by_the_config_of_a_run_keeps_its_warmup_and_says_so(
    overrides: tuple[str, ...], kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = configs.load("configs/translation.py:rnnsearch", ["training.steps=60"])
    content = {"config": configs.to_dict(short)}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    note.cache_clear()
    capsys.readouterr()
    configs.load(str(tmp_path), overrides)
    line = f"note: training.steps=90: schedule.warmup=6 is that of {tmp_path}, which had 60 steps\n"
    assert capsys.readouterr().err == (line if kept else "")


NAMES = [
    ("system.**.dropout", "system.dropout", True),
    ("system.**.dropout", "system.a.b.dropout", True),
    ("system.*.dropout", "system.a.dropout", True),
    ("system.*.dropout", "system.a.b.dropout", False),
    ("system.*", "system.dropout", True),
    ("system.a+", "system.aa", False),
    ("system.**", "systems.a", False),
    ("system." + "*" * 60 + "x", f"system.{'ab_' * 20}", False),  # at once
    ("system." + "**." * 60 + "x", f"system.{'ab.' * 20}", False),
]


@pytest.mark.parametrize(("pattern", "name", "stands"), NAMES)
def test_which_names_a_pattern_stands_for(pattern: str, name: str, stands: bool) -> None:
    assert covers(pattern, name) is stands


def test_the_names_of_patterns() -> None:
    assert all(map(is_dotted_name, ("a.*.b", "a.**.b", "a.*b")))
    assert not any(map(is_dotted_name, ("", "*.a", "a..b", "a.?", None)))


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
        configs.load(TRANSFORMER, ["optimizer=adamw", f"{word}=1"])


def test_every_meaning_is_a_setting() -> None:
    full = set[str]()
    for file in ("translation.py:transformer", "language_modelling.py", "translation.py:rnnsearch"):
        full |= {*configs.flat(configs.load(f"configs/{file}", ["optimizer=adamw"]))}
    for word, patterns in FOREIGN_NAMES.items():
        for pattern in patterns:
            assert any(covers(pattern, name) for name in full), (word, pattern)
        assert settings_meant(f"x.{word}", full), word


NONE = "has no value that switches it off; write"


@pytest.mark.quick
def test_a_setting_is_off_in_the_form_it_has() -> None:
    off = {"system.positions": "none", "system.norm": "none", "system.scaled_embedding": False}
    off |= {"system.dropout": 0.0, "schedule.warmup": 0, "system.hidden_dropout": None}
    for name, value in off.items():
        actual = configs.off_value(TRANSFORMER, name, ("system.hidden_dropout=0.2",))
        assert actual == value and type(actual) is type(value)


WITHOUT_OFF = [
    ("system.positons", "did you mean 'system.positions'"),
    ("system.layers", f"system.layers {NONE} system.layers=VALUE"),
    ("pretrained.folder", NONE),  # any text is a folder
    ("system.**.dropout", NONE),
    ("training", "is a group of settings"),
    ("system.remat", "system.remat is false already"),
]


@pytest.mark.parametrize(("name", "message"), WITHOUT_OFF)
def test_what_cannot_be_switched_off_is_named(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note.cache_clear()
    check_refused(re.escape(message), configs.off_value, TRANSFORMER, name)
    assert capsys.readouterr().err == ""
