"""How several processes connect: process 0 listens, the others connect to it, and each is told
about the group.

The connections stay open. While one is open, the process at its other end is alive: a process that
dies closes it, and the kernel notices a lost host (TCP keep-alive, half a minute).
"""

import contextlib
import dataclasses
import json
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import attnlab
from attnlab.errors import UserError
from attnlab.processes import ALONE, Member

PATIENCE = 300.0  # seconds in which all must connect: machines may start minutes apart
_HELLO = 10  # seconds in which a new connection must say which process it is
_NOTE = 10.0  # seconds before process 0 says which processes are missing
_RETRY = 0.25
_LONGEST = 2**24  # bytes of a message


def open_link(connection: socket.socket) -> Connection:
    """Turns a socket into a `Connection` for JSON messages, with a limit on the time to receive and
    TCP keep-alive, so that the loss of the other host is noticed.
    """
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _HELLO, 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return Connection(connection.detach())


def send(link: Connection, message: object) -> None:
    """Sends a message as JSON; does nothing if the other end is gone."""
    with contextlib.suppress(OSError):
        link.send_bytes(json.dumps(message).encode())


def receive(link: Connection, timeout: float | None = None) -> Any:
    """Waits up to `timeout` seconds, or without limit for None, for the next message and returns it
    as decoded JSON, or None if none comes, the other end is gone, or it is no JSON.
    """
    try:
        return json.loads(link.recv_bytes(_LONGEST)) if link.poll(timeout) else None
    except (OSError, EOFError, ValueError):
        return None


def is_open(link: Connection) -> bool:
    """Returns whether the other end of a link, from which no message is expected, is alive as far
    as is known now.
    """
    try:
        return not link.poll()
    except OSError:
        return False


@dataclasses.dataclass(frozen=True)
class Meeting:
    """The group, after all processes have connected.

    Attributes:
      address: HOST:PORT for the coordination service of JAX, which process 0 starts.
      hosts: of each process.
      links: by index: in process 0 to all others, in each other process to process 0.
    """

    address: str
    hosts: Sequence[str]
    links: dict[int, Connection]

    def neighbours(self, member: Member) -> int:
        """Returns how many processes of the group run on the host of this one, itself included."""
        return list(self.hosts).count(self.hosts[member.index])


def meet(member: Member, command: Sequence[str], patience: float = PATIENCE) -> Meeting:
    """Connects this process with all others of the group, waits until they have come, checks that
    all have the same command, and returns the connected group.

    Args:
      member: this process.
      command: its command line without the flags that differ between processes.
      patience: seconds.

    Raises:
      UserError: some do not connect in time, the port is taken, or their commands differ. Raised in
        process 0.
      SystemExit: with code 2, in a process whose error process 0 prints.
    """
    hello = {"attnlab": attnlab.__version__, "process": member.index, "processes": member.count}
    hello |= {"command": list(command), "host": socket.gethostname()}
    connect = _connect_to_first if member.index else _receive_all
    return connect(member, hello, patience)


def _receive_all(member: Member, hello: dict[str, Any], patience: float) -> Meeting:
    """In process 0: accepts connections of all others for `patience` seconds, compares each one's
    hello with its own, `hello`, sends each the coordinator's address and the hosts, and returns the
    `Meeting`; raises `UserError` if one is missing or differs.
    """
    links: dict[int, Connection] = {}
    hellos = {0: hello}
    began, noted, where = time.monotonic(), False, f"{member.host}:{member.port}"
    with _listen(member) as server:
        server.settimeout(_RETRY)
        while len(hellos) < member.count:
            missing = ", ".join(str(index) for index in range(member.count) if index not in hellos)
            waited = time.monotonic() - began
            if waited > patience:
                problem = f"of {member.count} processes these have not come to {where} in"
                raise _refuse_all(links, f"{problem} {patience:.0f} s: {missing}; {ALONE}")
            if waited > _NOTE and not noted:
                line = f"waiting at {where} for process {missing} of {member.count}; {ALONE}"
                print(line, file=sys.stderr, flush=True)
                noted = True
            try:
                link = open_link(server.accept()[0])
            except TimeoutError:
                continue
            other = receive(link, _HELLO)
            if not isinstance(other, dict) or "attnlab" not in other:  # not one of ours
                link.close()
                continue
            for index in [index for index in links if not is_open(links[index])]:
                links.pop(index).close()  # it will be started again
                del hellos[index]
            if mismatch := _mismatch(other, hello, hellos):
                raise _refuse_all({**links, -1: link}, mismatch)
            hellos[other["process"]], links[other["process"]] = other, link
    hosts = [hellos[index]["host"] for index in range(member.count)]
    host = f"[{member.host}]" if ":" in member.host else member.host  # an IPv6 address in brackets
    meeting = Meeting(f"{host}:{_free_port()}", hosts, links)
    for other in links.values():
        send(other, {"address": meeting.address, "hosts": meeting.hosts})
    return meeting


def _connect_to_first(member: Member, hello: dict[str, Any], patience: float) -> Meeting:
    """In every other process: tries to connect to process 0 until it answers this process's
    `hello`, and returns the `Meeting` that it announces; raises `UserError` after `patience`
    seconds, exits with 2 if refused.
    """
    address = member.host, member.port
    deadline, reason = time.monotonic() + patience, "no answer"
    while (seconds := deadline - time.monotonic()) > 0:
        try:
            first = open_link(socket.create_connection(address, min(seconds, 10.0)))
        except OSError as error:
            reason = str(error.strerror or error)
            time.sleep(_RETRY)
            continue
        send(first, hello)
        answer = receive(first, seconds + _HELLO)
        if answer is None:
            first.close()
            time.sleep(_RETRY)
            continue
        if "refused" in answer:
            raise SystemExit(2)  # process 0 has printed why
        return Meeting(answer["address"], answer["hosts"], {0: first})
    where = (
        f"{member}: process 0 was not found at {member.host}:{member.port} in {patience:.0f} s"
        f" ({reason})"
    )
    raise UserError(f"{where}; is it started there, and may this host connect to that port?")


def _listen(member: Member) -> socket.socket:
    """Returns the socket of process 0, which listens at `member.port` on all addresses; raises
    `UserError` if the port cannot be used.
    """
    try:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        place = ("", member.port)
        return socket.create_server(place, family=family, backlog=member.count, dualstack_ipv6=both)
    except OSError as error:
        where = f"process 0 cannot listen on port {member.port}: {error.strerror}"
        raise UserError(
            f"{where}; name another by --coordinator={member.host}:PORT, the same for all processes"
        ) from error


def _mismatch(
    other: dict[str, Any], first: dict[str, Any], hellos: Mapping[int, dict[str, Any]]
) -> str:
    """Returns why a process with the hello `other` does not belong to the group of process 0 (a
    version, count or command unlike its own hello, `first`, or an index that is taken in `hellos`),
    or "" if it does belong.
    """
    who = f"process {other['process']} on {other['host']}"
    if other["attnlab"] != first["attnlab"]:
        return (
            f"{who} runs attnlab {other['attnlab']}, process 0 runs {first['attnlab']}; install the"
            " same everywhere"
        )
    if other["processes"] != first["processes"]:
        return (
            f"{who} was started as one of {other['processes']} processes, process 0 as one of"
            f" {first['processes']}"
        )
    if other["command"] != first["command"]:
        pairs = (other["command"], first["command"]), (first["command"], other["command"])
        extra, missing = (
            " ".join(word for word in a if word not in b) or "nothing more" for a, b in pairs
        )
        return f"{who} was started for something else ({extra}; process 0: {missing}); {ALONE}"
    if taken := hellos.get(other["process"]):
        return (
            f"two processes were started as process {other['process']}, on {taken['host']} and on"
            f" {other['host']}"
        )
    return ""


def _refuse_all(links: Mapping[int, Connection], message: str) -> UserError:
    """Sends the message as a refusal to all connected processes, closes their links, and returns it
    as the `UserError` of process 0.
    """
    for other in links.values():
        send(other, {"refused": message})
        other.close()
    return UserError(message)


def _free_port() -> int:
    """Returns the number of a port that is free now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
