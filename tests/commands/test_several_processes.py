"""`train` and `evaluate` by two processes end together, and leave what one process with two devices
leaves.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from attnlab.commands import main
from attnlab.records import attempts
from attnlab.records.locks import RunLock
from attnlab.records.stream import read_records
from tests.processes.test_supervision import ended, pair
from tests.training.kill_resume import STEPS, command

ROOT = Path(__file__).resolve().parents[2]
Process = subprocess.Popen[str]


def check_alike(one: Path, other: Path) -> None:
    """The same records, but for the rounding of two programs: with collectives between processes
    XLA compiles another one. On some CPUs (Zen 4) it rounds alike, on others (Zen 5) it does not.
    """
    records = [read_records(workdir / "metrics.jsonl") for workdir in (one, other)]
    assert len(records[0]) == len(records[1]) > STEPS
    for first, second in zip(*records, strict=True):
        assert (first["step"], first["split"]) == (second["step"], second["split"])
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-5), first["step"]


def started(arguments: list[str], folders: Sequence[Path] = (ROOT, ROOT)) -> list[Process]:
    """Two processes of the same command, each in its folder, and nothing of this one's environment
    that a user does not have.
    """
    kept = {
        name: os.environ[name]
        for name in ("HOME", "PATH", "JAX_PLATFORMS", "XLA_FLAGS", "ATTNLAB_CACHE")
        if name in os.environ
    }
    return pair(["-W", "ignore", str(ROOT / "launch.py"), *arguments], kept, folders)


Stopped = tuple[Path, tuple[list[int], str, str]]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """A run of two processes of which one was sent SIGTERM, and how they ended."""
    workdir = tmp_path_factory.mktemp("stopped") / "run"
    both = started(command("lstm_lm", "auto", 2, workdir))
    deadline = time.monotonic() + 300
    while not read_records(workdir / "metrics.jsonl") and both[0].poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    both[1].send_signal(signal.SIGTERM)
    return workdir, ended(both)


def test_sigterm_to_one_saves_and_ends_both(stopped: Stopped) -> None:
    """Both processes stop after the same step (of pmap), which is saved once."""
    workdir, (codes, out, err) = stopped
    assert codes == [143, 143], err
    step = attempts.last_word(attempts.read(workdir))[1]
    assert 0 < step < STEPS and f"interrupted at step {step}: saved in {workdir}" in out
    assert (workdir / "checkpoints" / str(step)).is_dir()
    manifest = json.loads((workdir / "manifest.json").read_text())
    assert manifest["devices"]["processes"] == 2 and manifest["devices"]["count"] == 2


@pytest.mark.full
def test_any_number_of_processes_goes_on(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process with two devices goes on to the end of an undisturbed run, within rounding; two
    score it as one does.
    """
    cut, whole = Path(shutil.copytree(stopped[0], tmp_path / "cut")), tmp_path / "whole"
    for workdir in (cut, whole):
        assert main(command("lstm_lm", "pmap", 2, workdir)) == 0
    check_alike(whole, cut)
    capsys.readouterr()
    arguments = ["evaluate", f"--workdir={whole}", "--split=valid", "--json"]
    assert main(arguments) == 0
    alone = json.loads(capsys.readouterr().out)
    codes, out, err = ended(started(arguments))
    assert codes == [0, 0], err
    timing = {"decoding_seconds": 0}
    assert {**json.loads(out), **timing} == {**alone, **timing}


@pytest.mark.full
def test_what_the_first_process_refuses_ends_both(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run"):
        codes, out, err = ended(started(command("lstm_lm", "mesh", 2, tmp_path / "run")))
    assert codes == [2, 2] and out == "" and len(err.splitlines()) == 1, err
    assert err.startswith("launch.py: error: ") and "is being trained by a live process" in err


@pytest.mark.full
def test_a_state_that_is_divided_needs_one_folder(tmp_path: Path) -> None:
    """Two hosts that name it alike and do not share it."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        (folder / "configs").parent.mkdir()
        (folder / "configs").symlink_to(ROOT / "configs")
    codes, _, err = ended(started(command("lstm_lm", "fsdp", 2, Path("run")), folders))
    assert codes == [2, 2] and not (folders[1] / "run").exists()
    assert "not the --workdir (with parallel.fsdp all share one) of process 0" in err
