"""What a shell can do to the streams of a command."""

import os
import pathlib
import pty
import subprocess
import sys

import pytest

from attnlab.commands import streams
from attnlab.progress import Progress, table

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
        ("mkdir x && cd x && rmdir ../x && {launch} list", 2, "folder that you are in was deleted"),
        ("{launch} list --no\xe4", 2, "error: list: unknown flag --no"),
    ],
)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device is always full")
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


def test_a_terminal_shows_control_codes_and_obeys_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a print, a table and a note; what draws the bar still moves the cursor."""
    reader, writer = pty.openpty()
    with open(writer, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        streams.prepare()
        print("one\x1b[2J", "\x07\x9b\x7f\r")
        table("two\x1b[2J", ("a\x1b[2J",), [("b\x1b[2J",)])
        with Progress(2, stream=sys.stdout) as progress:
            progress.note("three\x1b[2J")
        sent = b""
        while b"\x1b[?25h" not in sent:  # the last of the bar
            sent += os.read(reader, 2**16)
    told = sent.decode()
    assert "\x1b[2J" not in told and told.count("\u241b[2J") == 5
    assert "\u2407\ufffd\u2421\u240d" in told and "\x1b[?25l" in told
