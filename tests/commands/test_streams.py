"""What a shell can do to the streams of a command."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

LAUNCH = pathlib.Path(__file__).parents[2] / "launch.py"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("{launch} list > /dev/full", 2, "error: No space left on device"),
        ("{launch} list --no > /dev/full", 2, "error: list: unknown flag --no"),
        ("{launch} list --no 2> /dev/full", 2, ""),
        ("{launch} list >&-", 2, "error: stdout is closed"),
        ("{launch} list --no <&- >&- 2>&-", 2, ""),
        ("{launch} list --no <&-", 2, "error: list: unknown flag --no"),
        ("{launch} list > /dev/null <&- 2>&-", 0, ""),
        ("{launch} list | true", None, ""),
        ("PYTHONIOENCODING=ascii {launch} list systems ngram_rnn | grep . > /dev/null", 0, ""),
        (
            "mkdir gone && cd gone && rmdir ../gone && {launch} list",
            2,
            "error: the folder that you are in was deleted",
        ),
        ("{launch} list --no\xe4", 2, "error: list: unknown flag --no"),
    ],
)
@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="this system has no device that is always full"
)
def test_streams_as_a_shell_may_leave_them(
    command: str, code: int | None, words: str, tmp_path: pathlib.Path
) -> None:
    """One line and exit code 2, and what Python says when it ends is not added; PYTHONUNBUFFERED
    hides half of it.
    """
    line = command.format(launch=f"{sys.executable} {LAUNCH}").encode("latin-1")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [b"bash", b"-o", b"pipefail", b"-c", line],
        capture_output=True,
        cwd=tmp_path,
        env=kept,
        check=False,
    )
    told = done.stderr.decode()
    assert done.returncode == code if code is not None else done.returncode in (0, 141), told
    assert told.count("\n") == bool(words) and words in told
