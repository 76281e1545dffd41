"""`inspect`: draw the attention maps of a trained run for texts, pairs of texts, or images."""

from __future__ import annotations

import argparse
from pathlib import Path

from attnlab.commands import session
from attnlab.commands.generate import read_lines
from attnlab.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `inspect` to its parser: `--source`, `--target`, `--pairs`, `--output`,
    `--accept-changed-code`.
    """
    parser.add_argument("--source", metavar="TEXT", help="a text, or the file of an image")
    parser.add_argument(
        "--target",
        metavar="TEXT",
        help="the second text of a pair; in translation by default the system's own",
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="instead: a file with 'source' or 'source TAB target' on each line ('-' for stdin)",
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="where pictures and arrays go (default: <workdir>/maps)"
    )
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Computes the attention maps of the given texts or images, writes them per example to
    `<number>.npz` and as pictures (maps too large to read are not drawn), and prints each example
    and the paths of all these files.
    """
    stored = session.stored_run(arguments)
    folder = Path(arguments.output) if arguments.output else stored.workdir / "maps"
    session.check_folder("--output", folder)
    examples = _examples(arguments)
    trained = session.open_run(stored)
    from attnlab.analysis.results import draw

    for number, example in enumerate(trained.examples_from_text(examples)):
        print(example.shown())
        pictures = draw(trained.task, trained.params, example, folder / f"{number}")
        for path in pictures.values():
            print(f"  {path}")
    return 0


def _is_utf8(text: str) -> bool:
    """Returns whether a text can be encoded as UTF-8; False if bytes of the command line were
    invalid, which Python keeps as lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _examples(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Returns the (source, target or None) texts of `--source` and `--target`, or of the lines of
    `--pairs`; raises `UserError` for empty texts, no pairs, or flags that conflict.
    """
    if (arguments.source is None) == (arguments.pairs is None):
        raise UserError("inspect: give either --source=TEXT (and --target=TEXT), or --pairs=FILE")
    if arguments.target is not None and arguments.source is None:
        raise UserError(
            "inspect: --target goes with --source; in the file of --pairs it stands after a tab"
        )
    for flag, text in (("--source", arguments.source), ("--target", arguments.target)):
        if text is not None and not (text.strip() and _is_utf8(text)):
            raise UserError(f"inspect: {flag}={text!r}: expected a sentence in UTF-8")
    if arguments.source is not None:
        return [(arguments.source, arguments.target)]
    examples: list[tuple[str, str | None]] = []
    for number, line in enumerate(
        read_lines(None if arguments.pairs == "-" else arguments.pairs), 1
    ):
        source, tab, target = line.partition("\t")
        if not source.strip() or (tab and not target.strip()):
            raise UserError(
                f"{arguments.pairs}, line {number}: expected 'source' or 'source TAB target', both"
                " not empty"
            )
        examples.append((source, target if tab else None))
    if not examples:
        raise UserError(f"{arguments.pairs} holds no pairs")
    return examples
