"""The lock of a run: what a second process finds, after a kill too, and on a machine that does not see
it.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments.run import launcher
from attnlab.records import locks
from attnlab.records.locks import Held, RunLock, Unlocked, holder, is_held, prove
from tests.records.test_provenance import environment
from tests.refusals import check_refused

DIED = {"pid": 1, "host": "a", "start": "2026-01-01T00:00:00Z"}
"""The record of a process on another machine."""
HOLDER = """
import sys, time
from attnlab.records.locks import RunLock
lock = RunLock(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.quick
def test_lock_names_the_live_holder_and_a_kill_frees_it(tmp_path: Path) -> None:
    """A second process is told pid, host and start of the first; after SIGKILL of the first it may
    train.
    """
    workdir = tmp_path / "run"
    line = [sys.executable, "-c", HOLDER, str(workdir)]
    child = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment())
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    with pytest.raises(UserError) as raised:
        RunLock(workdir)
    start = json.loads((workdir / ".lock").read_text())["start"]
    holder = f"pid {child.pid} on {socket.gethostname()} since {start}"
    assert f"workdir {workdir} is being trained by a live process ({holder})" in str(raised.value)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with RunLock(workdir):
        assert json.loads((workdir / ".lock").read_text())["pid"] == os.getpid()
        check_refused(f"pid {os.getpid()} ", RunLock, workdir)
    RunLock(workdir).release()


def test_looking_at_a_lock_neither_writes_nor_is_in_the_way(tmp_path: Path) -> None:
    """The holder is named; a lock that somebody only looks at for a moment can still be had."""
    assert not is_held(tmp_path / "absent") and not (tmp_path / "absent").exists()
    with RunLock(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(Held) as raised:
            RunLock(tmp_path)
        assert raised.value.holder.startswith(f"pid {os.getpid()} on ")
    assert not is_held(tmp_path)
    with open(tmp_path / ".lock", "rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.03, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with RunLock(tmp_path):
            assert is_held(tmp_path)


def test_lock_in_an_impossible_place(tmp_path: Path) -> None:
    """A file where the workdir should be."""
    (tmp_path / "file").write_text("")
    check_refused("cannot use workdir .*file", RunLock, tmp_path / "file")


def be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this is another machine, and none sees the `flock` of the others."""
    monkeypatch.setattr(fcntl, "flock", lambda *arguments: None)
    monkeypatch.setattr(socket, "gethostname", lambda: "b")
    monkeypatch.setattr(locks, "WATCH", 0.05)


def test_a_lock_that_another_machine_does_not_see_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes second gives way, and says who has it."""
    with RunLock(tmp_path) as first:
        who = holder(tmp_path)
        be_elsewhere(monkeypatch)
        for take in (RunLock, prove):
            threading.Timer(0.2, first.answer).start()  # which its own watch does every 2 s
            with pytest.raises(Unlocked) as error:
                take(tmp_path)
            words = f"the lock of {tmp_path} does not hold between machines: {who} has it too; use"
            assert str(error.value).startswith(words) and "\n" not in str(error.value)
            first._rival = ""
        assert holder(tmp_path) == who
    monkeypatch.setattr(locks, "ANSWER", 1e9)
    RunLock(tmp_path).release()  # the first has said that it has ended: nothing is waited for


@pytest.mark.parametrize("record", [{"nonce": "1"}, {}])
def test_what_has_died_on_another_machine_does_not_answer(
    record: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote no nonce, and cannot answer: nothing is waited for."""
    monkeypatch.setattr(locks, "ANSWER", 0.2 if record else 1e9)
    (tmp_path / ".lock").write_text(json.dumps({**DIED, **record}))
    with RunLock(tmp_path):
        assert f"pid {os.getpid()} on {socket.gethostname()}" in holder(tmp_path)


def test_several_locks_wait_for_an_answer_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "ANSWER", 0.5)
    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
        (folder / ".lock").write_text(json.dumps({**DIED, "nonce": "1"}))
    began = time.monotonic()
    taken = [RunLock(folder, later=True) for folder in folders]
    for lock in taken:
        lock.prove()
    assert 0.5 <= time.monotonic() - began < 3.0
    for lock in taken:
        lock.release()


def test_one_of_two_that_train_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first machine was asleep while the second one waited for its answer."""
    be_elsewhere(monkeypatch)
    monkeypatch.setattr(locks, "ANSWER", 0.0)
    monkeypatch.setattr(locks, "_watch", lambda: None)
    monkeypatch.setattr(locks, "_watched", set())
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    first = RunLock(tmp_path)
    monkeypatch.setattr(socket, "gethostname", lambda: "c")
    second = RunLock(tmp_path)
    for lock in (first, second):
        lock.answer()
        assert codes == []
    first.answer()
    assert codes == [2] and "on c since" in capsys.readouterr().err


def test_a_launcher_waits_for_a_worker_that_only_proves(tmp_path: Path) -> None:
    proving = RunLock(tmp_path, purpose="proof")
    threading.Timer(0.3, proving.release).start()
    launcher.lock(tmp_path).release()
    with RunLock(tmp_path), pytest.raises(UserError, match="another launcher is at work"):
        launcher.lock(tmp_path)
