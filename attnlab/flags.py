"""The flags of commands: switches, texts, and numbers within two bounds stated in their help."""

import argparse
from collections.abc import Mapping
from typing import Any


def add_flags(
    parser: argparse._ActionsContainer, meanings: Mapping[str, str], **options: Any
) -> None:
    """Adds to `parser` a flag for each key of `meanings`, whose value is its help text: "--yes" is
    a switch, "--output=FILE" takes a text and the `options` of `add_argument`.

    Args:
      parser: the parser, or a group of it.
      meanings: the meaning of each flag by how a command line writes it: "--yes" is a switch,
        "--output=FILE" takes a text, or is None where it is left out.
      options: other arguments of `add_argument`, for each of those that take a text.
    """
    for form, meaning in meanings.items():
        flag, takes_text, metavar = form.partition("=")
        if takes_text:
            parser.add_argument(flag, metavar=metavar, help=meaning, **options)
        else:
            parser.add_argument(flag, action="store_true", help=meaning)


def add_number(
    parser: argparse._ActionsContainer,
    flag: str,
    least: float,
    most: float,
    help: str,
    **options: Any,
) -> None:
    """Adds a command-line flag to `parser` for a number from `least` to `most`, whole if `least` is
    an int; argparse refuses other values.

    Args:
      parser: the parser, or a group of it.
      flag: the flag with its dashes.
      least, most: the bounds, both included.
      help: its meaning; the bounds are appended.
      options: other arguments of `add_argument`.
    """
    whole = isinstance(least, int)
    bounds = f"{least:,} to {most:,}"

    def bounded(text: str) -> float:
        """Parses the text of the flag as a number; raises ArgumentTypeError if it is none or out of
        bounds.
        """
        try:
            number: float = int(text) if whole else float(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            kind = "whole number" if whole else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind} from {bounds}")
        return number

    options = {"metavar": "N", **options}
    parser.add_argument(flag, type=bounded, help=f"{help}; {bounds}", **options)
