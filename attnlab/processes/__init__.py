"""Several processes that work on one run: which one each is (`detection`), how they connect
(`meeting`), and how they end together (`supervision`).

Each process of the command line forks another that does the work, and itself never imports jax. A
single process uses nothing of this. JAX detects launchers, connects the processes and has its own
timeouts for that; what it lacks is here: waiting that says for whom, commands that are compared, and
an end of all at once in one line.
"""

import os
from collections.abc import Callable, Sequence

from attnlab.errors import UserError
from attnlab.processes.detection import Member, add_arguments, find

__all__ = ["Member", "add_arguments", "find", "index", "run"]

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
