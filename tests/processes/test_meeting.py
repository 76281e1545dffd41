"""Processes meet: in any order, again after a restart, and only those that were started for the
same thing. Threads stand for them.
"""

import concurrent.futures
import socket
import time
from typing import Any

import pytest

import attnlab
from attnlab.errors import UserError
from attnlab.processes import Member, meeting
from attnlab.processes.meeting import Meeting, is_open, meet, open_link, receive, send

WHO, ONE = "process 1 on .* was started", "--processes=1"
ELSE = f"{WHO} for something else"


def port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def met(*members: tuple[Member, list[str], float], patience: float = 20.0) -> list[Any]:
    """What each of several processes finds that come after so many seconds: a meeting or an
    error.
    """

    def one(member: Member, command: list[str], seconds: float) -> Any:
        time.sleep(seconds)
        try:
            return meet(member, command, patience)
        except (UserError, SystemExit) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(len(members)) as pool:
        return [future.result(30) for future in [pool.submit(one, *member) for member in members]]


def member(index: int, count: int, where: int) -> Member:
    return Member("localhost", where, count, index)


def test_all_learn_the_same_and_notice_an_end() -> None:
    """Whoever comes first; a stranger at the port disturbs nobody; what is sent arrives; a closed
    end is seen.
    """
    where = port()
    late = [(member(index, 3, where), ["train"], 0.3 * (2 - index)) for index in range(3)]
    first, second, third = met(*late)
    assert all(isinstance(meeting, Meeting) for meeting in (first, second, third))
    assert first.address == second.address == third.address
    assert first.address.startswith("localhost:")
    assert first.hosts == second.hosts == [socket.gethostname()] * 3
    assert first.neighbours(late[0][0]) == 3
    assert sorted(first.links) == [1, 2] and sorted(second.links) == sorted(third.links) == [0]
    send(second.links[0], {"a": [1, "ü"]})
    assert receive(first.links[1], 5) == {"a": [1, "ü"]} and is_open(first.links[2])
    third.links[0].close()
    assert receive(first.links[2], 5) is None and not is_open(first.links[2])


def test_strangers_and_those_that_start_again_do_not_disturb() -> None:
    where = port()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(meet, member(0, 3, where), ["train"], 20.0)
        while True:
            try:
                stranger = socket.create_connection(("localhost", where))
                break
            except OSError:
                time.sleep(0.02)
        stranger.sendall(
            b"GET "
        )  # as much as is read of it: the rest would make a reset of the end
        assert stranger.recv(10) == b""
        dead = open_link(socket.create_connection(("localhost", where)))
        hello = {"attnlab": attnlab.__version__, "process": 1, "processes": 3, "host": "here"}
        send(dead, {**hello, "command": ["train"]})
        time.sleep(0.2)
        dead.close()
        others = met(*[(member(index, 3, where), ["train"], 0.2) for index in (1, 2)])
        assert all(isinstance(meeting, Meeting) for meeting in others)
        assert waiting.result(10).address == others[0].address


@pytest.mark.parametrize(
    ("other", "command", "words"),
    [
        (
            (1, 2),
            ["train", "--workdir=b"],
            rf"{ELSE} \(--workdir=b; process 0: --workdir=a\); {ONE}",
        ),
        ((1, 2), ["train"], rf"{ELSE} \(nothing more; process 0: --workdir=a\); {ONE}"),
        ((1, 3), ["train", "--workdir=a"], f"{WHO} as one of 3 processes, process 0 as one of 2"),
    ],
)
def test_processes_for_something_else_are_refused(
    other: tuple[int, int], command: list[str], words: str
) -> None:
    """Process 0 says why, and the other one says nothing more."""
    where = port()
    first, second = met(
        (member(0, 2, where), ["train", "--workdir=a"], 0.0), (member(*other, where), command, 0.0)
    )
    assert isinstance(first, UserError) and isinstance(second, SystemExit) and second.code == 2
    with pytest.raises(UserError, match=words):
        raise first


def test_another_version_and_another_of_the_same_number_are_refused() -> None:
    where = port()
    arrivals = ((0, 0.0), (1, 0.1), (1, 0.2))
    first, *others = met(*[(member(index, 3, where), ["train"], late) for index, late in arrivals])
    assert "two processes were started as process 1" in str(first)
    assert all(isinstance(error, SystemExit) for error in others)
    hello = {"attnlab": "0.0", "process": 1, "processes": 2, "command": [], "host": "there"}
    words = "process 1 on there runs attnlab 0.0"
    assert words in meeting._mismatch(hello, {**hello, "attnlab": "1.0", "process": 0}, {})


def test_nobody_waits_for_ever(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process 0 says who has not come; the others that they did not find it; a port in use is
    named.
    """
    monkeypatch.setattr(meeting, "_NOTE", 0.1)
    where = port()
    (first,) = met((member(0, 3, where), [], 0.0), patience=0.5)
    words = f"of 3 processes these have not come to localhost:{where} in"
    assert any(f"{words} {seconds} s: 1, 2" in str(first) for seconds in (0, 1))
    words = f"waiting at localhost:{where} for process 1, 2 of 3; --processes=1"
    assert words in capsys.readouterr().err
    (second,) = met((member(1, 2, where), [], 0.0), patience=0.5)
    assert f"process 1 of 2: process 0 was not found at localhost:{where}" in str(second)
    assert "refused" in str(second)
    with socket.create_server(("", where)):
        (third,) = met((member(0, 2, where), [], 0.0), patience=0.5)
    assert f"process 0 cannot listen on port {where}" in str(third)
    assert "--coordinator=localhost:PORT" in str(third)
