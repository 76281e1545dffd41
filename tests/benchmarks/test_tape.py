"""The benchmark of the tape measures what it says: programs that differ in what they keep."""

import pytest

from benchmarks import tape


@pytest.mark.full
def test_keeping_every_tape_takes_more_room() -> None:
    steps, every, once, ratio, lstm, *room = tape.measure(8, 48, 8, enough=0.0)
    assert steps == 48 and min(every, once, lstm) > 0 and ratio > 0
    assert room[0] > 4 * room[1] > 0
