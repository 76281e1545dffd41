"""Checkpoints survive a kill at any instant; one with a flipped bit is noticed and an older one used.

`orbax_steps.py` stores one step; this file decides which steps are kept and which one is used. Of
several processes only process 0 uses it; where the state lies over all of them, it tells the others
which step they read or write with it (`Followed`). Names in the folder: `<step>` (committed by a
rename), `damaged-<step>` (moved aside), `deleting-<step>` (being deleted).
"""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from attnlab.errors import UserError, one_line
from attnlab.training import orbax_steps
from attnlab.training.mesh import on_mesh, spans
from attnlab.training.orbax_steps import Meta, OrbaxSteps, StepRecord
from attnlab.training.parallel import message_from_0
from attnlab.training.pruning import saved_steps
from attnlab.training.trained import Tree, leaves_by_path

_TEMPORARY = ".orbax-checkpoint-tmp"
_MEGABYTE = 1e6


@dataclasses.dataclass(frozen=True)
class Restored:
    """One step read back: `tree` has the requested structure with writable numpy leaves, or arrays
    that lie as requested; `meta` is what was saved with it.
    """

    step: int
    tree: Tree
    meta: Meta


def print_warning(line: str) -> None:
    """Write a line to stderr."""
    print(f"warning: {line}", file=sys.stderr, flush=True)


class Checkpoints:
    """The checkpoints of one run: the last `keep` steps and the best one.

    Saving continues in the background: `save` blocks for the checksums and one copy, and an older
    step is deleted only after the newer one is committed (in the next `save`, `wait` or `close`).
    At most keep + 2 steps are on disk at any time.

    Args:
      directory: where the step folders live; made by the first save.
      keep: how many of the newest steps stay, at least 1.
      read_only: never write, move or delete (evaluate, generate); a damaged step is only reported.
      warn: takes warnings of one line; by default they go to stderr.

    Raises:
      UserError: `keep` is below 1.
    """

    _together = False
    """Whether the state lies over several processes."""

    def __init__(
        self,
        directory: str | Path,
        keep: int,
        *,
        read_only: bool = False,
        warn: Callable[[str], None] = print_warning,
    ) -> None:
        """Stores its arguments, opens nothing; raises `UserError` if `keep` (steps) is below 1."""
        if keep < 1:
            raise UserError(f"checkpoint.keep={keep}: at least 1 step must be kept")
        self.directory = Path(directory).absolute()
        self.keep = keep
        self.read_only = read_only
        self._warn = warn
        self._opened: OrbaxSteps | None = None
        self._best: int | None = None
        self._best_known = False
        self._saving: int | None = None
        self._raised = False  # the failure of a save
        self._checked_space = False

    def steps(self) -> list[int]:
        """Returns the numbers of the committed steps in rising order; half-written ones do not count."""
        return saved_steps(self.directory)

    @property
    def best(self) -> int | None:
        """Returns the best step as the newest readable one records it; None if there is none."""
        if not self._best_known:
            self._best, self._best_known = self._recorded_best(), True
        return self._best if self._best == self._saving or self._best in self.steps() else None

    def save(self, step: int, tree: Tree, meta: Mapping[str, object], best: bool = False) -> bool:
        """Waits for an earlier save, then starts saving a copy of `tree` as `step` in the
        background; returns whether it does: False if that step exists, which then stays as it is;
        raises `RuntimeError` if opened read-only, `UserError` if the disk is full or an earlier
        save failed.

        Args:
          step: the number of updates done.
          tree: pytree of numpy (or addressable jax) arrays, none of size zero, or of arrays that
            lie on a mesh; of its structure only the paths are saved.
          meta: anything JSON can hold; comes back from `restore`.
          best: this step becomes the best one.

        Returns:
          False if that step already exists (it is not changed), else True.

        Raises:
          UserError: the disk is full or cannot be written. A failure in the background is raised by
            the next `save`, `wait` or `close`.
          RuntimeError: these were opened read-only.
        """
        if self.read_only:
            raise RuntimeError("these checkpoints were opened read-only")
        self.wait()
        best_step = step if best else self.best
        self._best, self._best_known = best_step, True
        arrays, writes = arrays_of(tree), step not in self.steps()
        self._together = spans(arrays)
        if not writes:
            self._send_to_others(False)
            return False
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if self._folder(step).is_dir():
                self._folder(step).rmdir()  # it is empty, else `steps` would list it
            self._sweep(_TEMPORARY)  # what a killed run left half-written
            self.check_space(sum(array.nbytes for array in arrays.values()))
            self._saving = step
            self._send_to_others(True)
            self._store().write(step, arrays, {"best": best_step, "meta": dict(meta)})
        except Exception as error:
            self._raise_save_error(step, error)
        return True

    def wait(self) -> None:
        """Blocks until the save in progress is committed, then deletes all steps but the last
        `keep` and the best; raises `UserError` if the save failed.

        Raises:
          UserError: no space, or a folder that cannot be written; the half-written step is removed.
        """
        if self._saving is None:
            return
        try:
            self._store().wait()
        except Exception as error:
            self._raise_save_error(self._saving, error)
        self._saving = None
        remaining = {*self.steps()[-self.keep :], self.best}
        for step in self.steps():
            if step not in remaining:
                self._rename(step, "deleting")
        self._sweep()

    def close(self) -> None:
        """Waits for the save in progress, then stops orbax's threads. Safe to call twice."""
        try:
            self.wait()
        finally:
            opened, self._opened = self._opened, None
            if opened is not None:
                with contextlib.suppress(Exception) if self._raised else contextlib.nullcontext():
                    opened.close()  # it raises the error of the failed save again

    def restore(self, like: Tree, step: int | Literal["best"] | None = None) -> Restored | None:
        """Reads the newest good step, or exactly `step` (a number or "best"), checks it against its
        checksums and returns it as `Restored`, or returns None if `step` is None and nothing was
        ever saved; raises `UserError` if none is good or fits `like`.

        A step that cannot be read, or whose content differs from its checksums, is reported by a
        warning and the next older one is tried; once a good one is found, the damaged are renamed
        `damaged-<step>`, so that the run can save them again.

        Args:
          like: pytree of arrays or `jax.ShapeDtypeStruct`: the wanted structure, shapes, dtypes,
            and where on a mesh each array is to lie.
          step: None for the newest; a number or "best" for exactly that step.

        Returns:
          The step, or None when nothing was ever saved here and `step` is None.

        Raises:
          UserError: steps are there but none is readable; the wanted one is missing or damaged; the
            saved tree does not fit `like` (first path, what was saved, what is wanted, how many
            more).
        """
        self.wait()
        self._together = spans(like)
        restored = self._newest(like) if step is None else self._restore_one(like, step)
        self._send_to_others(restored and {"step": restored.step, "meta": restored.meta})
        return restored

    def _newest(self, like: Tree) -> Restored | None:
        """Reads the newest good step, with a warning for each damaged one above it, which is then
        moved aside; returns None if there is no step, raises `UserError` if none is good.
        """
        damaged: dict[int, str] = {}
        for candidate in reversed(self.steps()):
            restored = self._read(candidate, like)
            if isinstance(restored, Restored):
                self._move_aside(list(damaged))
                self._best_known = False  # moved steps do not count
                return restored
            damaged[candidate] = restored
            self._warn(
                f"checkpoint {self._folder(candidate)} is damaged ({restored}): trying the one"
                " before"
            )
        # nothing is moved: a second try must not find an empty folder and start from scratch
        if damaged:
            listed = "; ".join(f"step {number}: {reason}" for number, reason in damaged.items())
            raise UserError(
                f"no readable checkpoint in {self.directory} ({listed}); put back a good copy, or"
                " start anew in another --workdir"
            )
        return None

    def _restore_one(self, like: Tree, step: int | Literal["best"]) -> Restored:
        """Reads the step of this number, or the best; raises `UserError` if missing or damaged."""
        number = self.best if step == "best" else step
        listed = ", ".join(map(str, self.steps())) or "none"
        if number is None or number not in self.steps():
            problem = "no best step is recorded" if number is None else f"there is no step {number}"
            raise UserError(f"checkpoints in {self.directory}: {problem}; steps there: {listed}")
        restored = self._read(number, like)
        if isinstance(restored, str):
            raise UserError(
                f"checkpoint {self._folder(number)} is damaged ({restored}); steps there: {listed}"
            )
        return restored

    def _read(self, step: int, like: Tree) -> Restored | str:
        """Reads one step and compares it with its checksums; returns it, or a text on the damage;
        raises `UserError` if it is undamaged but does not fit `like`.
        """
        try:
            record = self._store().read_record(step)
            like = orbax_steps.with_saved_rows(like, record)
            orbax_steps.compare(self._folder(step), record["arrays"], like)
            self._send_to_others({"step": step, "arrays": record["arrays"]})
            arrays = self._store().read_arrays(step, record["arrays"], like)
        except (UserError, MemoryError):
            raise
        # orbax has no error of its own for damage: anything from KeyError to bare Exception
        except Exception as error:
            orbax_steps.check_readable(self._folder(step), error)
            return orbax_steps.short_reason(error)
        return Restored(step, tree_of(arrays, like), record["meta"])

    def _recorded_best(self) -> int | None:
        """Returns the best step by the newest readable record, or None if none is readable."""
        for step in reversed(self.steps()):
            try:
                return self._store().read_record(step)["best"]
            except Exception as error:  # damaged: `restore` reports it
                orbax_steps.check_readable(self._folder(step), error)
        return None

    def check_space(self, size: int) -> None:
        """Until it has passed once, creates the folder and raises `UserError` unless the disk has
        space for the steps of `size` bytes that are missing to keep + 2 (at least 1).

        Raises:
          UserError: it cannot, with both numbers.
        """
        if self._checked_space:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        needed = size * max(1, self.keep + 2 - len(self.steps()))
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            raise UserError(
                f"not enough disk space for checkpoints in {self.directory}:"
                f" {needed / _MEGABYTE:.1f} MB needed (checkpoint.keep={self.keep}),"
                f" {free / _MEGABYTE:.1f} MB free"
            )
        self._checked_space = True

    def _raise_save_error(self, step: int, error: Exception) -> None:
        """Removes what the failed save left; raises `UserError` if the disk is why, else `error`."""
        self._saving, self._raised = None, True
        self._sweep(_TEMPORARY)
        steps = self.steps()
        last = f"the last good step is {steps[-1]}" if steps else "no step is saved yet"
        if orbax_steps.disk_full(error):
            raise UserError(
                f"no space left on the disk of {self.directory}: step {step} was not saved; {last}"
            ) from error
        if cause := orbax_steps.first_os_error(error):
            raise UserError(
                f"cannot write checkpoint {step} in {self.directory}: {one_line(cause)}; {last}"
            ) from error
        raise error

    def _folder(self, step: int) -> Path:
        return self.directory / str(step)

    def _store(self) -> OrbaxSteps:
        """orbax, opened on first use, since its import takes long."""
        if self._opened is None:
            self._opened = OrbaxSteps(self.directory, self._together)
        return self._opened

    def _send_to_others(self, order: object) -> None:
        """Sends an order (JSON) to the other processes, if the state lies over all of them."""
        if self._together:
            message_from_0(order)

    def _move_aside(self, damaged: list[int]) -> None:
        """Renames the folders of damaged steps to `damaged-<step>`, in place of older ones of that
        name, and reads the list of steps anew; does nothing if all is read-only.
        """
        if self.read_only or not damaged:
            return
        for step in damaged:
            self._rename(step, "damaged")
        self._store().reload()

    def _rename(self, step: int, prefix: str) -> None:
        """Removes a step from the list by renaming it; replaces an older folder of the new name."""
        target = self.directory / f"{prefix}-{step}"
        shutil.rmtree(target, ignore_errors=True)
        self._folder(step).rename(target)

    def _sweep(self, suffix: str = "") -> None:
        """Deletes the folders marked for deletion and, if given, those whose names end in `suffix`."""
        patterns = ["deleting-*", f"*{suffix}"] if suffix else ["deleting-*"]
        for folder in [path for pattern in patterns for path in self.directory.glob(pattern)]:
            shutil.rmtree(folder, ignore_errors=True)


class Single(Checkpoints):
    """A folder of one step, which is only written to make room for others."""

    def check_space(self, size: int) -> None:
        """Does nothing: a full disk is seen when it is written to."""


class Followed(Checkpoints):
    """The checkpoints of a state that lies over several processes, in all but the first of them:
    each reads and writes its parts as process 0 tells it.
    """

    _together = True

    def check_space(self, size: int) -> None:
        """Process 0 does."""

    def save(self, step: int, tree: Tree, meta: Mapping[str, object], best: bool = False) -> bool:
        """Writes this process's parts of `tree` as `step` if process 0 saves it; returns whether it
        did; `meta` and `best` are not used.
        """
        writes: bool | None = message_from_0(None)
        if writes:
            self._store().reload()  # process 0 may have moved a step
            self._store().write(step, arrays_of(tree), {})
        return bool(writes)

    def restore(self, like: Tree, step: int | Literal["best"] | None = None) -> Restored | None:
        """Reads this process's parts of each step that process 0 tries, whatever `step` says;
        returns the `Restored` of the one that process 0 takes, or None if it takes none.
        """
        arrays: dict[str, Tree] = {}
        order: StepRecord | None
        while (order := message_from_0(None)) and "arrays" in order:
            with contextlib.suppress(Exception):  # process 0 knows of it, and tries another
                arrays = self._store().read_arrays(order["step"], order["arrays"], like)
        return Restored(order["step"], tree_of(arrays, like), order["meta"]) if order else None


def arrays_of(tree: Tree) -> dict[str, Tree]:
    """Returns the arrays of a tree by path, on the host unless they lie on a mesh."""
    leaves = leaves_by_path(tree)
    return {path: leaf if on_mesh(leaf) else np.asarray(leaf) for path, leaf in leaves.items()}


def tree_of(arrays: Mapping[str, Tree], like: Tree) -> Tree:
    """Returns a tree like `like` whose leaves are these arrays by path, as of `arrays_of`."""
    leaves = [arrays[path] for path in leaves_by_path(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
