"""Several processes that work on one run: who they are (`detection`), how they meet, and how they
end together (`supervision`).

Each process of the command line forks the one that does the work, and stays beside it without jax.
Nothing here is used by a process alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from attnlab.errors import UserError
from attnlab.processes.detection import Member, add_arguments, find

__all__ = ["Member", "add_arguments", "find", "index", "run"]

_CONNECT = 120  # seconds; all processes are there when they begin to connect
_member: Member | None = None


def index() -> int:
    """Which of several processes this one is; 0 where it is alone. Process 0 writes and speaks."""
    return _member.index if _member else 0


def run(argv: Sequence[str], work: Callable[[], int]) -> int:
    """Do `work`: as it is, or as one of several processes, if flags or environment say so.

    Args:
      argv: the command line below the command.
      work: what the command does; its result is the exit code. As one of several it runs in a
        forked process that has joined JAX's others, and what it prints is seen of process 0 only.

    Returns:
      The exit code, the same in all processes.

    Raises:
      UserError: the flags are wrong, some processes do not come, or any of them has found a
        mistake.
    """
    member = find(argv, os.environ)
    if member is None:
        return work()
    from attnlab.processes.meeting import meet
    from attnlab.processes.supervision import Group

    meeting = meet(member, _without_own(argv))

    def joined() -> int:
        global _member
        _member = member
        _join(member, meeting.address, meeting.neighbours(member))
        return work()

    return Group(member, meeting).run(joined)


def _join(member: Member, address: str, neighbours: int) -> None:
    """Connect JAX's processes. One that is alone on its host takes all its devices; of several that
    a launcher counts each takes one.
    """
    import jax

    host = address.rpartition(":")[0].strip("[]")
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would go through a proxy
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), host)))
    for unwanted in (
        "jax_check_proxy_envs",
        "jax_enable_preemption_service",
    ):  # the first prints, the second takes SIGTERM for itself
        with contextlib.suppress(AttributeError):  # a version of JAX without it
            jax.config.update(unwanted, False)
    try:
        jax.distributed.initialize(
            address,
            num_processes=member.count,
            process_id=member.index,
            local_device_ids=_local_devices(member, neighbours),
            cluster_detection_method="deactivate",
            initialization_timeout=_CONNECT,
        )
    except RuntimeError as error:
        raise UserError(
            f"{member} cannot join JAX's coordinator at {address}: {str(error).splitlines()[0]}"
        ) from error


def _local_devices(member: Member, neighbours: int) -> list[int] | None:
    """The devices of this host that are this process's, by number; None for all."""
    if neighbours == 1 or member.local is None or "JAX_LOCAL_DEVICE_IDS" in os.environ:
        return None
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return (
        [0] if len(shown) == 1 and shown[0] else [member.local]
    )  # the launcher has given it one already


def _without_own(argv: Sequence[str]) -> list[str]:
    """The command line without what tells one process from another."""
    kept, skip = [], False
    for word in argv:
        if not skip and word != "--process" and not word.startswith("--process="):
            kept.append(word)
        skip = word == "--process"
    return kept
