"""Compiled programs: where they are kept, how much room they may take, and how many of a process
were compiled and how many came from there, and whether one is being compiled.

jax is imported by the functions, not by the module: the command line imports this for `--help` too.
"""

import contextlib
import ctypes
import functools
import threading
from pathlib import Path

from attnlab.records.files import cache_folder
from attnlab.training import devices

MOST = 4 * 2**30
"""Bytes that kept programs may take when a process begins: some 30,000 of a processor."""
COUNTED = ("compiled", "compiled_seconds", "loaded", "loaded_seconds")
"""What lines of `timing.jsonl` have of the programs since the line before: how many were compiled
and how many came from where they are kept, and how long both took."""
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"  # of those that are loaded too
_seconds: dict[str, list[float]] = {
    _COMPILED: [],
    "/jax/compilation_cache/cache_retrieval_time_sec": [],
}
"""Of the programs that nobody has asked for, by jax's name of what happened."""
under_way = ctypes.c_int(0)
"""How many threads of this process compile, once they are counted (`count`). Memory that another
process reads may take its place.
"""


def start_jax() -> None:
    """Imports jax and sets, unless the user has, a cache of compiled programs in `cache_folder`, of
    which the least recently used are removed where they take too much space, and float32 products
    in float32; also keeps freed memory and starts to count programs.

    Raises:
      UserError: `$ATTNLAB_CACHE` begins with "~", and there is no home.
    """
    devices.keep_freed()
    import jax

    count()
    if jax.config.jax_default_matmul_precision is None:  # type: ignore[attr-defined]
        devices.use_precision("float32")
    if (folder := cache_folder()) is None:
        return
    programs = folder / "jax"
    if jax.config.jax_compilation_cache_dir not in (None, str(programs)):  # type: ignore[attr-defined]
        return
    # a program is found there by what it computes, for which devices, and the version of XLA
    jax.config.update("jax_compilation_cache_dir", str(programs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    shrink(programs, MOST)


def shrink(folder: Path, limit: int) -> None:
    """If the files of a folder take more than `limit` bytes, deletes the least recently used until
    three quarters of that are left. Others may do the same at the same time.
    """
    files = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            files.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    size = sum(length for _, length, _ in files)
    target = limit if size <= limit else 0.75 * limit
    for _, length, path in sorted(files):
        if size <= target:
            break
        path.unlink(missing_ok=True)
        size -= length


@functools.cache
def count() -> None:
    """Registers, once per process, a listener that records the seconds of every program compiled or
    loaded from now on, and keeps in `under_way` how many threads are compiling. One that has
    ended compiles no more, as one that lowered a program only to count its work.
    """
    import jax

    threads: set[int | None] = set()

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Records the seconds of an event of JAX, and how many threads are compiling."""
        if event in _seconds:
            _seconds[event].append(duration_secs)
        if event in (_LOWERED, _COMPILED):
            change = threads.add if event == _LOWERED else threads.discard
            change(threading.get_ident())
            threads.intersection_update(thread.ident for thread in threading.enumerate())
            under_way.value = len(threads)

    jax.monitoring.register_event_duration_secs_listener(note)


def take() -> dict[str, float]:
    """Returns numbers and seconds of programs compiled and loaded (`COUNTED`) since the last call,
    and resets them; {} if there was no program.
    """
    total, loaded = ((len(seconds), sum(seconds)) for seconds in _seconds.values())
    for seconds in _seconds.values():
        seconds.clear()
    compiled = max(total[0] - loaded[0], 0)
    values = (compiled, max(total[1] - loaded[1], 0.0) if compiled else 0.0, *loaded)
    return dict(zip(COUNTED, values, strict=True)) if total[0] else {}
