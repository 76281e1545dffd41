"""What an exception of a write or a read says of the disk; tensorstore says it as text only."""

from __future__ import annotations

import errno
import os
import re

from attnlab.errors import causes


def raise_error(error: OSError) -> None:
    """Raise it, as what `os.walk` calls with an error."""
    raise error


def disk_full(error: BaseException) -> bool:
    """Whether lack of space (or quota) is anywhere in the chain of causes."""
    full = re.compile("No space left|RESOURCE_EXHAUSTED|Disk quota exceeded")
    numbers = (errno.ENOSPC, errno.EDQUOT)
    chain = causes(error)
    return any(getattr(link, "errno", None) in numbers or full.search(str(link)) for link in chain)


def refusal(error: BaseException) -> OSError | None:
    """The refusal of the system in the chain of causes."""
    for cause in causes(error):
        if isinstance(cause, OSError):
            return cause
        if number := re.search(r"os_error_code='(\d+)'", str(cause)):
            return OSError(int(number[1]), os.strerror(int(number[1])))
    return None


def short_reason(error: BaseException) -> str:
    """The exception in one short line, or what it was raised from: that names the array."""
    error = error.__cause__ or error
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'...' if len(text) > 160 else ''}"
