"""The one exception a user ever sees, and the near names that make it useful."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend: `launch.py` prints it as one line on stderr and exits with 2.

    The message names what is wrong, where, and the nearest valid choice. It is folded to one line.
    """

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


def nearest(word: str, choices: Iterable[str]) -> str:
    """The choices closest to `word`, as the tail of an error message.

    Returns "did you mean 'a' or 'b'?" where something is close, else "choose from: a, b, c".
    """
    known = sorted(choices)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    return "choose from: " + ", ".join(known) if known else "there is nothing to choose from"


def told(error: UserError | OSError) -> str:
    """An error in one line; of what the system refused: which file, why, and what to do where the reason says it."""
    if isinstance(error, UserError):
        return str(error)
    why = error.strerror or str(error) or type(error).__name__
    remedy = {
        errno.ENOSPC: "; free some space and run again",
        errno.EDQUOT: "; free some space and run again",
        errno.EFBIG: "; raise the limit on the size of files ('ulimit -f') and run again",
        errno.EMFILE: "; raise the limit on open files ('ulimit -n') and run again",
    }.get(error.errno or 0, "")
    files = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    return " ".join(f"{why}{': ' if files else ''}{files}{remedy}".split())
