"""The process that tells a tracker of a run or a sweep at work: it reads the records as an export
does, again and again, and tells what is new.

    python -m attnlab.experiments.report.trackers.following NAME WHERE DIR

Its standard input ends with the work, also if that is killed; then it tells the rest and leaves.
The tracker cannot hold the work up: what fails is tried again, and its silence is said once.
"""

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab.errors import show_traceback
from attnlab.experiments.report.trackers import SETTLED, TRACKERS, Tracked, TrackerStore, tracked_in
from attnlab.records.locks import exclusive

POLL = 2.0
"""Seconds between two readings of the records, at least."""
SHARE = 100
"""How many times as long as reading and telling take of a processor the time to the next is, at
least; after the first, which begins everything, it is `POLL`.
"""
SILENT = 20.0
"""Seconds without an answer after which a tracker is said to be silent, and no longer waited for
when the work has ended.
"""
ANOTHER = 2.0
"""Seconds that a process waits for another one of its kind when the work has ended: after a kill the
one before may still be at it, and a launcher's has the rest told.
"""
_FILES = ("events.jsonl", "metrics.jsonl", "valid.json", "results.json")


class Follower:
    """Tells a tracker of the runs in a folder until the work there has ended.

    Args:
      name: the tracker.
      where: it keeps runs.
      directory: of a run or a sweep.
      message_fd: a file descriptor for a line to a person.

    Attributes:
      alone: set when no other process tells this tracker of the folder.
      leaving: set when the work has ended.
    """

    def __init__(self, name: str, where: str, directory: Path, message_fd: int = 2) -> None:
        """Stores the name of the tracker, the folder or address `where` of its store, the followed
        folder of a sweep or run, and the file descriptor `message_fd` for messages; starts nothing.
        """
        self._name, self._where, self._directory = name, where, directory
        self._message_fd = message_fd
        self._has_reported = False
        self._written = {""}
        self._called_at = float("inf")  # when it began to wait for the tracker
        self._store: TrackerStore | None = None
        self._opened: dict[str, tuple[Any, int]] = {}
        self._ended: dict[str, str] = {}
        self._stamps: dict[Path, list[int]] = {}
        self.alone, self.leaving = threading.Event(), threading.Event()

    def run(self) -> None:
        """Sends new records of the followed folder to the tracker again and again, `POLL` seconds
        or more apart, as the only process that does so (by a lock file), until `leaving` is set and
        a last pass is done; reports an error once and continues.
        """
        threading.Thread(target=self._watch, daemon=True).start()
        with exclusive(self._directory / f".{self._name}.lock"):
            self.alone.set()
            last = False
            while not last:
                last, fresh, began = self.leaving.is_set(), not self._store, time.process_time()
                try:
                    self.look(last)
                except Exception as error:
                    show_traceback(error)
                    self._opened.clear()  # the next look begins with what the tracker has
                    self._stamps.clear()
                    self._report_once(" ".join(f"{type(error).__name__}: {error}".split())[:300])
                spent = 0.0 if fresh else time.process_time() - began
                self.leaving.wait(max(POLL, SHARE * spent))

    def look(self, last: bool) -> None:
        """Reads the trials whose files have changed and sends the tracker the new points of their
        curves (see `Tracked.curve`); at the `last` look, and for settled trials of a sweep, also
        the final numbers and the state.
        """
        if self._store is None:
            module = TRACKERS[self._name]
            self._store = self._call(lambda: importlib.import_module(module).Store(self._where))
        assert self._store is not None
        sweep = (self._directory / "plan.json").exists()
        folders = self._directory.glob("trials/*/seed*") if sweep else [self._directory]
        stamps = {folder: _changed_at(folder) for folder in folders}
        changed = [
            folder for folder in stamps if last or stamps[folder] != self._stamps.get(folder)
        ]
        for run in tracked_in(self._directory, changed) if changed else ():
            if self._ended.get(run.id) != run.digest:
                self._send(self._store, run, last or (sweep and run.facts["state"] in SETTLED))
        self._stamps = stamps

    def _send(self, store: TrackerStore, run: Tracked, ends: bool) -> None:
        opened, newest = self._opened.get(run.id) or self._call(store.open, run)
        self._write(f"look:   {store.hint}" * bool(store.hint))
        points = [point for point in run.curve if point.step > newest]
        self._call(store.log, opened, points)
        self._opened[run.id] = opened, points[-1].step if points else newest
        if ends:
            self._call(store.end, self._opened.pop(run.id)[0], run)
            self._ended[run.id] = run.digest

    def _call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Calls a function of the tracker with the arguments `given` and returns its answer; while
        it runs, `_called_at` has its start time, by which `_watch` sees that it hangs.
        """
        self._called_at = time.monotonic()
        try:
            return function(*given)
        finally:
            self._called_at = float("inf")

    def _watch(self) -> None:
        """Loops forever: reports once a tracker that has not answered for `SILENT` seconds, and
        ends this process when the work has ended and the tracker is silent or another process
        follows the work.
        """
        while True:
            time.sleep(0.2)
            if silent := time.monotonic() - self._called_at > SILENT:
                self._report_once(f"has not answered for {SILENT:g} s")
            if self.leaving.is_set() and (silent or not self.alone.is_set()):
                os._exit(0)

    def _report_once(self, what: str) -> None:
        """Writes the message `what` with a remedy as one line to the file descriptor `message_fd`, at
        the first call only; later calls do nothing.
        """
        if not self._has_reported:
            self._has_reported = True
            remedy = f"'export {self._directory} --to={self._name}' writes all of it later"
            self._write(f"{self._name}: {what}; the run goes on, and {remedy}")

    def _write(self, line: str) -> None:
        """Writes a line to the file descriptor `message_fd`, unless it is there or empty."""
        if line not in self._written:
            self._written.add(line)
            with contextlib.suppress(OSError):  # the work is gone, and nobody listens
                os.write(self._message_fd, f"{line}\n".encode())


def _changed_at(folder: Path) -> list[int]:
    """Returns when the records of a run were changed, ns."""
    paths = [path for name in _FILES if (path := folder / name).exists()]
    return [path.stat().st_mtime_ns for path in paths]


def main() -> None:
    """Runs a `Follower` for the tracker, store and folder in `sys.argv`, at low priority and
    without stdout, until stdin is closed and all is sent; then ends the process.
    """
    os.nice(10)
    message_fd = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # trackers talk
    name, where, directory = sys.argv[1:]
    follower = Follower(name, where, Path(directory), message_fd)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        follower.alone.wait(ANOTHER)
        follower.leaving.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    follower.run()
    os._exit(0)  # whatever threads a tracker has left


if __name__ == "__main__":
    main()
