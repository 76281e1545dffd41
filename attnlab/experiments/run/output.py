"""What the process of a job prints goes to a log."""

import os
import sys
from pathlib import Path
from typing import Any

LONGEST = 160  # characters of an error in a record; errors of compilers have pages
_NOISE = (
    "For simplicity, JAX has removed",
    "The stack trace below excludes",
    "The above exception was",
    "----",
    "====",
)


def write_output_to(log: Path) -> None:
    """Redirects this process's stdout and stderr, those of libraries too, to the end of the file
    `log`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # independent of the letters that the terminal takes
    letters: Any = {"encoding": "utf-8", "errors": "backslashreplace"}
    sys.stdout, sys.stderr = (
        open(number, "w", buffering=1, closefd=False, **letters)  # noqa: SIM115
        for number in (1, 2)
    )


def shortened(text: str, workdir: Path) -> str:
    """Returns an error text of a trial in one line: all of it if it is short, else its most
    important line and where the log is.

    That line is the first, or the last where a traceback is part of the text; what JAX says about
    tracebacks is left out.

    Args:
      text: of the error, with its class.
      workdir: of the trial, whose log has all of it.
    """
    filled = [line for line in map(str.strip, text.splitlines()) if line]
    lines = [" ".join(line.split()) for line in filled if not line.startswith(_NOISE)]
    whole = " ".join(lines).removesuffix(":")
    if len(whole) <= LONGEST:
        return whole
    has_traceback = any(line.endswith("Traceback (most recent call last):") for line in lines)
    line = lines[-1 if has_traceback else 0]
    line = line if len(line) <= LONGEST else line[:LONGEST].rstrip() + "..."
    log = f"{'/'.join(workdir.parts[-3:])}/log.txt"
    return f"{line} (all of it: {log}; --retry-failed runs it again)"


def last_line(log: Path) -> str:
    """Returns the last line of a log that is neither blank nor a notice of JAX's; "" if there is
    none or it cannot be read.
    """
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    words = (line.strip() for line in reversed(lines) if not line.startswith(_NOISE))
    return next(filter(None, words), "")
