"""Logs of a job's process."""

import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.experiments.run.output import last_line, shortened
from tests.experiments import real


def test_the_log_takes_every_letter(tmp_path: Path) -> None:
    """Where the terminal takes ascii alone, a trial must not fail over the name of its data."""
    code = (
        "import pathlib, sys; from attnlab.experiments.run.output import write_output_to as to;"
        " to(pathlib.Path('log'))"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ascii_only["PYTHONIOENCODING"] = "ascii"
    line = [sys.executable, "-c", code + r"; print('\xfc\ud800')"]
    done = subprocess.run(line, env={**real.environment(), **ascii_only}, cwd=tmp_path, check=False)
    assert done.returncode == 0 and (tmp_path / "log").read_text(encoding="utf-8") == "ü\\ud800\n"


def test_last_line(tmp_path: Path) -> None:
    assert last_line(tmp_path / "absent") == ""
    (tmp_path / "log.txt").write_bytes(b"x" * 9000 + b"\nthe last \xff one\n \n")
    assert last_line(tmp_path / "log.txt") == "the last \N{REPLACEMENT CHARACTER} one"
    noise = (
        "--------------------\nFor simplicity, JAX has removed its internal frames from the"
        " traceback of the following exception.\n"
    )
    (tmp_path / "log.txt").write_text(f"Traceback\nTypeError: no good\n{noise}")
    assert last_line(tmp_path / "log.txt") == "TypeError: no good"


JAX = """XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123456789 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:  103.99GiB
--------------------
For simplicity, JAX has removed its internal frames from the traceback of the following exception. Set JAX_TRACEBACK_FILTERING=off."""
CALLBACK = """XlaRuntimeError: INTERNAL: CpuCallback error: Traceback (most recent call last):
  File "/somewhere/far/away/in/an/environment/lib/python3.11/site-packages/threading.py", line 1002, in _bootstrap
  File "/somewhere/far/away/in/an/environment/lib/python3.11/site-packages/mine.py", line 2, in callback
ValueError: bad token"""
LONG = "TypeError: " + "f32[8,128] " * 60
ALL = "(all of it: trials/additive-1/seed0/log.txt; --retry-failed runs it again)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("RuntimeError: broken on purpose", "RuntimeError: broken on purpose"),
        ("ValueError: two\n lines", "ValueError: two lines"),
        ("KeyError:", "KeyError"),
        (JAX, f"{JAX.splitlines()[0]} {ALL}"),
        (CALLBACK, f"ValueError: bad token {ALL}"),
        (LONG, f"{LONG[:160].rstrip()}... {ALL}"),
    ],
)
def test_a_long_error_is_told_in_a_line(text: str, told: str) -> None:
    assert shortened(text, Path("/runs/sweep/trials/additive-1/seed0")) == told
