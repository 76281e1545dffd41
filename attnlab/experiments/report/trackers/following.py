"""The process that tells a tracker of a run or a sweep at work: it reads the records as an export
does, again and again, and tells what is new.

    python -m attnlab.experiments.report.trackers.following NAME WHERE DIR

Its standard input ends with the work, also if that is killed; then it tells the rest and leaves.
The tracker cannot hold the work up: what fails is tried again, and its silence is said once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from pathlib import Path

from attnlab.errors import show_traceback
from attnlab.experiments.report.trackers import TRACKERS, tracked_in
from attnlab.experiments.report.trackers.runs import Entry, Store, Tracked
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
SETTLED = ("done", "failed", "diverged", "pruned", "stopped")
_FILES = ("events.jsonl", "metrics.jsonl", "valid.json", "results.json")


class Follower:
    """Tells a tracker of the runs in a folder until the work there has ended.

    Args:
      name: the tracker.
      where: it keeps runs.
      directory: of a run or a sweep.
      speaking: a file descriptor for a line to a person.

    Attributes:
      leaving: set when the work has ended.
    """

    def __init__(self, name: str, where: str, directory: Path, speaking: int = 2) -> None:
        self._name, self._where, self._directory = name, where, directory
        self._speaking, self._spoken = speaking, False
        self._alone, self._asked = False, float("inf")  # when it began to wait for the tracker
        self._store: Store | None = None
        self._entries: dict[str, Entry] = {}
        self._ended: dict[str, object] = {}
        self._stamps: dict[Path, list[tuple[int, int]]] = {}
        self.leaving = threading.Event()

    def run(self) -> None:
        """Read and tell; one process at a time does so for a folder and a tracker."""
        threading.Thread(target=self._watch, daemon=True).start()
        with exclusive(self._directory / f".{self._name}.lock"):
            self._alone, last = True, False
            while not last:
                last, fresh, began = self.leaving.is_set(), not self._store, time.process_time()
                try:
                    self.look(last)
                except Exception as error:
                    show_traceback(error)
                    self._entries.clear()  # the next look begins with what the tracker has
                    self._stamps.clear()
                    self._say(" ".join(f"{type(error).__name__}: {error}".split())[:300])
                self._asked = float("inf")
                spent = 0.0 if fresh else time.process_time() - began
                self.leaving.wait(max(POLL, SHARE * spent))

    def look(self, last: bool) -> None:
        """Tell what the records have gained; at the `last` look all of it, with final numbers."""
        if self._store is None:
            self._store = importlib.import_module(TRACKERS[self._name]).Store(self._where)
        sweep = (self._directory / "plan.json").exists()
        folders = self._directory.glob("trials/*/seed*") if sweep else [self._directory]
        stamps = {folder: _stamp(folder) for folder in folders}
        changed = [
            folder for folder in stamps if last or stamps[folder] != self._stamps.get(folder)
        ]
        for run in tracked_in(self._directory, changed) if changed else ():
            ends = last or (sweep and run.facts["state"] in SETTLED)
            if self._ended.get(run.id) != (run.facts, run.final):
                self._tell(self._store, run, ends)
        self._stamps = stamps

    def _tell(self, store: Store, run: Tracked, ends: bool) -> None:
        self._asked = time.monotonic()
        entry = self._entries.get(run.id) or self._entries.setdefault(run.id, store.open(run))
        self._asked = time.monotonic()
        # the evaluation of the last step may be still to come, and a tracker takes each step once
        points = run.curve if ends or not _awaits_scores(run) else run.curve[:-1]
        entry.log([point for point in points if point.step > entry.last])
        self._asked = time.monotonic()
        if ends:
            self._entries.pop(run.id).end(run)
            self._ended[run.id] = (run.facts, run.final)
        self._asked = float("inf")

    def _watch(self) -> None:
        """Say that the tracker is silent; end this process when the work has ended and the tracker
        is silent, or another reader of the folder tells it.
        """
        left = 0.0
        while True:
            time.sleep(0.2)
            left += 0.2 * self.leaving.is_set()
            silent = time.monotonic() - self._asked > SILENT
            if silent:
                self._say(f"has not answered for {SILENT:g} s")
            if left and (silent or (left > ANOTHER and not self._alone)):
                os._exit(0)

    def _say(self, what: str) -> None:
        """Say once what is wrong."""
        remedy = f"'export {self._directory} --to={self._name}' writes all of it later"
        if not self._spoken:
            self._spoken = True
            with contextlib.suppress(OSError):  # the work is gone, and nobody listens
                line = f"{self._name}: {what}; the run goes on, and {remedy}\n"
                os.write(self._speaking, line.encode())


def _stamp(folder: Path) -> list[tuple[int, int]]:
    """What changes when a run's records do."""
    paths = [path for name in _FILES if (path := folder / name).exists()]
    return [(path.stat().st_mtime_ns, path.stat().st_size) for path in paths]


def _awaits_scores(run: Tracked) -> bool:
    """Whether the last step is one that is evaluated, and its scores are not there."""
    training, point = run.config["training"], run.curve[-1] if run.curve else None
    if point is None or any(name.startswith("valid/") for name in point.values):
        return False
    every = training["evaluate_every"]
    return point.step == training["steps"] or bool(every and point.step % every == 0)


def main() -> None:
    """Follow, with a small claim to the processors."""
    os.nice(10)
    speaking = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # trackers talk
    name, where, directory = sys.argv[1:]
    follower = Follower(name, where, Path(directory), speaking)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        follower.leaving.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    follower.run()
    os._exit(0)  # whatever threads a tracker has left


if __name__ == "__main__":
    main()
