"""A machine that misbehaves costs one line, or nothing: a disk that may only be read, a clock that
jumps. Damaged checkpoints: training/test_checkpoints.py.
"""

import contextlib
import errno
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.records.stream import read_records
from tests.commands.tiny import completed, run_command
from tests.training.toy import run, settings

MOUNTED = pytest.param("mounted", marks=pytest.mark.full)
TRAIN = ["train", "--config=configs/translation.py:rnnsearch", "--workdir={folder}/new"]
SWEEP = ["sweep", "experiments/quickstart.py", "--dir={folder}/sweep"]
PREPARE = ["prepare", "--from={folder}/text.txt", "--to={folder}/shards"]


@pytest.fixture
def read_only(
    request: pytest.FixtureRequest, searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder with a finished run, in which nothing can be written any more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "mounted":
        mount = ["mount", "-t", "tmpfs", "none", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("this user may not mount")
    shutil.copytree(searched, folder / "run")
    (folder / "text.txt").write_text("Some words.\n" * 50)
    if request.param == "mounted":
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    opened, made = os.open, os.mkdir

    def refuse(path: Any) -> None:
        if str(path).startswith(str(folder)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def open_to_read(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse(path)
        return opened(path, flags, *rest, **options)

    def make_nothing(path: Any, *rest: Any, **options: Any) -> None:
        if not os.path.isdir(path):
            refuse(path)
        made(path, *rest, **options)

    monkeypatch.setattr(os, "open", open_to_read)
    monkeypatch.setattr(os, "mkdir", make_nothing)
    yield folder


@pytest.mark.parametrize(
    ("read_only", "words"),
    [
        ("patched", TRAIN),
        ("patched", PREPARE),
        *(pytest.param("mounted", words, marks=pytest.mark.full) for words in (SWEEP, PREPARE)),
    ],
    indirect=["read_only"],
)
def test_what_cannot_be_written_is_one_line(read_only: Path, words: list[str]) -> None:
    """The processes that plan a sweep know nothing of a patch."""
    ended = run_command([word.format(folder=read_only) for word in words])
    last = ended.err.splitlines()[-1]
    assert ended.code == 2 and "Read-only file system" in last and str(read_only) in last
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("read_only", ["patched", MOUNTED], indirect=True)
def test_a_run_on_a_disk_that_may_only_be_read_can_be_scored(read_only: Path) -> None:
    assert "nats" in completed(["evaluate", f"--workdir={read_only}/run"]).out


@pytest.mark.quick
def test_a_jumping_clock_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By up to a day, either way, at every look at it. Orbax gives up a save when the clock says
    that it took too long: one line, and the same command goes on.
    """
    run(tmp_path / "calm", settings())
    begin, days = time.time(), random.Random(0)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: begin + days.uniform(-1, 1) * 86_400)
        with contextlib.suppress(UserError):
            run(tmp_path / "jumping", settings())
        assert list(read_records(tmp_path / "jumping" / "metrics.jsonl"))
    run(tmp_path / "jumping", settings())
    streams = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("calm", "jumping")]
    assert streams[0] == streams[1] and streams[0].count(b"\n") > 3
