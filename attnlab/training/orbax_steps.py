"""One folder per step, written and read by orbax, with a checksum per array that orbax itself lacks.

`<directory>/<step>` appears by a rename, so it is whole or absent. It holds the arrays (`state`)
and a JSON item (`meta`) with path, shape, dtype and checksum of every array, under a checksum of
its own. Arrays are host numpy without a device axis, with their sha256, or lie on a mesh: then each
process writes its parts, and the checksum is a sum that is computed where they lie and is the same
however they are divided. Any number of devices can read what any other number wrote.
"""

import contextlib
import errno
import gc
import hashlib
import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from attnlab.errors import UserError, causes, one_line
from attnlab.training.mesh import on_host, on_mesh, spans
from attnlab.training.parallel import largest
from attnlab.training.trained import Tree, leaves_by_path


class Print(TypedDict, total=False):
    """The fingerprint of an array, with "sum" if it lies on a mesh, else with "sha256"."""

    dtype: str
    shape: list[int]
    sha256: str
    sum: list[int]


class Meta(TypedDict, total=False):
    """What a run saves with its state.

    Attributes:
      best: the `rank_key` of its best validation.
      records: the `extent` of its records; None where nothing is compared.
      restarts: of a step of another run, with whose state this one begins (`training/parent.py`).
    """

    best: Sequence[float]
    records: Mapping[str, object] | None
    restarts: bool


class StepRecord(TypedDict, total=False):
    """What is stored with the arrays of a step: their fingerprints by path, the best step, and the
    `Meta` of the run.
    """

    step: int
    arrays: dict[str, Print]
    best: int | None
    meta: Meta


_LATE = ("Event loop is closed", "Encountered error while reading array index")


class OrbaxSteps:
    """Writes in the background, reads and verifies single steps; `checkpoints.py` decides which to
    keep.

    Args:
      directory: an existing folder.
      together: all of several processes write their parts at the same time; else process 0 alone.
    """

    def __init__(self, directory: Path, together: bool = False) -> None:
        """Creates the checkpoint manager of orbax for a folder, with all processes at work if
        `together`, else process 0 alone.
        """
        self._ocp, self._directory = _import_orbax(), directory
        active = None if together else {0}
        processes = self._ocp.options.MultiprocessingOptions(active_processes=active)
        keywords = {"multiprocessing_options": processes} if jax.process_count() > 1 else {}
        options = self._ocp.CheckpointManagerOptions(
            max_to_keep=None, create=False, save_root_metadata=False, **keywords
        )
        self._manager = self._ocp.CheckpointManager(directory, options=options)

    def write(self, step: int, arrays: Mapping[str, Tree], record: Mapping[str, object]) -> None:
        """Starts writing the arrays of a step and its record with checksums of both; blocks for the
        checksums and orbax's copy of the arrays only. `record` is anything JSON can hold.
        """
        prints = {path: fingerprint(array) for path, array in arrays.items()}
        # Through JSON once, so that the checksum is of what reading gives back: lists for tuples,
        # strings for keys.
        content = json.loads(json.dumps({"step": step, "arrays": prints, **record}))
        meta = self._ocp.args.JsonSave(digested(content))
        # nested dicts are what orbax stores, whatever classes the tree is made of
        state = self._ocp.args.StandardSave(unflatten_dict(arrays, sep="/"))
        items = self._ocp.args.Composite(state=state, meta=meta)
        self._manager.save(step, args=items, force=True)

    def wait(self) -> None:
        """Block until the write under way is committed; raises what went wrong in the
        background.
        """
        with _without_late_callbacks():
            self._manager.wait_until_finished()

    def read_record(self, step: int) -> StepRecord:
        """Reads the record of a step: what `write` was given, "step" and "arrays"; raises
        ValueError if its checksum or step number differs. Any exception means that the step is
        damaged.
        """
        meta = json.loads((self._directory / str(step) / "meta" / "metadata").read_text())
        content: StepRecord = meta["content"]
        if _text_digest(content) != meta["sha256"] or content["step"] != step:
            raise ValueError("checksum of meta differs")
        return content

    def read_arrays(self, step: int, saved: dict[str, Print], like: Tree = ()) -> dict[str, Tree]:
        """Reads the arrays of one step by path, on the host or placed as in `like`; raises
        `ValueError` if one differs from its fingerprint in `saved` (`record["arrays"]`). Any
        exception means damage; it is raised in all processes that read together.
        """
        # A numpy target makes orbax ignore the devices that saved; a broadcast scalar costs no
        # memory.
        targets = {
            path: np.broadcast_to(np.zeros((), np.dtype(entry["dtype"])), entry["shape"])
            for path, entry in saved.items()
        } | {path: leaf for path, leaf in leaves_by_path(like).items() if on_mesh(leaf)}
        request = self._ocp.args.StandardRestore(unflatten_dict(targets, sep="/"))
        folder, problem, arrays = self._directory / str(step) / "state", None, dict[str, Tree]()
        try:  # without the manager, in which processes would wait for one that has failed
            with _without_late_callbacks():
                state = self._ocp.StandardCheckpointHandler().restore(folder, args=request)
            arrays = leaves_by_path(state)
        except Exception as error:
            problem = error
        failed = jax.process_index() + 1 if problem else 0
        if number := largest([failed])[0] if spans(like) else failed:
            raise problem or ValueError(f"process {number - 1} cannot read its part")
        for path, entry in saved.items():
            arrays[path] = arrays[path] if on_mesh(arrays[path]) else np.asarray(arrays[path])
            if fingerprint(arrays[path], "sum" in entry) != entry:
                raise ValueError(f"checksum of {path} differs")
        return arrays

    def reload(self) -> None:
        """Read the folder again after a step was moved or deleted without orbax."""
        self._manager.reload()

    def close(self) -> None:
        """Stop orbax's threads."""
        self._manager.close()


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Returns False for orbax's own log lines: every failure reaches the user through an exception,
    in our words.
    """
    return "orbax" not in Path(record.pathname).parts


def _is_not_late(record: logging.LogRecord) -> bool:
    """Returns False for asyncio's word on reads that fail beside the one that is reported, which
    newer versions of orbax leave to it.
    """
    return "exception was never retrieved" not in record.getMessage()


@contextlib.contextmanager
def _without_late_callbacks() -> Iterator[None]:
    """A context that suppresses the tracebacks about a closed event loop which other reads and
    writes still in progress print when one of many fails.
    """
    unraisable, uncaught = sys.unraisablehook, sys.excepthook

    def filter_unraisable(event: "sys.UnraisableHookArgs") -> None:
        if not str(event.exc_value).startswith(_LATE):
            unraisable(event)

    def filter_uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not str(error).startswith(_LATE):
            uncaught(kind, error, trace)

    sys.unraisablehook, sys.excepthook = filter_unraisable, filter_uncaught
    try:
        yield
    except Exception as error:
        time.sleep(0.1)  # they come a few milliseconds later, or when nothing holds them any more
        for cause in causes(error):
            traceback.clear_frames(cause.__traceback__)
        gc.collect()
        raise
    finally:
        sys.unraisablehook, sys.excepthook = unraisable, uncaught


def _import_orbax() -> ModuleType:
    """Imports orbax.checkpoint, late since it takes 1.5 s, filters its log lines from the terminal,
    and returns the module.
    """
    import orbax.checkpoint as ocp

    logging.getLogger("absl").addFilter(_is_not_from_orbax)  # once, however often it is called
    logging.getLogger("asyncio").addFilter(_is_not_late)
    return ocp


def with_saved_rows(like: Tree, record: StepRecord) -> Tree:
    """Returns `like` with the shapes of its remembered rows taken from the saved `record`, if that
    is of a step copied from a run with other batches (`meta` has `restarts`); else `like` itself.
    """
    if not record["meta"].get("restarts"):
        return like
    saved, leaves = record["arrays"], leaves_by_path(like)
    for path in leaves.keys() & saved.keys():
        if path.startswith("remembered/"):
            leaves[path] = jax.ShapeDtypeStruct(saved[path]["shape"], leaves[path].dtype)
    return jax.tree.unflatten(jax.tree.structure(like), list(leaves.values()))


def fingerprint(array: Tree, summed: bool | None = None) -> Print:
    """The fingerprint of an array: dtype, shape and the sha256 of its bytes in C order (bfloat16
    has no buffer, hence the view), or of one that lies on a mesh a "sum"; `summed` says which.
    """
    if on_mesh(array) if summed is None else summed:
        return _describe(array) | {"sum": on_host(_sum, array).tolist()}
    data = np.ascontiguousarray(on_host(_identity, array)).reshape(-1).view(np.uint8)
    return _describe(array) | {"sha256": hashlib.sha256(data.data).hexdigest()}


def _identity(array: jax.Array) -> jax.Array:
    return array


@jax.jit
def _sum(array: jax.Array) -> jax.Array:
    """Computes a fingerprint [2] uint32 of an array: two sums over all elements of a hash of (bits,
    index in C order), exact in any order. Another value of one element always changes the first;
    what else differs passes with 2^-64. Not against malice.
    """
    size = array.dtype.itemsize
    unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(size, jnp.uint32)
    array = array.astype(unsigned) if array.dtype == bool else array
    bits = jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)
    place = jnp.zeros(bits.shape, jnp.uint32)
    for axis, length in enumerate(bits.shape):
        place = place * np.uint32(length) + jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
    hashed = _mix(bits ^ _mix(place))
    second_hash = _mix(hashed + np.uint32(0x9E3779B9))
    return jnp.stack([hashed.sum(dtype=jnp.uint32), second_hash.sum(dtype=jnp.uint32)])


def _mix(x: jax.Array) -> jax.Array:
    """A bijection of uint32: "lowbias32" of C. Wellons, "Prospecting for Hash Functions", 2018."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def compare(folder: Path, saved: Mapping[str, Print], like: Tree) -> None:
    """Raises `UserError` unless the paths, shapes and dtypes of a saved tree are those of `like`; no
    array is read.

    Args:
      folder: the step, for the message.
      saved: path to fingerprint, as recorded.
      like: pytree of arrays or `jax.ShapeDtypeStruct`, as requested.

    Raises:
      UserError: a path is missing or not wanted, a shape or dtype differs: the first of them, and
        how many more.
    """
    new = {path: _describe(leaf) for path, leaf in leaves_by_path(like).items()}
    pairs = [
        (path, _spec(saved.get(path)), _spec(new.get(path)))
        for path in dict.fromkeys([*new, *saved])
    ]
    misfits = [f"{path}: saved {have}, wanted {want}" for path, have, want in pairs if have != want]
    if misfits:
        suffix = f" (and {len(misfits) - 1} more)" if len(misfits) > 1 else ""
        raise UserError(f"checkpoint {folder} does not fit: {misfits[0]}{suffix}")


def _describe(leaf: Tree) -> Print:
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return {"dtype": np.dtype(leaf.dtype).name, "shape": list(leaf.shape)}


def _spec(entry: Print | None) -> str:
    return "nothing" if entry is None else f"{entry['dtype']}[{','.join(map(str, entry['shape']))}]"


def digested(content: Mapping[str, object]) -> dict[str, object]:
    """Returns the record of a step with its digest, as it is stored."""
    return {"content": content, "sha256": _text_digest(content)}


def _text_digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_readable(folder: Path, cause: Exception) -> None:
    """Raises `UserError` if a file of a step cannot be opened for lack of permission or of file
    handles: that is no damage, and an older step would not help.
    """

    def raise_error(error: OSError) -> None:
        raise error

    try:
        for parent, _, names in os.walk(folder, onerror=raise_error):
            for name in names:
                open(os.path.join(parent, name), "rb").close()
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno in (errno.EMFILE, errno.ENFILE):
            raise UserError(
                f"cannot read checkpoint {folder}, which need not be damaged: {one_line(error)}"
            ) from cause


def disk_full(error: BaseException) -> bool:
    """Whether lack of space (or quota) is anywhere in the chain of causes."""
    full = re.compile("No space left|RESOURCE_EXHAUSTED|Disk quota exceeded")
    numbers = (errno.ENOSPC, errno.EDQUOT)
    chain = causes(error)
    return any(getattr(link, "errno", None) in numbers or full.search(str(link)) for link in chain)


def first_os_error(error: BaseException) -> OSError | None:
    """Returns the first OSError in the chain of causes of an error (also one that a message
    mentions by number), or None if there is none.
    """
    for cause in causes(error):
        if isinstance(cause, OSError):
            return cause
        if number := re.search(r"os_error_code='(\d+)'", str(cause)):
            return OSError(int(number[1]), os.strerror(int(number[1])))
    return None


def short_reason(error: BaseException) -> str:
    """The exception in one short line, or what it was raised from: that names the array."""
    error = error.__cause__ or error
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'...' if len(text) > 160 else ''}"
