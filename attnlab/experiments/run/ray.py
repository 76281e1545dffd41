"""Trials on a Ray cluster: a Ray core task for each worker, placed where the devices of one trial are
free. Ray places workers and knows nothing of trials; it keeps none of their records.

A task runs its worker as a process of its own (`serve`), which ends with the task: asked first, so
that its trial saves. If a node or a Ray worker is lost, Ray runs the task again elsewhere, and its
worker takes the next trial whose lock is free. The tasks belong to the launcher: without it they
end, and the same command goes on.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import UserError, one_line, optional_package
from attnlab.experiments.run.board import Board
from attnlab.experiments.run.jobs import Due, Executor
from attnlab.experiments.run.live import FirstStop, Stop, WorkOptions, died
from attnlab.experiments.run.placing import Placed
from attnlab.experiments.run.slots import MOST_SLOTS, allotted
from attnlab.experiments.run.worker import work
from attnlab.flags import add_number

WORKERS = 4
SETTLE = 30.0  # seconds that Ray may need, beside the grace of a trial, until its tasks have left
TICK = 0.5  # seconds between two checks of signals while they leave
FORCED = 10.0  # seconds that Ray may need to end tasks by force
_TAKEN = ("ATTNLAB_", "JAX_", "XLA_")
_SERVE = "-c", "from attnlab.experiments.run.ray import serve; serve()"
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Request:
    """The resources requested from Ray.

    Attributes:
      workers: tasks; each runs one trial at a time.
      cores: of a worker.
      gpus: of a worker.
      address: of the cluster, "auto" for the one of this machine or of $RAY_ADDRESS.
    """

    workers: int = WORKERS
    cores: int = 1
    gpus: int = 0
    address: str = "auto"

    def check(self) -> None:
        """Connects to the Ray cluster, if that is not done yet, and raises `UserError` if Ray is
        not installed, no cluster answers, or none of its nodes has the cores and GPUs of a worker.

        Raises:
          UserError: Ray is not installed, no cluster answers, or none of its nodes has the devices.
        """
        ray = _ray()
        if not ray.is_initialized():
            _connect(ray, self.address)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        sizes = [(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in nodes]
        if not any(cores >= self.cores and gpus >= self.gpus for cores, gpus in sizes):
            present = ", ".join(f"{cores} and {gpus}" for cores, gpus in sizes)
            raise UserError(
                f"--ray.cores={self.cores} --ray.gpus={self.gpus}: no node of the Ray cluster has"
                f" so many cores and GPUs (they have {present}); ask for fewer"
            )

    def executor(self, directory: Path, board: Board, stop: Stop, options: WorkOptions) -> Executor:
        """Returns the executor that runs jobs on Ray with these resources."""
        return Cluster(directory, self, board, stop, options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a Ray `Request`, all but `--slots`, to a parser."""
    group = parser.add_argument_group("with --executor=ray, where --slots is the number of workers")
    group.add_argument(
        "--ray.address",
        metavar="HOST:PORT",
        default="auto",
        help="of the cluster (default: $RAY_ADDRESS, else the one that runs here)",
    )
    add_number(group, "--ray.cores", 1, MOST_SLOTS, "cores of a worker (default: 1)", default=1)
    add_number(group, "--ray.gpus", 0, MOST_SLOTS, "GPUs of a worker (default: 0)", default=0)


def request(arguments: argparse.Namespace) -> Request:
    """Makes the Ray request from the flags of a command line."""
    numbers = {name: getattr(arguments, f"ray.{name}") for name in ("cores", "gpus", "address")}
    return Request(WORKERS if arguments.slots is None else arguments.slots, **numbers)


def _connect(ray: Any, address: str) -> None:
    """Connects this process to the Ray cluster at an address; raises `UserError` if none answers."""
    host, _, port = address.rpartition(":")
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    try:
        if port.isdecimal() and "/" not in host:  # Ray itself would try for a minute
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"--executor=ray: no Ray cluster answers at --ray.address={address}"
            f" ({_first_line(error)}); start one, 'ray start --head', or name another"
        ) from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")


class Cluster(Placed):
    """The tasks of a sweep.

    Args:
      directory: the sweep's folder, which must have the same path on all nodes.
      request: the resources; `check` has connected to their cluster.
      board: receives the events.
      stop: a remembered signal ends the tasks.
      options: of the workers.
    """

    _request: Request

    logs = "the logs of Ray"

    def prepare(self) -> None:
        """Begins without tasks, and has Ray send this module's functions by value."""
        self._ray = _ray()
        self._tasks: dict[Any, int] = {}
        self._patience = self._options.grace + SETTLE
        self._ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def run(self, due: Due) -> list[str]:
        """Runs the jobs that `due()` lists through Ray workers and returns the lines of
        `Placed.run`; after a `UserError` it first has the workers save and leave, then raises it
        again.
        """
        try:
            return super().run(due)
        except UserError:
            self.leave()
            raise

    def workers(self) -> int:
        """Returns the number of Ray tasks that have not ended, after it has removed those that have
        and noted on the board which were lost or died; raises `UserError` if a worker ended with
        exit code 2.

        Raises:
          UserError: what the worker of one has said.
        """
        for task in self._ended(0.0):
            del self._tasks[task]
            try:
                code, line = self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                self._board.note(f"a worker was lost: {_first_line(error)}")
                continue
            if code == 2:
                raise UserError(line)
            if code != 0:
                word = died(code) if code < 0 else f"ended with exit code {code}"
                word += f": {line}" if line else ""
                self._board.note(f"a worker {word}")
                self.logs = f"{Cluster.logs}; the last one {word}"
        return len(self._tasks)

    def submit(self, count: int) -> None:
        """Submits `count` more workers to Ray, as tasks with the requested cores and GPUs."""
        place = self._ray.remote(
            num_cpus=self._request.cores,
            num_gpus=self._request.gpus,
            max_retries=-1,
            scheduling_strategy="SPREAD",
        )(run_worker)
        environment = worker_environment()
        numbers = range(self._request.workers)
        free = [number for number in numbers if number not in self._tasks.values()]
        for number in free[:count]:
            given = (self._directory, self._options, number, self._request.cores)
            where = (os.getcwd(), environment, self._patience)
            self._tasks[place.remote(_SERVE, pickle.dumps(given), *where)] = number
        self._board.note(f"asked Ray for {count} worker(s)")

    def leave(self) -> None:
        """Cancels all tasks, so that their workers save and leave, and waits for that, at most the
        `grace` of the workers' options and `SETTLE` seconds; a second signal to the launcher ends
        them by force.
        """
        for task in self._tasks:
            self._ray.cancel(task)
        end, forced = time.monotonic() + self._patience, False
        while len(self._ended(TICK)) < len(self._tasks) and time.monotonic() < end:
            if len(self._stop.signals) > 1 and not forced:
                for task in self._tasks:
                    self._ray.cancel(task, force=True)
                end, forced = min(end, time.monotonic() + FORCED), True

    def _ended(self, timeout: float) -> list[Any]:
        """Waits up to `timeout` seconds for all tasks to end, and returns those that have."""
        if not (tasks := list(self._tasks)):
            return []
        ended, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)
        return ended


def worker_environment() -> dict[str, str]:
    """Returns the environment variables that workers inherit from the launcher: PYTHONPATH with
    this package, and those of attnlab, JAX and XLA, which decide how numbers round.
    """
    taken = {name: value for name, value in os.environ.items() if name.startswith(_TAKEN)}
    paths = (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))
    return {**taken, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_worker(
    line: Sequence[str], given: bytes, cwd: str, environment: Mapping[str, str], patience: float
) -> tuple[int, str]:
    """In a Ray task: runs Python with the arguments `line` as a child process, with `given` on its
    stdin, until it ends, and returns its exit code and the last line of its stderr; if cancelled,
    asks it to leave within `patience` seconds and raises the interrupt again. What it wrote on its
    standard error is written on that of the task, for the logs of Ray.

    A task that is cancelled gets KeyboardInterrupt; its worker is asked to leave. Ray sends this
    function as it is, so that only the worker needs this package.

    Args:
      line: the command, without Python.
      given: its input, with the pid of the task appended.
      cwd: its working folder, that of the launcher.
      environment: added to that of the task.
      patience: seconds that it has to leave.

    Returns:
      Its exit code, -n after signal n, and the last line that it wrote on its standard error.
    """
    with tempfile.TemporaryFile() as errors:
        worker = subprocess.Popen(
            [sys.executable, *line],
            stdin=subprocess.PIPE,
            stderr=errors,
            cwd=cwd,
            env={**os.environ, **environment},
        )
        assert worker.stdin is not None
        with contextlib.suppress(BrokenPipeError), worker.stdin as pipe:  # it has died at once
            pipe.write(given + pickle.dumps(os.getpid()))
        try:
            while worker.poll() is None:
                time.sleep(0.2)
        except BaseException:
            worker.send_signal(signal.SIGTERM)
            worker.wait(patience)
            raise
        finally:
            errors.seek(0)
            text = errors.read().decode(errors="replace")
            sys.stderr.write(text)
    return worker.returncode, (text.splitlines() or [""])[-1].removeprefix("error: ")


def serve() -> None:
    """The main function of a worker process on Ray: reads its input from stdin and runs jobs until
    none is left; prints a `UserError` and exits with 2; it gets SIGTERM if its task dies.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    directory, options, number, cores = pickle.load(sys.stdin.buffer)
    parent = pickle.load(sys.stdin.buffer)
    try:
        with FirstStop() as stop:  # the death of the task may be a second one
            if os.getppid() == parent:
                work(directory, [allotted(number, cores)], stop, options)
    except UserError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        sys.exit(2)


def _ray() -> Any:
    """Imports and returns the package of Ray; raises `UserError` if it is not installed."""
    return optional_package("ray", "--executor=ray needs Ray", "ray")
