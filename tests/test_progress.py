"""Progress on a terminal and elsewhere, and tables."""

import io
import re
import time

import pytest

from attnlab import progress
from attnlab.progress import Progress, clock, table


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 120 columns, whatever the tests run in."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.quick
def test_plain_lines_are_at_most_one_per_interval() -> None:
    stream = io.StringIO()
    with Progress(100, start=20, every=30, stream=stream) as progress:
        progress.compiled("16x16", 3.14)
        for step in range(21, 101):
            progress.update(step, loss=2.34567, tokens_per_second=4567.8, step_seconds=0.0123)
        progress.note("one [line]")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "compiled 16x16 in 3.1 s" and lines[-1] == "one [line]"
    assert [line.split()[1] for line in lines[1:-1]] == ["50/100", "80/100", "100/100"]
    words = "step 50/100  loss 2.346  12.3 ms/step  4,568 tok/s  ETA 0:00:01  compile 3.1 s"
    assert lines[1] == words


def test_the_last_step_is_said_even_when_stopped_early() -> None:
    stream = io.StringIO()
    with Progress(100, every=10, stream=stream) as progress:
        progress.update(10)
        progress.update(13)
    assert stream.getvalue().splitlines() == ["step 10/100", "step 13/100"]
    stream = io.StringIO()
    with Progress(100, start=100, stream=stream):
        pass
    assert stream.getvalue() == ""


def test_time_left_follows_the_pace_and_leaves_compiling_out() -> None:
    progress = Progress(1000, stream=io.StringIO())
    progress.compiled("a", 500.0)
    progress.update(100, step_seconds=1.0)
    assert "ETA 0:15:00" in progress.figures()
    for step in range(101, 150):
        progress.update(step, step_seconds=0.1)
    seconds = (1000 - 149) * 0.1
    left = re.search(r"ETA 0:(\d\d):(\d\d)", progress.figures())
    assert left and abs(60 * int(left[1]) + int(left[2]) - seconds) < 3
    progress.update(150)
    assert "100 ms/step" in progress.figures() and "compile 500.0 s" in progress.figures()


def test_a_terminal_gets_a_bar_and_notes_above_it() -> None:
    stream = Terminal()
    with Progress(10, stream=stream) as progress:
        progress.update(4, loss=1.5, step_seconds=0.5)
        progress.note("warning: [bold]x[/bold] " + "y" * 150)
    out = stream.getvalue()
    assert "4/10" in out and "loss 1.5  500 ms/step  ETA 0:00:03" in out and "━" in out
    assert "warning: [bold]x[/bold] " + "y" * 150 in out


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(2, stream=stream) as progress:
        progress.update(1)
    assert stream.getvalue() == "step 1/2\n"


def test_an_error_passes_through_the_bar() -> None:
    for stream in (Terminal(), io.StringIO()):
        with pytest.raises(ZeroDivisionError), Progress(2, stream=stream) as progress:
            progress.update(1)
            raise ZeroDivisionError


def test_a_plain_table_is_aligned() -> None:
    stream = io.StringIO()
    table("results", ["name", "BLEU", "runs"], [("a$[b]\nc", 1.23456, 3), ("dd", None, 12)], stream)
    assert stream.getvalue().splitlines() == [
        "results",
        "name      BLEU  runs",
        "-------  -----  ----",
        "a$[b] c  1.235     3",
        "dd           -    12",
    ]
    stream = io.StringIO()
    rows = [
        ("additive", "12,353", "4/10", "-", "0:01:20", "baseline", "v2"),
        ("dot", "2.5 G", "done", "", "12:00:00", "+0.5", "3"),
    ]
    table("text", ["variant", "size", "step", "none", "time", "mean", "name"], rows, stream)
    assert stream.getvalue().splitlines()[3:] == [
        "additive  12,353  4/10  -      0:01:20  baseline  v2",
        "dot        2.5 G  done        12:00:00  +0.5      3",
    ]
    stream = io.StringIO()
    table("told", ["mean"], [("baseline",), ("+0.5",)], stream, numbers={0})
    assert stream.getvalue().splitlines()[-1] == "    +0.5"
    table("empty", ["a"], [], stream)
    with pytest.raises(ValueError, match="2 cells"):
        table("bad", ["a", "b"], [("x",)], stream)


def test_a_table_on_a_terminal() -> None:
    stream = Terminal()
    table("results [x]", ["name", "[BLEU]"], [("[red]a", 1.5)], stream)
    assert all(text in stream.getvalue() for text in ("results [x]", "[BLEU]", "[red]a", "1.5"))


def test_clock() -> None:
    expected = ["0:00:00", "0:01:00", "1:01:01", "100:00:00"]
    assert [clock(s) for s in (0, 59.6, 3661, 360000)] == expected


def test_long_work_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And short work says nothing."""
    assert list(progress.patiently("writing", "ab")) == ["a", "b"]
    assert capsys.readouterr().err == ""
    for name in ("PATIENCE", "BETWEEN"):
        monkeypatch.setattr(progress, name, 0.05)
    for _ in progress.patiently("writing", "ab"):
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "writing: 0 of 2 batches, 0:00:00 so far"
    assert lines[-1].startswith("writing: 1 of 2 batches, 0:00:0")
    with progress.patience("reading the data"):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("reading the data: 0:00:00 so far\n")


def test_programs_that_their_first_step_compiles_and_the_time_left() -> None:
    stream = io.StringIO()
    progress = Progress(103, stream=stream, every=200)
    progress.update(0, step_seconds=9.0)
    progress.compiled("batches of 2x3", 0.0)
    progress.compiled("batches of 2x3", 2.0, "1.5 MB")
    for step, seconds in enumerate((9.0, 0.6, 0.7, 0.6), 1):
        progress.update(step, step_seconds=seconds)
    first, second, third = stream.getvalue().splitlines()
    assert first == "batches of 2x3 are compiled in their first step"
    assert second == "compiled batches of 2x3 in 2.0 s, peak 1.5 MB on each device"
    assert third.startswith("left: 100 steps, about 0:01:10 (h:mm:ss), w")
