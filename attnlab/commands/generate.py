"""`generate`: what a trained run makes of lines from stdin or a file: translations, labels, how a text goes on."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from attnlab.commands import session, streams
from attnlab.data.files import alike
from attnlab.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--input`, `--output`, `--score` and `--ensemble`."""
    parser.add_argument("--input", metavar="FILE", help="one text a line, UTF-8, two with a tab between them for pairs (default: stdin)")
    parser.add_argument("--output", metavar="FILE", help="where the answers go (default: stdout)")
    parser.add_argument(
        "--score", action="store_true", help="lines are 'source TAB target': put log P(target | source), in nats, before each"
    )
    session.add_ensemble(parser)
    parser.epilog = (
        "One line out for each line in, an empty one for an empty one. Where a system writes text, --config.decoding.n_best=N gives N\n"
        "lines of 'line number TAB score TAB text' for each, best first, fewer where fewer end within the length limit;\n"
        "--config.decoding.method=beam|greedy|sample picks the method.\n\n" + (parser.epilog or "")
    )


def run(arguments: argparse.Namespace) -> int:
    """Answer every line."""
    session.ensemble_of(arguments, session.trained_run(arguments)[1])  # complain before reading stdin
    if arguments.output:
        _check_output(Path(arguments.output))
    lines = read_lines(arguments.input)
    task, params, _, _ = session.trained_task(arguments, ())
    output = _scored(task, params, lines) if arguments.score else _answered(task, params, lines)
    text = "".join(line + "\n" for line in output)
    if arguments.output:
        from attnlab.files import write_atomic

        write_atomic(arguments.output, text)
    else:
        streams.reconfigure(encoding="utf-8", errors="strict")  # as the file of --output, whatever the terminal takes
        sys.stdout.write(text)
    return 0


def _answered(task: Any, params: Any, lines: list[str]) -> list[str]:
    """The answers to all lines, one line each, or several."""
    wanted = [number for number, line in enumerate(lines) if line.strip()]
    limit = task.config.batch.max_length
    longer = task.longer_than(limit, [lines[number] for number in wanted])
    if longer:
        first = wanted[longer[0]] + 1
        print(
            f"note: {len(longer)} of {len(wanted)} {task.examples} are longer than the {limit} tokens of training (first: line {first})",
            file=sys.stderr,
        )
    found = dict(zip(wanted, task.respond(params, [lines[number] for number in wanted]), strict=True)) if wanted else {}
    several = "decoding" in task.config and task.config.decoding.get("n_best", 1) > 1
    output = []
    for number in range(len(lines)):
        answers = found.get(number, [])
        if several:
            output += [f"{number + 1}\t{one.score:.4f}\t{_on_one_line(one.text)}" for one in answers]
        else:
            output.append(_on_one_line(answers[0].text) if answers else "")
    return output


def _on_one_line(text: str) -> str:
    """A text that a system of characters may have broken into lines."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _scored(task: Any, params: Any, lines: list[str]) -> list[str]:
    """Every pair with its log-probability before it; an empty line for an empty one."""
    if not hasattr(task, "log_probs"):
        raise UserError(f"generate --score: the task {task.config.task!r} has no targets to score; translation and pronunciation have")
    pairs = {number: line.split("\t") for number, line in enumerate(lines) if line.strip()}
    for number, pair in pairs.items():
        if len(pair) != 2 or not all(map(str.strip, pair)):
            raise UserError(f"generate --score, line {number + 1}: expected 'source TAB target', both not empty")
    scores = task.log_probs(params, [(source, target) for source, target in pairs.values()]) if pairs else []
    found = dict(zip(pairs, scores, strict=True))
    return [f"{found[number]:.6f}\t{line}" if number in found else "" for number, line in enumerate(lines)]


def _check_output(path: Path) -> None:
    """Raise `UserError` if no file can be written there; asked before the work, not after it."""
    if not path.parent.is_dir():
        raise UserError(f"--output={path}: there is no folder {path.parent}; make it or name another")
    if path.is_dir():
        raise UserError(f"--output={path} is a folder; name a file")
    if not os.access(path if path.exists() else Path(os.path.realpath(path)).parent, os.W_OK):
        raise UserError(f"--output={path}: you may not write there; name another")


def read_lines(path: str | None) -> list[str]:
    """The lines of a file, or of stdin, without their ends, "\\n" or "\\r\\n".

    Raises:
      UserError: an unreadable file, a closed stdin, or a line that is not UTF-8 (with its number).
    """
    name = path or "stdin"
    if not path and sys.stdin is None:
        raise UserError("stdin is closed; send the lines there, or name a file of them")
    try:
        content = Path(path).read_bytes() if path else sys.stdin.buffer.read()
    except FileNotFoundError as error:
        raise UserError(f"cannot read {name}: {error.strerror}; {alike(Path(name))}") from error
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from error
    lines = content.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, 1):
        try:
            texts.append(line.decode().removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise UserError(f"{name}, line {number}: not UTF-8 (byte {error.start + 1})") from error
    return texts
