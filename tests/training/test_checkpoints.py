"""Checkpoints survive flipped bits, truncation and full disks, or say so (kills while saving:
test_kill_resume.py); the last and the best are kept.
"""

import contextlib
import errno
import logging
import os
import resource
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.training.checkpoints import Checkpoints, Restored
from tests.refusals import check_refused
from tests.sampling import rounds

Make = Callable[..., Checkpoints]
Moments = namedtuple("Moments", ["count", "mu"])
ROOT = Path(__file__).resolve().parents[2]


def tree_of(value: float) -> dict[str, Any]:
    """A small state with what real ones hold: nested dicts, a named tuple, a tuple, bfloat16, a
    scalar, None.
    """
    noise = np.random.default_rng(int(value)).normal(size=(40, 50)).astype(np.float32)
    bias = np.full(5, value, jax.numpy.bfloat16)
    return {
        "params": {"encoder": {"kernel": noise + np.float32(value), "bias": bias}},
        "opt_state": (Moments(np.int32(value), {"w": np.asfortranarray(noise[:3].T)}), ()),
        "ema": None,
    }


def assert_equal(restored: Restored | None, step: int, value: float) -> None:
    """The restored step is `step` and its tree is `tree_of(value)`: same structure, types and
    bits.
    """
    assert restored is not None and restored.step == step
    expected = tree_of(value)
    assert jax.tree.structure(restored.tree) == jax.tree.structure(expected)
    for old, new in zip(jax.tree.leaves(expected), jax.tree.leaves(restored.tree), strict=True):
        assert isinstance(new, np.ndarray) and new.dtype == old.dtype and new.shape == np.shape(old)
        assert new.tobytes() == np.ascontiguousarray(old).tobytes()


@pytest.fixture
def warnings() -> list[str]:
    """Collects the warning lines."""
    return []


@pytest.fixture
def make(tmp_path: Path, warnings: list[str]) -> Iterator[Make]:
    """Opens `tmp_path / "checkpoints"` any number of times; closed at the end."""
    opened: list[Checkpoints] = []

    def build(keep: int = 3, directory: Path | None = None, **options: Any) -> Checkpoints:
        folder = directory or tmp_path / "checkpoints"
        opened.append(Checkpoints(folder, keep, warn=warnings.append, **options))
        return opened[-1]

    yield build
    for checkpoints in opened:
        checkpoints.close()


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with steps 1, 2 and 3, of which 2 is the best; tests copy it."""
    directory = tmp_path_factory.mktemp("saved") / "checkpoints"
    checkpoints = Checkpoints(directory, keep=3)
    for step in (1, 2, 3):
        meta = {"loss": 0.1 * step, "history": (1, 2)}
        checkpoints.save(step, tree_of(step), meta, best=step == 2)
    checkpoints.close()
    return directory


@pytest.fixture
def copied(three_steps: Path, tmp_path: Path) -> Path:
    """A copy of the three steps that a test may damage."""
    return Path(shutil.copytree(three_steps, tmp_path / "checkpoints"))


def written(checkpoints: Checkpoints, *step: Any, **how: Any) -> None:
    """Save, and wait until it is on the disk."""
    checkpoints.save(*step, **how)
    checkpoints.wait()


def flip(file: Path, position: int, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(bytes(content))


def files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def data_file(step: Path) -> Path:
    """The largest file of a step: the array chunks."""
    return max(files(step), key=lambda file: file.stat().st_size)


@pytest.mark.quick
def test_round_trip(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    """What comes back is what was saved, though the caller overwrote it at once; nothing is
    printed.
    """
    checkpoints = make()
    assert checkpoints.restore(tree_of(0)) is None
    tree = tree_of(7)
    assert checkpoints.save(7, tree, {"loss": 0.1, "note": "first"})
    tree["params"]["encoder"]["kernel"][:] = 0
    checkpoints.wait()
    abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), tree)
    restored = make().restore(abstract)
    assert_equal(restored, 7, 7)
    assert restored is not None and restored.meta == {"loss": 0.1, "note": "first"}
    checkpoints.close()
    assert capfd.readouterr() == ("", "")


def test_keeps_last_and_best_across_reopening(make: Make) -> None:
    """keep=2: the last two and the best stay; a reopened folder still knows its best, and a new
    best replaces it.
    """
    first = make(keep=2)
    for step in (1, 2, 3, 4):
        first.save(step, tree_of(step), {}, best=step == 1)
    first.close()
    assert first.steps() == [1, 3, 4]
    second = make(keep=2)
    assert second.best == 1
    assert_equal(second.restore(tree_of(0)), 4, 4)
    written(second, 5, tree_of(5), {})
    assert second.steps() == [1, 4, 5]
    written(second, 6, tree_of(6), {}, best=True)
    assert second.steps() == [5, 6] and make(keep=2).best == 6
    assert_equal(second.restore(tree_of(0), "best"), 6, 6)


def test_old_step_stays_until_the_new_one_is_committed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keep=1: while step 2 is not yet committed, step 1 is there."""
    checkpoints = make(keep=1)
    written(checkpoints, 1, tree_of(1), {})
    seen = []
    store = checkpoints._store()
    original = store.wait
    there = (checkpoints.directory / "1" / "meta").is_dir
    monkeypatch.setattr(store, "wait", lambda: (seen.append(there()), original()))
    written(checkpoints, 2, tree_of(2), {})
    assert seen == [True] and checkpoints.steps() == [2]


def test_saving_a_step_again_leaves_it(make: Make, copied: Path) -> None:
    """A step that is there is not written twice, but it can still become the best."""
    checkpoints = make()
    assert not checkpoints.save(3, tree_of(99), {}, best=True)
    assert checkpoints.best == 3
    assert_equal(checkpoints.restore(tree_of(0)), 3, 3)


def test_restore_of_a_given_step(make: Make, copied: Path) -> None:
    """By number and by "best"; what is not there is named with what is."""
    checkpoints = make(read_only=True)
    assert_equal(checkpoints.restore(tree_of(0), 1), 1, 1)
    best = checkpoints.restore(tree_of(0), "best")
    assert_equal(best, 2, 2)
    assert best is not None and best.meta == {"loss": 0.2, "history": [1, 2]}
    check_refused(r"there is no step 9; steps there: 1, 2, 3", checkpoints.restore, tree_of(0), 9)
    shutil.rmtree(copied / "2")
    with pytest.raises(UserError, match=r"no best step is recorded; steps there: 1, 3"):
        make(read_only=True).restore(tree_of(0), "best")


def test_flipped_bits_are_detected_or_harmless(copied: Path, three_steps: Path) -> None:
    """In array chunks, indices, metadata and our own record: an equal tree and meta, or an error;
    in the middle of the chunks it is always found.
    """
    chunks, outcomes = data_file(copied / "3").relative_to(copied), {}
    for file in (file.relative_to(copied) for file in files(copied / "3")):
        size = (copied / file).stat().st_size
        places = [size // 2, size // 7, size - 2][: rounds(1, 3)] if size > 2 else []
        places = [(2 * part + 1) * size // 32 for part in range(0, 16, rounds(4, 1))] * (
            file == chunks
        ) or places
        for position in places:
            flip(copied / file, position, position % 7)
            with contextlib.closing(Checkpoints(copied, 3, read_only=True)) as checkpoints:
                try:
                    restored = checkpoints.restore(tree_of(0), 3)
                except UserError as error:
                    assert "is damaged" in str(error) or "does not fit" in str(error)
                    outcomes[file, position] = "found"
                else:  # padding nobody reads
                    assert_equal(restored, 3, 3)
                    assert restored.meta == {"loss": pytest.approx(0.3), "history": [1, 2]}
            shutil.copy(three_steps / file, copied / file)
    size = (copied / chunks).stat().st_size
    assert outcomes[chunks, 17 * size // 32] == "found"
    assert list(outcomes.values()).count("found") >= rounds(4, 11)


def truncate_data(step: Path) -> None:
    """Cut the array chunks in half."""
    file = data_file(step)
    os.truncate(file, file.stat().st_size // 2)


def replace_step(step: Path) -> None:
    shutil.rmtree(step)
    shutil.copytree(step.with_name("1"), step)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated data": truncate_data,
    "truncated record": lambda step: os.truncate(step / "meta" / "metadata", 50),
    "no state": lambda step: shutil.rmtree(step / "state"),
    "no meta": lambda step: shutil.rmtree(step / "meta"),
    "deleted data": lambda step: data_file(step).unlink(),
    "another step's folder": replace_step,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_step_falls_back_and_can_be_saved_again(
    damage: str, make: Make, copied: Path, warnings: list[str]
) -> None:
    """The one before is restored with one warning, and the run saves the damaged step once more."""
    DAMAGE[damage](copied / "3")
    checkpoints = make()
    assert checkpoints.best in (2, None)
    assert_equal(checkpoints.restore(tree_of(0)), 2, 2)
    assert len(warnings) == 1
    assert f"checkpoint {copied / '3'} is damaged" in warnings[0]
    assert "\n" not in warnings[0]
    assert not (copied / "3").exists() and (copied / "damaged-3").is_dir()
    assert checkpoints.best == 2
    assert checkpoints.save(3, tree_of(3), {})
    checkpoints.wait()
    assert_equal(make().restore(tree_of(0)), 3, 3)
    assert checkpoints.steps() == [1, 2, 3]


def test_read_only_moves_nothing(make: Make, copied: Path, warnings: list[str]) -> None:
    """evaluate and generate report a damaged step and leave the folder as it is; they cannot
    save.
    """
    truncate_data(copied / "3")
    (copied / "9").mkdir()
    before = sorted(path for path in copied.rglob("*"))
    checkpoints = make(read_only=True)
    assert_equal(checkpoints.restore(tree_of(0)), 2, 2)
    checkpoints.close()
    assert sorted(path for path in copied.rglob("*")) == before and len(warnings) == 1
    with pytest.raises(RuntimeError, match="read-only"):
        checkpoints.save(4, tree_of(4), {})


def test_nothing_good_left_is_an_error_every_time(
    make: Make, copied: Path, warnings: list[str]
) -> None:
    """Never a silent start from scratch, not even at the second try."""
    for step in ("1", "2", "3"):
        truncate_data(copied / step)
    for _ in range(2):
        words = r"no readable checkpoint in .*step 3: .*step 2: .*step 1: "
        check_refused(words, make().restore, tree_of(0))
    assert len(warnings) == 6


def test_empty_and_temporary_folders_do_not_count(
    make: Make, tmp_path: Path, warnings: list[str]
) -> None:
    """An empty folder named like a step, and what a killed save leaves, are neither steps nor in
    the way.
    """
    directory = tmp_path / "checkpoints"
    for name in ("5", "8.orbax-checkpoint-tmp/state", "deleting-2/state", "notes"):
        (directory / name).mkdir(parents=True)
    checkpoints = make()
    assert checkpoints.steps() == [] and checkpoints.restore(tree_of(0)) is None and not warnings
    written(checkpoints, 5, tree_of(5), {})
    assert_equal(checkpoints.restore(tree_of(0)), 5, 5)
    assert sorted(path.name for path in directory.iterdir()) == ["5", "notes"]


def test_mismatch_is_one_line(make: Make, copied: Path, warnings: list[str]) -> None:
    """Shape, dtype, missing and extra paths; a sound step that does not fit is not "damaged"."""
    for kernel, expected in (
        ({"kernel": np.zeros((40, 51), np.float32)}, "float32[40,51]"),
        ({"kernel": np.zeros((40, 50), np.float16)}, "float16[40,50]"),
        ({}, "nothing"),
    ):
        tree = tree_of(0)
        del tree["params"]["encoder"]["kernel"]
        tree["params"]["encoder"] |= kernel
        with pytest.raises(UserError) as raised:
            make().restore(tree)
        where = f"checkpoint {copied / '3'} does not fit: params/encoder/kernel"
        assert str(raised.value) == f"{where}: saved float32[40,50], wanted {expected}"
    tree = tree_of(0) | {"params": {"decoder": np.zeros(3)}}
    words = r"params/decoder: saved nothing, wanted float64\[3\] \(and 2 more\)"
    check_refused(words, make().restore, tree)
    assert not warnings and make().steps() == [1, 2, 3]


def test_too_little_space_is_said_before_the_first_save(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free space is compared with keep + 2 steps, in MB; steps already there need no more."""
    usage = namedtuple("usage", ["total", "used", "free"])(10**9, 10**9 - 4_500_000, 4_500_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    tree = {"w": np.zeros(250_000, np.float32)}
    checkpoints = make(keep=3)
    with pytest.raises(UserError, match=r"5\.0 MB needed \(checkpoint.keep=3\), 4\.5 MB free"):
        checkpoints.save(1, tree, {})
    assert checkpoints.steps() == []
    assert make(keep=2).save(1, tree, {})


def test_no_space_error_names_folder_and_last_good_step(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC in whatever coat, while starting or in the background."""
    checkpoints = make()
    written(checkpoints, 1, tree_of(1), {})
    errors = [
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("RESOURCE_EXHAUSTED: Error writing local file"),
    ]
    for method in ("write", "wait"):
        for error in errors:

            def fail(*arguments: Any, error: Exception = error) -> None:
                half = checkpoints.directory / "2.orbax-checkpoint-tmp" / "state"
                half.mkdir(parents=True, exist_ok=True)
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(checkpoints._store(), "write", lambda *arguments: None)
                patch.setattr(checkpoints._store(), method, fail)
                words = f"of {checkpoints.directory}: step 2 .*the last good step is 1"
                with pytest.raises(UserError, match=f"no space left on the disk {words}"):
                    written(checkpoints, 2, tree_of(2), {})
            assert [path.name for path in checkpoints.directory.iterdir()] == ["1"]
    assert_equal(checkpoints.restore(tree_of(0)), 1, 1)
    assert checkpoints.save(2, tree_of(2), {})


@pytest.mark.parametrize("limit", [100, 2000])
def test_a_limit_on_the_size_of_files(
    limit: int, make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever file is the first that is too large: one line, the steps before stay, and nothing
    comes afterwards, when closing either.
    """
    checkpoints = make()
    written(checkpoints, 1, {"a": np.zeros(3)}, {})
    noise, before = np.random.default_rng(0), resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python does not see that what it has compiled was cut
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(UserError) as raised:
            written(checkpoints, 2, {f"a{i}": noise.normal(size=4000) for i in range(9)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    checkpoints.close()
    words = "File too large; raise the limit on the size of files ('ulimit -f') and run again"
    where = f"cannot write checkpoint 2 in {checkpoints.directory}"
    assert str(raised.value) == f"{where}: {words}; the last good step is 1"
    assert [path.name for path in checkpoints.directory.iterdir()] == ["1"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", [None, "best"])
def test_a_step_that_may_not_be_read_is_not_damaged(
    how: Any, make: Make, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an older one in its place nor a warning of damage, and nothing is renamed: with the
    right to read, it is taken.
    """
    checkpoints = make()
    for step in (1, 2):
        checkpoints.save(step, tree_of(step), {}, best=step == 1)
    checkpoints.close()
    again = make()

    def refuse(path: Any, *how: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(again._store(), "read_record", lambda step: refuse(f"{step}/meta"))
        patch.setattr("attnlab.training.orbax_steps.open", refuse, raising=False)
        words = "which need not be damaged: Permission denied"
        with pytest.raises(UserError, match=f"cannot read checkpoint {again.directory}/2, {words}"):
            again.restore(tree_of(0), how if again.best else None)
    assert warnings == [] and sorted(path.name for path in again.directory.iterdir()) == ["1", "2"]
    assert_equal(make().restore(tree_of(0), how), 2 if how is None else 1, 2 if how is None else 1)


FULL = """
import sys
import numpy as np
from attnlab.errors import UserError
from attnlab.training.checkpoints import Checkpoints

directory = sys.argv[1]
noise = np.random.default_rng(0).normal(size=100_000)  # 0.8 MB, does not compress
checkpoints = Checkpoints(directory + "/run", keep=1)
checkpoints.save(1, {"w": noise}, {})
checkpoints.wait()
with open(directory + "/filler", "wb") as file:
    file.write(bytes(2_900_000 - 800_000))
try:
    try:
        checkpoints.save(2, {"w": noise + 1}, {})
        checkpoints.wait()
    finally:
        checkpoints.close()
except UserError as error:
    print(error)
import os
import resource
print(sorted(os.listdir(directory + "/run")))
print((Checkpoints(directory + "/run", 1).restore({"w": noise}).tree["w"] == noise).all())
"""


@pytest.mark.full
def test_full_disk(tmp_path: Path) -> None:
    """A real full disk (a tiny tmpfs): one line, the half-written step gone, the one before still
    good, nothing else printed.
    """
    probe = [shutil.which("unshare") or "false", "-rm", "true"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    mount = f'mount -t tmpfs -o size=3m none "{tmp_path}"'
    command = f'{mount} && exec "{sys.executable}" -c "$0" "{tmp_path}"'
    unshared = ["unshare", "-rm", "sh", "-c", command, FULL]
    own = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(unshared, capture_output=True, text=True, env=own, timeout=60)
    first, *lines = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == "", done.stderr
    words = "step 2 was not saved; the last good step is 1"
    assert first == f"no space left on the disk of {tmp_path}/run: {words}"
    assert lines == ["['1']", "True"]


def test_keep_must_be_positive(tmp_path: Path) -> None:
    """keep=0 would delete what was just saved."""
    check_refused("checkpoint.keep=0", Checkpoints, tmp_path, 0)


def test_unwritable_place_is_a_user_error(make: Make, tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write checkpoint 1 in .*; no step is saved yet"):
        make(directory=tmp_path / "file" / "checkpoints").save(1, tree_of(1), {})


def test_orbax_does_not_log_but_others_do(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Only records from orbax's files are dropped from absl's logger."""
    checkpoints = make()
    written(checkpoints, 1, tree_of(1), {})
    logging.getLogger("absl").warning("ours")
    assert [record.message for record in caplog.records] == ["ours"]
    assert checkpoints.restore(tree_of(0)) is not None
