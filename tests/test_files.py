"""Whole replacements and whole records."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.files import AppendOnly, timestamp, write_atomic


def test_write_atomic_replaces_text_and_bytes(tmp_path: Path) -> None:
    """The content is there, with ordinary permissions, and nothing else is left in the folder."""
    for content, wanted in (("grün\n", "grün\n".encode()), (b"\x00\xff", b"\x00\xff")):
        write_atomic(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == wanted
    (tmp_path / "plain").write_text("")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "plain"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the user gets one line and the old content; other errors pass as they are."""
    write_atomic(tmp_path / "file", "old")

    def fail(*arguments: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    code = errno.ENOSPC
    with pytest.raises(UserError, match=f"no space left on the disk of {tmp_path}: file was not written"):
        write_atomic(tmp_path / "file", "new")
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        write_atomic(tmp_path / "file", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_append_only_reopens_at_the_end(tmp_path: Path) -> None:
    """Nothing is made before the first record, each record is in the file at once, and closing is not final."""
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
    file.close()


def test_a_partly_written_record_is_a_full_disk(tmp_path: Path) -> None:
    """The kernel writes what fits and says how much: that is an error, not a success."""
    file = AppendOnly("/dev/full") if os.path.exists("/dev/full") else pytest.skip("no /dev/full")
    with pytest.raises(UserError, match="no space left on the disk of /dev: full was not written"):
        file.append(b"x")


def test_timestamp_is_utc() -> None:
    """ISO 8601, to the second, with its offset."""
    assert timestamp().endswith("+00:00") and len(timestamp()) == 25
