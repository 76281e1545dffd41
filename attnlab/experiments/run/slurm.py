"""Trials on a SLURM cluster: an array of workers; each takes one trial after another until nothing
is left.

The launcher stays on the login node: it plans, submits workers through submitit, follows the
records in the sweep's folder, chooses, and reports. Workers run the same queue as on one machine,
with one slot each, and coordinate through the locks of trials, so they only need a shared file
system with locks. When a worker is preempted or reaches its time limit, its trial saves; SLURM
queues the job again, and some worker continues the trial. A lost launcher or worker loses no more
than that.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import math
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from attnlab.errors import UserError, optional_package
from attnlab.experiments.run import placing
from attnlab.experiments.run.board import Board
from attnlab.experiments.run.jobs import Executor
from attnlab.experiments.run.live import DEFAULTS, FirstStop, Stop, WorkOptions
from attnlab.experiments.run.placing import Placed
from attnlab.experiments.run.slots import MOST_SLOTS, allotted
from attnlab.experiments.run.worker import work
from attnlab.flags import add_number

REQUEUES = 100  # time-outs after which a job is not queued again
WORKERS = 4
LONGEST = 525_600  # minutes of a worker: a year


@dataclasses.dataclass(frozen=True)
class Request:
    """The resources requested from SLURM.

    Attributes:
      workers: jobs of the array; each runs one trial at a time.
      minutes: time limit of a job, which is queued again when it reaches it.
      warning: seconds before that limit at which trials are told to save.
      cores: of a worker.
      gpus: of a worker.
      partition: "" for the cluster's default.
      other: further settings of sbatch, name to value.
    """

    workers: int = WORKERS
    minutes: int = 60
    warning: int = 90
    cores: int = 1
    gpus: int = 0
    partition: str = ""
    other: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Raises `UserError` if the warning would come before the time limit has begun (`warning`
        seconds >= `minutes`).
        """
        if self.warning >= 60 * self.minutes:
            raise UserError(
                f"--slurm.warning={self.warning}: the whole time limit is {60 * self.minutes} s"
                " (--slurm.minutes)"
            )

    def check(self) -> None:
        """Raises `UserError` unless submitit is installed and SLURM is on this machine.

        Raises:
          UserError: submitit is not installed, or there is no SLURM here.
        """
        _submitit()
        if shutil.which("srun") is None:
            raise UserError(
                "--executor=slurm: there is no SLURM here (srun is not found); start the sweep on a"
                " login node"
            )

    def executor(self, directory: Path, board: Board, stop: Stop, options: WorkOptions) -> Executor:
        """Returns the executor that runs jobs on SLURM with these resources."""
        return Cluster(directory, self, board, stop, options)

    def settings(self) -> dict[str, Any]:
        """Returns the request as a dict of submitit's parameters."""
        root = Path(__file__).parents[3]
        settings: dict[str, Any] = {
            "timeout_min": self.minutes,
            "cpus_per_task": self.cores,
            "slurm_signal_delay_s": self.warning,
            # which srun no longer takes over from sbatch
            "slurm_srun_args": [f"--cpus-per-task={self.cores}"],
            "slurm_setup": [f'export PYTHONPATH="{root}${{PYTHONPATH:+:$PYTHONPATH}}"'],
            "slurm_additional_parameters": {"requeue": True, **dict(self.other)},
        }
        settings |= {"gpus_per_node": self.gpus} if self.gpus else {}
        return settings | ({"slurm_partition": self.partition} if self.partition else {})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a SLURM `Request`, all but `--slots`, to a parser."""
    group = parser.add_argument_group(
        "with --executor=slurm, where --slots is the number of workers"
    )
    group.add_argument(
        "--slurm.partition", metavar="NAME", default="", help="partition (default: the cluster's)"
    )
    meaning = "time limit of a worker, which is requeued (default: 60)"
    add_number(group, "--slurm.minutes", 1, LONGEST, meaning, default=60)
    meaning = "seconds before the limit to save in (default: 90)"
    add_number(group, "--slurm.warning", 1, 60 * LONGEST, meaning, default=90, metavar="S")
    meaning = "cores of a worker (default: 1)"
    add_number(group, "--slurm.cores", 1, MOST_SLOTS, meaning, default=1)
    meaning = "GPUs of a worker (default: 0)"
    add_number(group, "--slurm.gpus", 0, MOST_SLOTS, meaning, default=0)
    group.add_argument(
        "--slurm.set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any other setting of sbatch, account=mine",
    )


def request(arguments: argparse.Namespace) -> Request:
    """Makes the SLURM request from the parsed flags of a command line; raises `UserError` for a
    warning shorter than `--grace` or beyond the limit, or a `--slurm.set` without a value.

    Raises:
      UserError: a warning beyond the limit or shorter than `--grace`, or a setting without a value.
    """
    given = vars(arguments)
    grace, warning = arguments.grace, given["slurm.warning"]
    if grace is not None and grace > warning:
        raise UserError(
            f"--grace={grace:g}: SLURM ends a worker {warning} s after it has warned it; give both"
            f" more, --slurm.warning={math.ceil(grace)}"
        )
    for text in given["slurm.set"]:
        if "=" not in text:
            raise UserError(f"--slurm.set={text}: no value given, write --slurm.set={text}=VALUE")
    pairs = (text.lstrip("-").partition("=") for text in given["slurm.set"])
    other = tuple((key, value) for key, _, value in pairs)
    names = ("minutes", "warning", "cores", "gpus", "partition")
    numbers = {name: given[f"slurm.{name}"] for name in names}
    return Request(WORKERS if arguments.slots is None else arguments.slots, other=other, **numbers)


class Cluster(Placed):
    """The array of workers on the cluster.

    Args:
      directory: the sweep's folder, which must have the same path on all nodes.
      request: the resources.
      board: receives the events.
      stop: a remembered signal ends following; the workers go on.
      options: of the workers.
    """

    _request: Request

    def prepare(self) -> None:
        """Prepares submitit's executor; the `grace` of the workers' options becomes at most the
        request's `warning`.
        """
        grace = min(self._options.grace, self._request.warning)
        self._job = ArrayJob(self._directory, dataclasses.replace(self._options, grace=grace))
        self._submitit, self.logs = _submitit(), str(self._directory / "slurm")
        self._executor = self._submitit.AutoExecutor(
            self.logs, cluster="slurm", slurm_max_num_timeout=REQUEUES
        )
        self._executor.update_parameters(name=self.name, **self._request.settings())

    @property
    def name(self) -> str:
        """The name of all jobs of this sweep, by which a later launcher finds the workers of an
        earlier one.
        """
        return f"attnlab-{hashlib.sha256(str(self._directory).encode()).hexdigest()[:10]}"

    def workers(self) -> int:
        """Returns how many jobs of this sweep SLURM has queued or running, as `squeue` counts them
        by name; raises `UserError` if `squeue` fails three times, `POLL` seconds apart.

        Raises:
          UserError: SLURM does not answer.
        """
        whose = [f"--user={pwd.getpwuid(os.getuid()).pw_name}", f"--name={self.name}"]
        query = ["squeue", "--noheader", "--array", *whose, "--format=%i"]
        for again in (True, True, False):  # a busy controller may take a moment
            done = subprocess.run(query, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return len(done.stdout.split())
            if again:
                time.sleep(placing.POLL)
        raise UserError(f"squeue does not answer: {done.stderr}")

    def submit(self, count: int) -> None:
        """Submits an array of `count` workers to SLURM; raises `UserError` if it does not accept
        them.
        """
        try:
            submitted = self._executor.map_array(self._job, range(count))
        except (self._submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            raise UserError(f"SLURM did not take the workers: {error}") from error
        name, minutes = submitted[0].job_id.partition("_")[0], self._request.minutes
        self._board.note(f"submitted {count} worker(s) of {minutes} minutes as job {name}")

    def leave(self) -> None:
        """Prints that the workers go on without this launcher, and how to stop them."""
        advice = f"'scancel --name={self.name}' stops them"
        self._board.note(f"the workers go on without this launcher; {advice}")


@dataclasses.dataclass(frozen=True)
class ArrayJob:
    """The function of a job of the array, a worker; pickled by submitit.

    Attributes:
      directory: the sweep's folder.
      options: of the worker.
    """

    directory: Path
    options: WorkOptions = DEFAULTS

    def __call__(self, number: int) -> None:
        """Runs, as worker `number` on SLURM, jobs until none is left, and prints a `UserError`;
        when SLURM asks it to leave, the trial saves, and this job is queued again unless it was
        cancelled. One that compiles has no longer than others: SLURM would kill both before that.
        """
        options = dataclasses.replace(self.options, compiling=0.0)
        with Leave() as leave:
            try:
                work(self.directory, [allotted(number)], leave, options)
            except UserError as error:  # the launcher tells it
                print(f"error: {error}", file=sys.stderr)
        if leave.signal is not None and (leave.requeue or preempted()):
            leave.handler(signal.SIGUSR2, None)

    def checkpoint(self, number: int) -> Any:
        """Returns what submitit queues again: this same job, since all its state is on disk."""
        return _submitit().helpers.DelayedSubmission(self, number)


class Leave(FirstStop):
    """Signals to a worker. SLURM repeats them before it kills, so only the first counts.

    Attributes:
      handler: submitit's for SIGUSR2, which has the job queued again and ends this process.
      requeue: whether SIGUSR2 has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.handler: Any = None
        self.requeue = False

    def __enter__(self) -> "Leave":
        super().__enter__()
        self.handler = signal.signal(signal.SIGUSR2, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGUSR2, self.handler)
        super().__exit__(*error)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.requeue = self.requeue or number == signal.SIGUSR2
        super()._remember(number, frame)


def preempted() -> bool:
    """Returns whether SLURM still counts this job, which was asked to leave, as running (its grace
    period), so that it must queue itself again; False if SLURM does not answer. If it ends then,
    SLURM does not queue it again.

    For SLURM, a job that is cancelled or requeued no longer runs when it gets the signal.
    """
    query = ["squeue", "--noheader", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}", "--format=%T"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return answer.stdout.split() == ["RUNNING"]
    return False


def _submitit() -> Any:
    """Imports and returns the package submitit; raises `UserError` if it is not installed."""
    return optional_package("submitit", "--executor=slurm needs submitit", "slurm")
