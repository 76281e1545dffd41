"""A worker: it takes one trial of the sweep after another, on any machine that sees the folder,
until nothing is left.

It runs the queue of `queue.py`. Several workers coordinate through the locks of trials. When SLURM
needs a node back, the trial saves, SLURM queues the worker again, and some worker continues the
trial. A worker never makes the choice: it evaluates on the test split what a launcher has chosen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.experiments.run.board import Board
from attnlab.experiments.run.jobs import WHOLE, Job, Part, finals, training
from attnlab.experiments.run.queue import Queue
from attnlab.experiments.run.selection import Choice
from attnlab.experiments.run.slots import Slot, usable_cores, with_planned_cores
from attnlab.experiments.run.stop import Stop
from attnlab.records import attempts
from attnlab.records.stream import is_held

POLL = 3.0  # seconds between two looks at the folder
IDLE = 120.0  # seconds that it waits for something to do


class Worker:
    """The function of a job of the array; pickled by submitit.

    Attributes:
      directory: the sweep's folder.
      part: of the trials that it takes.
      limit: seconds that a trial may take, see `Queue`.
      accept: fewer cores than planned, see `slots.with_planned_cores`.
    """

    def __init__(
        self,
        directory: Path,
        part: Part = WHOLE,
        limit: float | None = None,
        accept: bool = False,
    ) -> None:
        self.directory, self.part, self.limit, self.accept = directory, part, limit, accept

    def __call__(self, number: int) -> None:
        """Work until nothing is left; asked by SLURM to leave, let the trial save, and be queued
        again.
        """
        with Leave() as leave:
            try:
                slots = [allotted(number)]
                work(self.directory, slots, leave, self.part, self.limit, self.accept)
            except UserError as error:  # the launcher tells it
                print(f"error: {error}", file=sys.stderr)
        if leave.signal is not None and (leave.requeue or preempted()):
            leave.handler(signal.SIGUSR2, None)

    def checkpoint(self, number: int) -> Any:
        """What submitit queues again: the same object, since all state is on disk."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, number)


class Leave(Stop):
    """Signals to a worker. SLURM repeats them before it kills, so only the first counts.

    Attributes:
      handler: submitit's for SIGUSR2, which has the job queued again and ends this process.
      requeue: whether SIGUSR2 has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.handler: Any = None
        self.requeue = False

    def __enter__(self) -> Leave:
        super().__enter__()
        self.handler = signal.signal(signal.SIGUSR2, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGUSR2, self.handler)
        super().__exit__(kind, error, trace)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.requeue = self.requeue or number == signal.SIGUSR2
        if not self.signals:
            super()._remember(number, frame)


def preempted() -> bool:
    """Whether this job was told to leave but still counts as running (its grace period). If it ends
    then, SLURM does not queue it again.

    For SLURM, a job that is cancelled or requeued no longer runs when it gets the signal.
    """
    query = ["squeue", "--noheader", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}", "--format=%T"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.split() == ["RUNNING"]


def work(
    directory: Path,
    slots: Sequence[Slot],
    stop: Stop,
    part: Part = WHOLE,
    limit: float | None = None,
    accept: bool = False,
) -> None:
    """Run trials and evaluations of the sweep that no other process works on, until none is left or
    a signal comes.

    While a launcher works in the folder, wait up to `IDLE` seconds for its next trials and its
    choice.

    Raises:
      UserError: no sweep there, a pattern that fits nothing in it, or slots of fewer cores than
        planned, unless these are accepted.
      Changed: code or data is not what the sweep was planned with.
    """
    plan = Plan.of_sweep(directory)
    part.check(plan)
    slots = with_planned_cores(slots, plan.cores, accept)
    board = Board(plan, directory, len(slots), stream=sys.stdout)
    queue = Queue(directory, slots, board, stop)
    queue.patience, queue.limit = POLL, limit
    failed: set[str] = set()
    since = time.monotonic()
    while stop.signal is None and time.monotonic() - since < IDLE:
        board.plan = plan = Plan.of_sweep(directory)
        choice = Choice.read(directory)
        jobs = [job for job in due(plan, choice, directory) if job.name not in failed]
        jobs = [job for job in jobs if job.kind == "final" or part.takes(job.trials[0])]
        if not jobs and (
            choice is not None or not (is_held(directory) or _advanced(plan, directory, part))
        ):
            return
        free = [
            job
            for job in jobs
            if not any(is_held(trial.workdir(directory)) for trial in job.trials)
        ]
        if free:
            lines = queue.run(in_turn(free, slots[0].number, directory))
            failed |= {
                job.name for job in free if any(line.startswith(f"{job.name}:") for line in lines)
            }
        else:
            time.sleep(POLL)
        since = time.monotonic() if jobs else since  # other workers may leave something to do


def _advanced(plan: Plan, directory: Path, part: Part) -> bool:
    """Whether a search without a launcher has new trials; a worker with a part does not advance a
    search.
    """
    if plan.search is None or part != WHOLE:
        return False
    from attnlab.experiments.run.searching import advance

    return advance(directory) or bool(due(Plan.of_sweep(directory), None, directory))


def due(plan: Plan, choice: Choice | None, directory: Path) -> list[Job]:
    """The jobs that are due now."""
    return [
        *training(plan, choice, directory),
        *(finals(plan, choice, directory) if choice else []),
    ]


def in_turn(jobs: list[Job], number: int, directory: Path) -> list[Job]:
    """Jobs in the order for this worker: begun ones first; workers that start together begin with
    different trials.
    """
    begun = [
        job for job in jobs if any(attempts.read(trial.workdir(directory)) for trial in job.trials)
    ]
    parts = (begun, [job for job in jobs if job not in begun])
    return [part[(place + number) % len(part)] for part in parts for place in range(len(part))]


def allotted(number: int) -> Slot:
    """The slot of worker `number`: the cores that SLURM has bound it to; on a cluster that binds
    none, a share of its own.
    """
    cores = usable_cores()
    wanted = int(os.environ.get("SLURM_CPUS_PER_TASK", len(cores)))
    if len(cores) > wanted:
        first = number * wanted % len(cores)
        cores = sorted({cores[(first + core) % len(cores)] for core in range(wanted)})
    return Slot(number, tuple(cores), {"OMP_NUM_THREADS": str(len(cores))})
