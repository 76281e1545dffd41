"""Every number that a command takes has two bounds, which its help says; nothing empty is taken."""

import importlib
import re
from pathlib import Path

import pytest

from attnlab import config as configs
from attnlab import processes
from attnlab.commands import COMMANDS, Parser
from attnlab.commands.show import setting_rows
from attnlab.errors import UserError
from attnlab.flags import add_number
from tests.commands.tiny import refused


@pytest.mark.parametrize("name", COMMANDS)
def test_bounds_of_all_flags(name: str) -> None:
    parser = Parser(prog=name)
    importlib.import_module(COMMANDS[name].module, "attnlab.commands").add_arguments(parser)
    if COMMANDS[name].several:
        processes.add_arguments(parser)
    for action in parser._actions:
        if action.type in (None, str, Path):
            listed = action.metavar in ("N", "N,N")  # the command says what is wrong with a list
            assert not listed or re.search(r"\d to [\d,]+", str(action.help)), action.option_strings
            continue
        assert getattr(action.type, "__name__", "") == "bounded", action.option_strings
        flag = action.option_strings[0]
        assert re.search(r"\d to [\d,.e+]+\d", str(action.help)), flag
        for value in ("-2", "1000000000000", "nan"):
            with pytest.raises(UserError, match=rf"{flag}: '{value}' is no .* to \d"):
                parser.parse_args([f"{flag}={value}"])


@pytest.mark.parametrize(
    "config", ["translation.py:rnnsearch", "classification.py:lstmn_classifier"]
)
def test_bounds_of_all_settings(config: str) -> None:
    """`show` prints what is refused beyond: of every whole number its bounds."""
    path = f"configs/{config}"
    for setting, value, _, meaning in setting_rows(configs.load(path)):
        if re.fullmatch(r"-?\d+", value) and "one of: " not in meaning:
            bound = re.search(r"a whole number of at least (-?\d+) and at most ([\d,]+)", meaning)
            assert bound, (setting, meaning)
            most = int(bound[2].replace(",", ""))
            with pytest.raises(UserError, match=rf"config\.{setting}={most + 1}: expected"):
                configs.load(path, [f"{setting}={most + 1}"])


def test_both_bounds_are_included() -> None:
    parser = Parser()
    add_number(parser, "--of", 1, 3, "things")
    add_number(parser, "--share", 0.0, 1.0, "of them", default=0.5)
    assert vars(parser.parse_args(["--of=3"])) == {"of": 3, "share": 0.5}
    for flag in ("--of=1.5", "--of=4", "--share=1.1", "--share=-inf", "--share=x"):
        with pytest.raises(UserError, match="is no (whole )?number from"):
            parser.parse_args([flag])


EMPTY = "= is empty; write a value, or leave it out"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("prepare --from=a.txt --to=", f"--to{EMPTY}"),
        ("prepare --from=a.txt --to=\N{NO-BREAK SPACE}\t", f"--to{EMPTY}"),
        ("work \N{NO-BREAK SPACE}", EMPTY.replace("=", "an argument")),
        ("train --config=configs/translation.py:rnnsearch --workdir=", f"--workdir{EMPTY}"),
        (f"cost --mechanisms=single --dir={__file__}/x", f"{__file__} is not a folder; name"),
        (
            "show --config=configs/translation.py:transformer --config.system.normalisation.epsilon=-1.0",
            "at least 0",
        ),
    ],
)
def test_what_is_refused_before_any_work(line: str, told: str) -> None:
    assert told in refused(*line.split(" "))
