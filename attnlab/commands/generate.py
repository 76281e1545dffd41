"""`generate`: the answers of a trained run to lines from stdin or a file: translations, labels,
continued texts.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.commands import session, streams
from attnlab.data.files import alike
from attnlab.errors import UserError
from attnlab.flags import add_flags

if TYPE_CHECKING:
    from attnlab.api.trained import Run

_PROMPTED = {"language_modelling": "target", "text_to_text": "source"}
"""Tasks that read prompts, and which vocabulary of theirs has them."""
FLAGS = {
    "--input=FILE": "one text a line, UTF-8, two with a tab between them for pairs (default: stdin)",
    "--output=FILE": "where the answers go (default: stdout)",
    "--score": (
        "lines are 'source TAB target': put log P(target | source), in nats, before each; see"
        " the command 'score' for texts of language models, single tokens and files"
    ),
    "--stream": "print every answer while it is written (decoding.method greedy or sample)",
    "--special": "special tokens of a model from elsewhere stand in lines by their names",
}
CHAT = (
    "each line is what a user says, in the chat template of the model; =messages: each is a JSON"
    " list of messages (templates have 5 s and may write 1,048,576 characters each)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `generate` to its parser: `--input`, `--output`, `--score`, `--stream`,
    `--special`, `--chat`, `--ensemble`, `--accept-changed-code`.
    """
    add_flags(parser, FLAGS)
    kinds = ("user", "messages")
    parser.add_argument("--chat", nargs="?", const="user", choices=kinds, help=CHAT)
    session.add_ensemble(parser)
    session.add_acceptance(parser)
    parser.epilog = (
        "One line out for each line in, an empty one for an empty one. Where a system writes text,"
        " --config.decoding.n_best=N gives N\nlines of 'line number TAB score TAB text' for each,"
        " best first, fewer where fewer end within the length"
        " limit;\n--config.decoding.method=beam|greedy|sample picks the method.\n\n"
        + (parser.epilog or "")
    )


def run(arguments: argparse.Namespace) -> int:
    """Answers each line of `--input` or stdin (with `--score`, scores each pair) by the trained run
    and writes the answers to `--output` or stdout, with `--stream` piece by piece; returns 0;
    raises `UserError` for flags that conflict.
    """
    if arguments.stream and (arguments.score or arguments.output):
        flag = "score" if arguments.score else "output"
        raise UserError(f"generate --stream prints texts as they grow; leave out --{flag}")
    stored = session.stored_run(arguments)  # complain before reading stdin
    if arguments.output:
        check_output(Path(arguments.output))
    if arguments.score and (arguments.special or arguments.chat):
        raise UserError("generate --score takes plain texts; leave out --special and --chat")
    lines = read_lines(arguments.input)
    trained = session.open_run(stored)
    if arguments.special or arguments.chat:
        from attnlab.data.chat import prompts

        if trained.config.task not in _PROMPTED:
            raise UserError(f"generate --special and --chat: for tasks {', '.join(_PROMPTED)} only")
        vocabulary = getattr(trained.task.data.learned, _PROMPTED[trained.config.task])
        lines = prompts(vocabulary, lines, arguments.chat or "special")
    if arguments.stream:
        _stream(trained, lines)
        return 0
    output = _score_pairs(trained, lines) if arguments.score else _answer(trained, lines)
    text = "".join(line + "\n" for line in output)
    if arguments.output:
        from attnlab.records.files import write_atomic

        write_atomic(arguments.output, text)
    else:
        # as the file of --output, whatever the terminal takes
        streams.reconfigure(encoding="utf-8", errors="strict")
        sys.stdout.write(text)
    return 0


def _stream(trained: "Run", lines: list[str]) -> None:
    """Prints the answer to each line to stdout piece by piece while it is generated, one line each;
    a blank line for a blank one.
    """
    _warn_of_long_lines(trained, lines)
    streams.reconfigure(encoding="utf-8", errors="strict")
    number = 0
    for line in lines:
        if line.strip():
            for piece in trained.stream(line, number):
                print(on_one_line(piece), end="", flush=True)
            number += 1
        print(flush=True)


def _answer(trained: "Run", lines: list[str]) -> list[str]:
    """Returns the answers to all lines: one line each, or with `decoding.n_best` > 1 lines "number
    TAB score TAB text", best first.
    """
    _warn_of_long_lines(trained, lines)
    decoding = getattr(trained.config, "decoding", None)
    numbered = decoding is not None and decoding.n_best > 1
    output = []
    for number, answers in enumerate(trained.respond(lines), start=1):
        if numbered:
            output += [f"{number}\t{x.score:.4f}\t{on_one_line(x.text)}" for x in answers]
        else:
            output.append(on_one_line(answers[0].text) if answers else "")
    return output


def _warn_of_long_lines(trained: "Run", lines: list[str]) -> None:
    """Prints a note to stderr if some lines have more tokens than the longest text in training."""
    longer = trained.longer(lines)
    if longer:
        texts = sum(bool(line.strip()) for line in lines)
        share = f"{len(longer)} of {texts} {trained.task.examples}"
        limit = trained.config.longest_text
        first = longer[0] + 1
        note = f"{share} are longer than the {limit} tokens of training (first: line {first})"
        session.print_notes([note])


def on_one_line(text: str) -> str:
    """Returns a text with its line breaks written as "\\n" and "\\r": a system of characters may
    produce some.
    """
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _score_pairs(trained: "Run", lines: list[str]) -> list[str]:
    """Returns each line "source TAB target" with log P(target | source) before it, an empty line
    for a blank one; raises `UserError` for a line that is no such pair.
    """
    pairs = {number: line.split("\t") for number, line in enumerate(lines) if line.strip()}
    for number, pair in pairs.items():
        if len(pair) != 2 or not all(map(str.strip, pair)):
            raise UserError(
                f"generate --score, line {number + 1}: expected 'source TAB target', both not empty;"
                " 'score RUN --file=...' takes texts of language models"
            )
    scores = trained.scores([(source, target) for source, target in pairs.values()])
    scored = dict(zip(pairs, scores, strict=True))
    return [
        f"{scored[number]:.6f}\t{line}" if number in scored else ""
        for number, line in enumerate(lines)
    ]


def check_output(path: Path, flag: str = "--output") -> None:
    """Raises `UserError` if no file can be written at `path`: no such folder, a folder itself, or
    no permission; `flag` names the path in the message.
    """
    if not path.parent.is_dir():
        raise UserError(f"{flag}={path}: there is no folder {path.parent}; make it or name another")
    if path.is_dir():
        raise UserError(f"{flag}={path} is a folder; name a file")
    replaced = path.is_file() or not path.exists()  # then it is the folder that is written to
    if not os.access(Path(os.path.realpath(path)).parent if replaced else path, os.W_OK):
        raise UserError(f"{flag}={path}: you may not write there; name another")


def read_lines(path: str | None) -> list[str]:
    """Returns the lines of a UTF-8 file, or of stdin if `path` is None or empty, without their line
    ends "\\n" or "\\r\\n".

    Raises:
      UserError: an unreadable file, a closed stdin, or a line that is not UTF-8 (with its number).
    """
    name = path or "stdin"
    if not path and sys.stdin is None:
        raise UserError("stdin is closed; send the lines there, or name a file of them")
    try:
        content = Path(path).read_bytes() if path else sys.stdin.buffer.read()
        lines = content.decode().split("\n")
    except OSError as error:
        hint = f"; {alike(Path(name))}" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read {name}: {error.strerror}{hint}") from error
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        byte = len(before[-1]) + 1
        raise UserError(f"{name}, line {len(before)}: not UTF-8 (byte {byte})") from error
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
