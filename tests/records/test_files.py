"""Whole replacements and whole records; cells of a CSV file come back as they were, and no spreadsheet
runs one.
"""

import csv
import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.records.files import AppendOnly, csv_text, expanded, timestamp, write_atomic
from tests.refusals import check_refused


def test_write_atomic_replaces_text_and_bytes(tmp_path: Path) -> None:
    """The content is there, with ordinary permissions, and nothing else is left in the folder."""
    for content, oracle in (("grün\n", "grün\n".encode()), (b"\x00\xff", b"\x00\xff")):
        write_atomic(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == oracle
    (tmp_path / "plain").write_text("")
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "plain"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the user gets one line and the old content; other errors pass as they are."""
    write_atomic(tmp_path / "file", "old")

    def fail(*arguments: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    code = errno.ENOSPC
    words = f"no space left on the disk of {tmp_path}: file was not written"
    check_refused(words, write_atomic, tmp_path / "file", "new")
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        write_atomic(tmp_path / "file", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_replaced_file_keeps_its_mode_and_a_new_one_obeys_the_umask(
    mode: int, tmp_path: Path
) -> None:
    """A private file stays private, also in the moment in which its successor is written."""
    (tmp_path / "private").write_text("old")
    (tmp_path / "private").chmod(mode)
    seen: list[int] = []
    before = os.umask(0o027)
    look = lambda number: seen.append(stat.S_IMODE(os.fstat(number).st_mode))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", look)
            write_atomic(tmp_path / "private", "new")
        write_atomic(tmp_path / "fresh", "new")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert seen == [mode] and modes == {"private": mode, "fresh": 0o640}
    assert (tmp_path / "private").read_text() == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("old")
    os.chown(tmp_path / "theirs", 65534, 65534)
    write_atomic(tmp_path / "theirs", "new")
    value = (tmp_path / "theirs").stat()
    assert (value.st_uid, value.st_gid, (tmp_path / "theirs").read_text()) == (65534, 65534, "new")


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_stays_a_link(dangling: bool, tmp_path: Path) -> None:
    """What it leads to is replaced, whole, in the folder where that lies; a chain of links and one
    that leads nowhere yet too.
    """
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "file"
    if not dangling:
        target.write_text("old")
        target.chmod(0o600)
    (tmp_path / "second").symlink_to("far/file")
    (tmp_path / "first").symlink_to("second")
    write_atomic(tmp_path / "first", "new")
    assert os.readlink(tmp_path / "first") == "second"
    assert os.readlink(tmp_path / "second") == "far/file"
    assert target.read_text() == "new"
    assert dangling or stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "file", "first", "second"]


def test_what_is_no_regular_file_is_written_into(tmp_path: Path) -> None:
    """A FIFO, also behind a link, hands the content to its reader, and both are still there; a
    folder is refused.
    """
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        write_atomic(tmp_path / name, "grün\n")
        assert os.read(reader, 100) == "grün\n".encode()
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode) and (tmp_path / "link").is_symlink()
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        write_atomic(tmp_path, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "link"]


def test_a_stream_by_its_name_loses_nothing(tmp_path: Path) -> None:
    """/dev/stdout may lead to a file that others write to: `attnlab generate --output=/dev/stdout
    >> file`.
    """
    with open(tmp_path / "file", "ab", buffering=0) as file:
        file.write(b"before\n")
        write_atomic(f"/proc/self/fd/{file.fileno()}", "answer\n")
        file.write(b"after\n")
    assert (tmp_path / "file").read_text() == "before\nanswer\nafter\n"


def test_a_device_is_written_into(tmp_path: Path) -> None:
    """Two of our own, with the numbers of /dev/null and /dev/full: the second is full, and both are
    still devices afterwards.
    """
    try:
        for name, minor in (("null", 3), ("full", 7)):
            os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            open(tmp_path / name, "wb").close()
    except OSError:
        pytest.skip("no device of our own can be made or opened here")
    write_atomic(tmp_path / "null", "new")
    with pytest.raises(UserError, match="no space left on the disk of .*: full was not written"):
        write_atomic(tmp_path / "full", "new")
    assert [stat.S_ISCHR(path.stat().st_mode) for path in tmp_path.iterdir()] == [True, True]


def test_the_longest_names_that_there_are(tmp_path: Path) -> None:
    """A name of 255 bytes leaves no room for that of the file which takes its place at the end; a
    longer one cannot be.
    """
    write_atomic(tmp_path / ("ü" * 127 + "x"), "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]
    with pytest.raises(OSError, match="File name too long"):
        write_atomic(tmp_path / ("x" * 256), "new")


def test_append_only_reopens_at_the_end(tmp_path: Path) -> None:
    """Nothing is made before the first record, each record is in the file at once, and closing is
    not final. A file that was removed is not written on: nobody finds such records.
    """
    file = AppendOnly(tmp_path / "log")
    file.sync()
    file.close()
    assert not file.path.exists()
    file.append(b"a\n")
    assert file.path.read_bytes() == b"a\n"
    file.close()
    file.append(b"b\n")
    file.sync()
    assert file.path.read_bytes() == b"a\nb\n"
    file.path.unlink()
    file.append(b"c\n")
    check_refused(f"{file.path} was removed while it was being written", file.sync)
    file.close()


def test_where_there_is_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as users without an entry, and without $HOME: only a path that needs a home is
    refused.
    """
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/a") == Path("/home/me/a")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])  # nor an entry of the user
    assert expanded("/a/b") == Path("/a/b")
    words = r"~/a: there is no home folder here \(\$HOME is not set\); write the path without '~'"
    check_refused(words, expanded, "~/a")


def test_a_partly_written_record_is_a_full_disk(tmp_path: Path) -> None:
    """The kernel writes what fits and says how much: that is an error, not a success."""
    file = AppendOnly("/dev/full") if os.path.exists("/dev/full") else pytest.skip("no /dev/full")
    check_refused("no space left on the disk of /dev: full was not written", file.append, b"x")


def test_timestamp_is_utc() -> None:
    """ISO 8601, to the second, with its offset."""
    assert timestamp().endswith("+00:00") and len(timestamp()) == 25


CELLS = [
    ("=1+1", "'=1+1"),
    ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("\t=1", "'\t=1"),
    ("-0.5", "-0.5"),
    (-2, "-2"),
    ('a "b", =c', 'a "b", =c'),
]


@pytest.mark.quick
@pytest.mark.parametrize(("cell", "read"), CELLS)
def test_cells(cell: Any, read: str) -> None:
    text = csv_text([("name", "n"), (cell, 1)])
    assert [*csv.reader(text.splitlines(keepends=True))] == [["name", "n"], [read, "1"]]
    assert text.endswith(",1\r\n") and csv_text([("a",)], "\n") == "a\n"
