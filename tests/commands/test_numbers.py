"""Every number that a command takes has two bounds, which its help says; nothing empty is taken."""

from __future__ import annotations

import importlib
import re

import pytest

from attnlab.commands import COMMANDS, Parser
from attnlab.commands.numbers import add_number
from attnlab.errors import UserError
from tests.commands.tiny import refused


@pytest.mark.parametrize("name", COMMANDS)
def test_bounds_of_all_flags(name: str) -> None:
    parser = Parser(prog=name)
    importlib.import_module(COMMANDS[name].module).add_arguments(parser)
    for action in parser._actions:
        if action.type is int or getattr(action.type, "__name__", "") == "bounded":
            flag = action.option_strings[0]
            assert re.search(r"\d to [\d,.e+]+\d", str(action.help)), flag
            for value in ("-2", "1000000000000", "nan"):
                if action.type is not int:  # else the command says it
                    with pytest.raises(UserError, match=rf"{flag}: '{value}' is no .* to \d"):
                        parser.parse_args([f"{flag}={value}"])


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
        ("train --config=configs/translation.py:rnnsearch --workdir=", f"--workdir{EMPTY}"),
        (f"cost --mechanisms=single --dir={__file__}/x", f"{__file__} is not a folder; name"),
        (
            "show --config=configs/translation.py:transformer --config.system.normalisation.epsilon=-1.0",
            "at least 0",
        ),
    ],
)
def test_what_is_refused_before_any_work(line: str, told: str) -> None:
    assert told in refused(*line.split())
