"""`launch.py show`, and `--help` after a `--config`."""

import re

import pytest

from attnlab import config as configs
from attnlab.commands import COMMANDS, main, show
from tests.commands.tiny import run_command

RNNSEARCH = "configs/translation.py:rnnsearch"
FILES = (
    RNNSEARCH,
    "configs/translation.py:transformer_base",
    "configs/g2p.py:convs2s",
    "configs/inference.py:lstmn_pair",
    "configs/language_modelling.py:key_value_paper",
    "configs/tatoeba.py:rnnsearch",
)
GROUPS = ("vocabulary", "batch", "training", "checkpoint", "parallel", "auxiliary", "reinforce")
GROUPS += ("decoding", "pretrained", "lora")


@pytest.mark.parametrize("file", FILES)
def test_every_setting_has_a_row_with_its_value(file: str) -> None:
    config = configs.load(file)
    rows = {row[0]: row[1:] for row in show.setting_rows(config)}
    settings = {name.removesuffix(".name"): value for name, value in configs.flat(config).items()}
    assert set(settings) <= set(rows)
    assert set(rows) - set(settings) == {*GROUPS} & {*configs.to_dict(config)} | {"training.stop"}
    typed = [f"{name}={rows[name][0]}" for name in settings]  # what is shown can be typed
    assert configs.flat(configs.load(file, typed)) == configs.flat(config)
    assert [name for name in settings if rows[name][0] == rows[name][1]] == []
    for name in settings:
        if name.partition(".")[0] not in ("system", "data", "optimizer", "schedule"):
            assert rows[name][2], name


def test_meaning_range_choices_and_defaults() -> None:
    overrides = ["--config.training.clip=2", "--config.data=copying"]
    shown = run_command(["show", f"--config={RNNSEARCH}", *overrides]).out
    lines = {line.split("  ")[0]: line for line in shown.splitlines()}
    for name, words in {
        "training.clip": (
            "  2.0  ",
            "  1.0  ",
            "norm to which longer gradients are scaled down; 0: none; a number of at least 0",
        ),
        "batch.unit": ("  sentences  ", "one of: sentences, tokens"),
        "data": ("  copying  ",),
        "system.attention.score": ("  additive  ", "e_ij = v . tanh(q_i W_a + k_j U_a)"),
        "system.attention.kernel": ("one of: auto, plain",),
        "schedule.warmup": ("a whole number of at least 0 and at most 1,000,000,000",),
        "batch.buckets": ("  16,24,32  ", "the widths of batches in tokens"),
    }.items():
        assert all(word in lines[name] for word in words), lines[name]


def test_what_weight_decay_reaches_is_told() -> None:
    file, by_rank = "configs/image_classification.py:vit", "--config.optimizer.decayed=rank"
    told = [
        run_command(["show", f"--config={file}", *more]).out.partition("\nweight decay by ")[2]
        for more in ([], [by_rank], ["--config.optimizer=adam"])
    ]
    assert re.search(r"^table +no +class_token, positions/table$", told[0], re.MULTILINE)
    assert re.search(r"^matrix +yes +out/kernel, .*patches/kernel$", told[0], re.MULTILINE)
    assert re.search(r"^table +yes +class_token, positions/table$", told[1], re.MULTILINE)
    assert told[2] == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_after_a_config_its_settings(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="^0$"):
        main([command, "--help"])
    alone = capfd.readouterr().out
    assert alone.startswith("usage: ") and "updates of the whole run" not in alone
    if command == "evaluate":
        argv = [command, "--help", f"--config={RNNSEARCH}", "--config.training.steps=7"]
        both = run_command(argv).out
        assert both.startswith(alone)
        (line,) = (line for line in both.splitlines() if line.startswith("training.steps "))
        assert "  7  " in line and "updates of the whole run" in line


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["show", "--config=configs/translatoin.py"], "did you mean 'configs/translation.py'"),
        (
            ["evaluate", f"--config={RNNSEARCH}", "--config.seed=-1", "--help"],
            "config.seed=-1: expected a whole number of at least 0",
        ),
    ],
)
def test_a_mistake_is_one_line(argv: list[str], words: str) -> None:
    ended = run_command(argv)
    assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1
