"""Several processes that work on one run: which one each is, how they connect (`meeting`), and how
they work and end together (`supervision`).

Each process of the command line forks another that does the work, and itself never imports jax. A
single process uses nothing of this. JAX detects launchers, connects the processes and has its own
timeouts for that; what it lacks is here: waiting that says for whom, commands that are compared,
and an end of all at once in one line.

Flags, the environment or JAX say whether this is one of several processes, and which one. Variables
of a launcher are read without jax. JAX is used only if the environment says that there may be
several processes: under `srun` with several tasks, under `mpirun`, in an indexed job of Kubernetes,
or with the TPU library.
"""

import argparse
import dataclasses
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attnlab.errors import UserError
from attnlab.flags import add_number

ADDRESS = "JAX_COORDINATOR_ADDRESS"  # JAX's own name for what --coordinator says
MOST = 2**16  # processes
ALONE = "--processes=1 makes each a run of its own"
FLAGS = ("--coordinator=HOST:PORT", "--processes=N", "--process=I")


@dataclasses.dataclass(frozen=True)
class Member:
    """One of several processes.

    Attributes:
      host: the host of process 0, a name or address that all processes can reach.
      port: the port on which it listens.
      count: how many processes there are.
      index: which this one is; 0 writes.
      local: its index on its host, if the launcher says it.
    """

    host: str
    port: int
    count: int
    index: int
    local: int | None = None

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}"


@dataclasses.dataclass(frozen=True)
class Hint:
    """What the environment says: the launcher, and, as far as it tells, number of processes, index
    and index on the host.
    """

    launcher: str
    count: int | None = None
    index: int | None = None
    local: int | None = None


Identity: TypeAlias = tuple[str | None, int | None, int | None]
"""The address of process 0, the number of processes, and the index of this one; None for what is
not known yet."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags `--coordinator`, `--processes` and `--process` to a parser."""
    group = parser.add_argument_group(
        "several processes (docs/processes.md); found by themselves under srun, in Kubernetes, on"
        " TPU pods"
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="where process 0 runs, and a free port there"
    )
    help_text = "how many processes are started; 1: each is a run of its own"
    add_number(group, "--processes", 1, MOST, help_text)
    help_text = "which of them this one is, counted from 0"
    add_number(group, "--process", 0, MOST - 1, help_text, metavar="I")


def find(argv: Sequence[str], environ: Mapping[str, str]) -> Member | None:
    """Detects from flags (`argv`), environment and JAX whether this process is one of several, and
    returns its `Member`, or None if it works alone; raises `UserError` if the flags are wrong or
    incomplete, or process 0 cannot be found; may print a note.

    Args:
      argv: a command line; other flags are ignored.
      environ: the environment.

    Raises:
      UserError: the flags are wrong, or process 0 cannot be found.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_arguments(parser)
    try:
        flags, _ = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise UserError(f"{error}".removeprefix("argument ")) from None
    hint = of_environment(environ) or Hint("")
    flagged = any(value is not None for value in vars(flags).values())
    if flags.processes == 1 or not (flagged or hint.launcher) or (not flagged and hint.count == 1):
        return None
    group: Identity = (
        flags.coordinator or environ.get(ADDRESS),
        hint.count if flags.processes is None else flags.processes,
        hint.index if flags.process is None and hint.count is not None else flags.process,
    )
    address, count, index = group = _fill_in(group, hint, flagged)
    if not flagged and count == 1:
        return None
    if address is not None and count is not None and index is not None:
        return _check(address, count, index, hint.local)
    missing = " and ".join(flag for flag, value in zip(FLAGS, group, strict=True) if value is None)
    if flagged:
        raise UserError(f"one of several processes: give {missing} too (docs/processes.md)")
    if hint.launcher in ("srun", "mpirun"):
        raise UserError(
            f"{hint.launcher} has started {hint.count} processes: give {missing} too, or {ALONE}"
        )
    if hint.launcher == "kubernetes":
        note = f"a pod of an indexed job works alone, unless you give {missing}"
        print(f"note: {note} (docs/processes.md)", file=sys.stderr)
    return None


def of_environment(environ: Mapping[str, str]) -> Hint | None:
    """Returns a `Hint` from the first launcher with variables in `environ`: srun or mpirun (with
    count, index and index on the host), Kubernetes (with index); else "tpu" alone if the package
    `libtpu` is installed, else None.
    """
    # set by srun, not in a job's own shell
    if tasks := _numbers(environ, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"):
        return Hint("srun", *tasks)
    world = [f"OMPI_COMM_WORLD_{name}" for name in ("SIZE", "RANK", "LOCAL_RANK")]
    if tasks := _numbers(environ, *world):
        return Hint("mpirun", *tasks)
    if "KUBERNETES_SERVICE_HOST" in environ and (pod := _numbers(environ, "JOB_COMPLETION_INDEX")):
        return Hint("kubernetes", index=pod[0])
    return Hint("tpu") if importlib.util.find_spec("libtpu") else None


def _numbers(environ: Mapping[str, str], *names: str) -> list[int] | None:
    """Returns the values of environment variables as numbers; None unless all are whole numbers."""
    values = [environ.get(name, "") for name in names]
    return [int(value) for value in values] if all(value.isdecimal() for value in values) else None


def _fill_in(group: Identity, hint: Hint, flagged: bool) -> Identity:
    """Returns `group` (address, count, index) with missing values from the launcher's hint or JAX's
    detection, None where neither has one; if JAX fails, raises `UserError`, but without flags
    (`flagged` False) returns `group` under mpirun and (None, 1, 0) on a TPU.
    """
    if not hint.launcher or None not in group:
        return group
    if None not in group[:2]:
        return *group[:2], hint.index  # only the number of the pod was missing
    from jax._src.clusters import ClusterEnv  # JAX has no public name for it before it connects

    try:
        with warnings.catch_warnings(action="ignore"):  # a package that JAX could use is missing
            address, count, index, _ = ClusterEnv.auto_detect_unset_distributed_params(
                *group, [0], None, 60
            )
    except Exception as error:  # the service does not answer: KeyError, errors of an HTTP library
        if hint.launcher == "mpirun" and not flagged:
            return group  # newer versions of JAX need mpi4py; `group` has what mpirun says
        reason = f"JAX cannot find the other processes ({type(error).__name__}: {error})"
        if flagged or hint.launcher != "tpu":
            raise UserError(f"{reason}; give {', '.join(FLAGS)}, or {ALONE}") from error
        print(f"note: {reason}: this process works alone", file=sys.stderr)
        return None, 1, 0
    return address, count, hint.index if index is None else index


def _check(address: str, count: int, index: int, local: int | None) -> Member:
    """Returns the `Member` with this address and these numbers; raises `UserError` unless the
    address is HOST:PORT and 0 <= index < count.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--coordinator={address}: expected HOST:PORT, such as node7:8476")
    if not 0 <= index < count:
        last = f"with --processes={count} it is a whole number from 0 to {count - 1}"
        raise UserError(f"--process={index}: {last}")
    return Member(host.strip("[]"), int(port), count, index, local)


_member: Member | None = None


def index() -> int:
    """Returns the index of this process, 0 if it is the only one. Process 0 writes files and
    prints.
    """
    return _member.index if _member else 0


def run(argv: Sequence[str], work: Callable[[], int]) -> int:
    """Runs `work` and returns its exit code: in this process, or, if flags or environment say that
    it is one of several, in a forked process connected to the others.

    Args:
      argv: the command line below the command.
      work: what the command does; its result is the exit code. As one of several it runs in a
        forked process that is connected to the others by JAX, and only process 0 prints.

    Returns:
      The exit code, the same in all processes.

    Raises:
      UserError: the flags are wrong, some processes do not connect, or one of them raised a
        `UserError`.
    """
    member = find(argv, os.environ)
    if member is None:
        return work()
    from attnlab.processes.meeting import meet
    from attnlab.processes.supervision import Group

    meeting = meet(member, _without_process_flag(argv))

    def work_connected() -> int:
        global _member
        _member = member
        _join(member, meeting.address, meeting.neighbours(member))
        return work()

    return Group(member, meeting).run(work_connected)


def _join(member: Member, address: str, neighbours: int) -> None:
    """Connects this process to JAX's coordinator at `address` (sets `no_proxy` for it), with the
    devices of JAX_LOCAL_DEVICE_IDS if set, else with one if several processes of the group run on
    its host (`neighbours`) and a launcher counts them, else all; raises `UserError` if that fails.
    """
    import jax

    host = address.rpartition(":")[0].strip("[]")
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would go through a proxy
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), host)))
    jax.config.update("jax_check_proxy_envs", False)  # it would print
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    try:
        jax.distributed.initialize(
            address,
            num_processes=member.count,
            process_id=member.index,
            local_device_ids=_local_devices(member, neighbours),
            cluster_detection_method="deactivate",
        )
    except RuntimeError as error:
        raise UserError(
            f"{member} cannot join JAX's coordinator at {address}: {str(error).splitlines()[0]}"
        ) from error


def _local_devices(member: Member, neighbours: int) -> list[int] | None:
    """Returns [number] of this host's one device that this process takes: 0 if CUDA_VISIBLE_DEVICES
    names only one, else its index on this host; returns None if JAX_LOCAL_DEVICE_IDS names its
    devices, or, for all devices, if it is alone there (`neighbours` is 1) or its index is unknown.
    """
    if neighbours == 1 or member.local is None or "JAX_LOCAL_DEVICE_IDS" in os.environ:
        return None
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    assigned = len(devices) == 1 and devices[0]  # by the launcher
    return [0] if assigned else [member.local]


def _without_process_flag(argv: Sequence[str]) -> list[str]:
    """Returns the command line without `--process` and its value (each process has another)."""
    remaining, skip = [], False
    for word in argv:
        if not skip and word != "--process" and not word.startswith("--process="):
            remaining.append(word)
        skip = word == "--process"
    return remaining
