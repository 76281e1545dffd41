"""The list of seeded faults fits the code and its page, and its runner tells caught from survived.
The whole list: docs/faults.md.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import fault as faults_of
from tests.faults.__main__ import main, report
from tests.faults.fault import (
    LISTS,
    ROOT,
    SOURCES,
    TESTS,
    Fault,
    Stale,
    parse_choice,
    read,
    selects,
)
from tests.faults.listed import DOCS, FAULTS, figures_of, score, table, with_table
from tests.faults.runner import Result, Session

MINUTES = next(
    fault for fault in FAULTS if fault.name == "progress.py: hours without their minutes"
)
"""A fault whose tests compute nothing, so that judging it is quick."""


@pytest.mark.quick
def test_every_fault_fits_the_code() -> None:
    """Its old text stands exactly once, the new one makes other code that compiles, its tests are
    there.
    """
    assert (
        len(FAULTS)
        == len({fault.name for fault in FAULTS})
        == len({(fault.file, fault.old, fault.new) for fault in FAULTS})
        >= 120
    )
    for fault in FAULTS:
        assert fault.source() != (SOURCES / fault.file).read_text(), fault.name
        assert fault.what and fault.tests, fault.name
        assert [
            file for file in map(parse_choice, fault.stages()) if not (ROOT / file[0]).is_file()
        ] == [], fault.name


@pytest.mark.quick
def test_the_page_says_what_the_list_says() -> None:
    """As many faults in every part, the same survivors, and the share that must be caught; all of
    it is written by one command.
    """
    page = DOCS.read_text()
    figures = figures_of(page)
    assert {room: seeded for room, (seeded, *_) in figures.items()} == {
        room: seeded for room, (seeded, *_) in score({}).items()
    }
    assert re.findall(r"^\* survived: (.*) \(`", page, re.MULTILINE) == [
        fault.name for fault in FAULTS if fault.survives
    ]
    _, judged, sampled, caught = figures["all"]
    assert sampled >= 0.97 * judged and caught >= 0.99 * judged
    assert f"{len(FAULTS)} not judged." in table({})
    first = FAULTS[0]
    for status, was_sampled, counts in (
        ("caught", True, (1, 1, 1)),
        ("caught", False, (1, 0, 1)),
        ("survived", True, (1, 0, 0)),
    ):
        result = Result(first.name, status, "the_test", sampled=was_sampled)
        again = with_table(page, {first.name: result})
        assert figures_of(again)[first.room] == (figures[first.room][0], *counts)
        others = set(figures) - {first.room, "all"}  # nothing was judged anew: they keep theirs
        assert all(figures_of(again)[room] == figures[room] for room in others)
        assert ("caught by `the_test`" in again) == (counts == (1, 0, 1))


def test_every_choice_of_tests_selects_some() -> None:
    """A test that was renamed would no longer be asked first."""
    choices = sorted({choice for fault in FAULTS for choice in fault.tests})
    files = sorted({parse_choice(choice)[0] for choice in choices})
    flags = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"ATTNLAB_CASES": "all"}
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, *files],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for choice in choices:
        file, words = parse_choice(choice)
        assert any(test.startswith(f"{file}::") and selects(words, test) for test in collected), (
            f"no test is {choice!r}"
        )


@pytest.mark.quick
def test_lists_are_read_line_by_line(tmp_path: Path) -> None:
    first_fault = "@ wrong\n- old\n-     two\n+ new\n? all one | test_b.py\n"
    text = (
        f"# remark\n= all test_a.py: oracle\n== x/y.py\n\n{first_fault}@ gone\n- old\n+\n? all\n!"
        " why\n"
    )
    (tmp_path / "list.txt").write_text(text)
    first, second = read(tmp_path / "list.txt")
    assert first == Fault(
        "x/y.py", "wrong", "old\n    two", "new", ("test_a.py: oracle one", "test_b.py")
    )
    assert second == Fault("x/y.py", "gone", "old", "", ("test_a.py: oracle",), "why")
    assert first.module == "attnlab.x.y" and first.name == "x/y.py: wrong" and first.room == "x"
    below = read(LISTS / "attention" / "core.txt")[0]  # a list in a folder is about that folder
    assert below.file.startswith("attention/")
    assert all(choice.startswith("attention/test_") for choice in below.tests)
    of_file = Fault("training/loop.py", "wrong", "old", "new", ("training/test_step.py",))
    assert of_file.room == "training"
    assert of_file.stages() == ("training/test_step.py", "training/test_loop.py")
    assert of_file.stages(everything=True)[2:] == ("training", ".")
    (tmp_path / "list.txt").write_text("@ wrong\n* old\n")
    with pytest.raises(ValueError, match=r"list.txt:2: a line begins with '\*'"):
        read(tmp_path / "list.txt")


@pytest.mark.quick
def test_words_select_whole_words() -> None:
    assert parse_choice("test_a.py: one two") == (str(TESTS / "test_a.py"), ("one", "two"))
    assert parse_choice("test_a.py") == (str(TESTS / "test_a.py"), ())
    test = "tests/attention/test_a.py::test_oracle[scaled_dot-{}]"
    assert selects(("oracle", "scaled_dot-"), test) and selects(("dot",), test)
    assert selects((), test)
    assert not selects(("[dot-",), test) and not selects(("orac",), test)
    assert not selects(("oracle", "missing"), test)


def test_the_runner_tells_what_became_of_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes on one test."""
    monkeypatch.setitem(faults_of.WHOLE, MINUTES.room, ())
    session = Session()

    def become(session: Session = session, **changes: object) -> tuple[str, str]:
        result = session.judge(dataclasses.replace(MINUTES, **changes))  # type: ignore[arg-type]
        return result.status, result.detail

    assert become() == ("caught", "") and len(session.sound) == 1 and not session.spoilt
    assert become(old="import sys", new="import sys, sys") == ("survived", "")
    assert become(old="no such text")[0] == "stale" == become(old="import sys", new="(")[0]
    # nothing is tested by code that cannot be imported
    assert become(old="import sys", new="import system")[0] == "broken"
    nowhere = ("test_progress.py: no_such_test",)
    monkeypatch.delenv("ATTNLAB_CASES", raising=False)
    assert become(tests=nowhere) == ("survived", "")  # the sample may lack a test
    monkeypatch.setenv("ATTNLAB_CASES", "all")
    assert "ended with 5" in become(tests=nowhere)[1]
    assert become(Session(limit=0.01))[0] == "out of time"
    spoilt = Session()
    spoilt.spoilt = set(session.sound)
    assert become(spoilt)[0] == "broken"  # a test that fails anyway proves nothing
    with pytest.raises(Stale, match="stands 0 times in progress.py"):
        dataclasses.replace(MINUTES, old="no such text").digest()


def test_the_command_goes_on_from_its_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    given = ["--only", MINUTES.name, "--results", str(file)]
    assert main(given) == 0
    (row,) = json.loads(file.read_text())
    assert row["name"] == MINUTES.name and row["status"] == "caught" and "test_clock" in row["test"]
    assert "1 of 1 caught" in capsys.readouterr().out
    assert main(given) == 0
    again = capsys.readouterr()
    assert "faults to judge" not in again.err and "1 of 1 caught" in again.out
    for status in ("survived", "broken", "stale", "out of time"):
        assert report([MINUTES], {MINUTES.name: Result(MINUTES.name, status)}) == 1
        assert "Not as the list says" in capsys.readouterr().out
    assert main(["--only", "no such fault"]) == 2
