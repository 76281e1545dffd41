"""Bad input is told in one line that helps, with exit code 2 and nothing written or lost, each case by
running the command.

And what must not be an error: sentences above the limit are counted and reported. Checkpoints that are
damaged: training/test_checkpoints.py; data and configs that have changed: training/test_run.py.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from attnlab.records.locks import RunLock
from tests.bad_input_cases import (
    CONFIGS,
    DATA,
    GENERATE,
    INSPECT,
    LIMIT,
    LONG,
    RNNSEARCH,
    STEPS,
    check_kept,
    contents,
    flip,
    launch,
    refused,
    rewrite_config,
    settings,
    truncate,
    write_text,
)
from tests.sampling import full_mode

QUICK = {"misspelt override"}
FULL = pytest.mark.full
needs_dev_full = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="no device is always full"
)
USES = ("evaluate", "generate", "inspect")  # the commands that work on a trained run


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files in `text` and a run trained on them in `run`; in the full mode by a
    process of its own.
    """
    folder = tmp_path_factory.mktemp("bad-input")
    given = settings(write_text(folder / "text"), folder / "run")
    done = launch("train", *given, start=full_mode())
    assert done.code == 0, done.err
    (folder / "stderr").write_text(done.err)
    return folder


@pytest.fixture
def run(shared: Path, tmp_path: Path) -> Path:
    """A copy of the trained run, to do harm to."""
    return Path(shutil.copytree(shared / "run", tmp_path / "run"))


def again(shared: Path, run: Path) -> list[str]:
    """The command that the run came from, for the copy."""
    return ["train", *settings(shared / "text", run)]


# --- train: configs and data ---


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.quick] * (case in QUICK)) for case in CONFIGS]
)
def test_a_bad_config(case: str, tmp_path: Path) -> None:
    given, words = CONFIGS[case]
    argv = [word if word.startswith("--") else f"--config.{word}" for word in given.split()]
    start = case in QUICK and full_mode()
    done = launch("train", *argv, f"--workdir={tmp_path / 'run'}", start=start)
    refused(done, *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", DATA)
def test_bad_data(case: str, tmp_path: Path) -> None:
    harm, words = DATA[case]
    data = write_text(tmp_path / "text")
    harm(data)
    done = launch("train", *settings(data, tmp_path / "run"))
    refused(done, *(word.format(data=data) for word in words))
    assert not (tmp_path / "run").exists()


def test_training_counts_the_sentences_above_the_limit_and_goes_on(shared: Path) -> None:
    lines = (shared / "stderr").read_text().splitlines()
    words = f"train: 2 pairs longer than batch.max_length={LIMIT} tokens are left out, none is cut"
    assert words in lines
    assert any(line.startswith("train: 48 pairs, ") for line in lines)
    told = (
        "run: ",
        "left: ",
        "devices: ",
        "train: ",
        "valid: ",
        "test: ",
        "compiled ",
        "step ",
        "first ",
    )
    assert all(line.startswith(told) for line in lines)  # no noise


# --- train: workdirs ---


@pytest.mark.parametrize("name", ["thesis.txt", "checkpoints", "plan.json"])
def test_a_workdir_that_is_no_run(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    there = "(a sweep is there)" if name == "plan.json" else name
    words = ("is not empty and holds no run", there, "new or empty folder")
    check_kept(tmp_path, "train", RNNSEARCH, f"--workdir={tmp_path}", words=words)


def test_a_file_as_workdir_and_an_empty_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    words = (f"{tmp_path / 'file'} is not a folder",)
    for workdir in ("file", "file/run"):
        check_kept(tmp_path, "train", RNNSEARCH, f"--workdir={tmp_path / workdir}", words=words)
    refused(launch("train", RNNSEARCH, "--workdir="), "--workdir= is empty", "leave it out")


def test_a_workdir_being_trained(shared: Path, run: Path) -> None:
    with RunLock(run):
        lock = (run / ".lock").read_bytes()
        words = ("being trained by a live process", f"pid {os.getpid()}", "wait for it")
        check_kept(run, *again(shared, run), words=words)
        assert (run / ".lock").read_bytes() == lock


def test_a_checkpoint_that_does_not_fit(shared: Path, run: Path) -> None:
    rewrite_config(run, "system.encoder", 12)
    words = (
        f"checkpoint {run}/checkpoints/{STEPS} does not fit",
        "params/",
        "saved float32[",
        "wanted float32[24,",  # of the attention's keys, which are both directions' states
    )
    check_kept(run, *again(shared, run), "--config.system.encoder=12", words=words, begun=True)
    check_kept(run, "evaluate", f"--workdir={run}", words=words)


def test_a_damaged_manifest(shared: Path, run: Path) -> None:
    truncate(run / "manifest.json")
    for command in (again(shared, run), ["evaluate", f"--workdir={run}"]):
        check_kept(run, *command, words=(f"{run}/manifest.json is damaged", "put back a good copy"))


def test_a_damaged_vocabulary_can_be_learned_again(shared: Path, run: Path) -> None:
    vocabulary = run / "vocabulary" / "shared.json"
    whole = vocabulary.read_bytes()
    flip(vocabulary)
    for command in (again(shared, run), ["evaluate", f"--workdir={run}"]):
        check_kept(run, *command, words=(f"{vocabulary} is damaged", "a good copy, or delete it"))
    vocabulary.unlink()
    # never from whatever data is there
    check_kept(run, "evaluate", f"--workdir={run}", words=("has lost its vocabulary", "'train'"))
    assert launch(*again(shared, run)).code == 0
    assert vocabulary.read_bytes() == whole


# --- a full disk ---


@pytest.mark.full
@needs_dev_full
def test_a_full_disk_loses_nothing(shared: Path, run: Path) -> None:
    """Where no disk of our own can be had: what is to become events.jsonl lies on the device that
    is always full.
    """
    shutil.rmtree(run / "checkpoints" / str(STEPS))
    kept = contents(run / "checkpoints")
    events = (run / "events.jsonl").rename(run / "elsewhere")
    (run / "events.jsonl").symlink_to("/dev/full")
    words = (f"no space left on the disk of {run}", "events.jsonl was not written")
    refused(launch(*again(shared, run)), *words, begun=True)
    assert contents(run / "checkpoints") == kept
    events.rename(run / "events.jsonl")
    assert launch(*again(shared, run)).code == 0
    assert (run / "metrics.jsonl").read_bytes() == (shared / "run/metrics.jsonl").read_bytes()


# --- evaluate, generate, inspect ---


@pytest.mark.quick
@pytest.mark.parametrize("command", USES)
def test_a_workdir_without_a_run(command: str, tmp_path: Path) -> None:
    start = command == "evaluate" or full_mode()
    refused(launch(command, start=start), "no --workdir given", "name the folder of a trained run")
    (tmp_path / "notes.txt").write_text("mine")
    none = ("holds no run", "train --config=... --workdir=")
    for name, words in (
        (".", none),
        ("absent", none),
        ("notes.txt", ("notes.txt is not a folder",)),
    ):
        check_kept(tmp_path, command, f"--workdir={tmp_path / name}", words=words)


@pytest.mark.parametrize("command", [["evaluate"], ["generate"], ["inspect", "--source=satz 1"]])
def test_a_run_without_a_checkpoint(command: list[str], run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    words = (f"no checkpoint in {run}/checkpoints", "train there first")
    check_kept(run, *command, f"--workdir={run}", words=words)


@pytest.mark.parametrize("command", USES)
def test_what_cannot_change_after_training(command: str, shared: Path) -> None:
    workdir = f"--workdir={shared / 'run'}"
    words = ("config.system.encoder cannot change after training", "data.*, decoding.*, parallel.*")
    check_kept(shared / "run", command, workdir, "--config.system.encoder=12", words=words)
    # a config may be given, if it is the run's
    words = ("holds another config", "batch.size: saved 16, wanted 64")
    check_kept(shared / "run", command, workdir, RNNSEARCH, words=words)


def test_the_flags_of_training_may_be_given_again(shared: Path) -> None:
    before = contents(shared / "run")
    done = launch("evaluate", "--json", *settings(shared / "text", shared / "run"))
    assert (done.code, done.err) == (0, "") and json.loads(done.out)["sentences"] == 1
    assert contents(shared / "run") == before


@pytest.mark.parametrize(("flags", "stdin", "words"), GENERATE)
def test_bad_input_of_generate(
    flags: list[str], stdin: bytes, words: list[str], shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"s\xe4tze\n")
    before = contents(tmp_path), contents(shared / "run")
    filled = [flag.format(folder=tmp_path) for flag in flags]
    done = launch("generate", f"--workdir={shared / 'run'}", *filled, stdin=stdin)
    refused(done, *(word.format(folder=tmp_path) for word in words))
    assert (contents(tmp_path), contents(shared / "run")) == before


def test_generate_translates_long_sentences_whole_and_says_so(shared: Path) -> None:
    done = launch("generate", f"--workdir={shared / 'run'}", stdin=f"satz 1\n\n{LONG}\n".encode())
    assert done.code == 0, done.err
    words = (
        f"note: 1 of 2 sentences are longer than the {LIMIT} tokens of training (first: line 3)\n"
    )
    assert done.err == words
    lines = done.out.split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""
    # the most that decoding allows for a source cut at the limit
    assert len(lines[2]) > LIMIT // 2 + 2


LATIN = pytest.param([b"--source=s\xe4tze"], ["--source='s\\udce4tze'", "UTF-8"], marks=FULL)


@pytest.mark.parametrize(("flags", "words"), [*INSPECT, LATIN])
def test_bad_input_of_inspect(
    flags: list[str | bytes], words: list[str], shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs").write_text("satz 1\taaa\nsatz 2\t\n")
    (tmp_path / "blank").write_text("\taaa\n")
    before = contents(tmp_path), contents(shared / "run")
    filled = [flag if isinstance(flag, bytes) else flag.format(folder=tmp_path) for flag in flags]
    done = launch("inspect", f"--workdir={shared / 'run'}", *filled)
    refused(done, *(word.format(folder=tmp_path) for word in words))
    assert (contents(tmp_path), contents(shared / "run")) == before
