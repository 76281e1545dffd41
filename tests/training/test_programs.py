"""Kept programs take no more room than they may; what is counted is in `test_arguments.py`."""

import os
import threading
from pathlib import Path

import jax

from attnlab.training import programs
from attnlab.training.programs import shrink


def test_what_was_not_read_for_longest_goes_first(tmp_path: Path) -> None:
    for number, read in enumerate((2000.0, 1000.0, 1001.0, 1002.0)):
        (tmp_path / str(number)).write_bytes(bytes(100))
        os.utime(tmp_path / str(number), (read, 900.0))
    for most, left in ((400, "0123"), (300, "03")):
        shrink(tmp_path, most)
        assert sorted(path.name for path in tmp_path.iterdir()) == [*left]


def test_whoever_waits_knows_that_a_program_is_compiled() -> None:
    programs.count()
    counting = threading.Thread(target=lambda: jax.jit(lambda x: x - 1).lower(1.0))  # no compiling
    counting.start()
    counting.join()
    lowered = jax.jit(lambda x: 3 * x + 1).lower(1.0)
    assert programs.under_way.value == 1
    assert lowered.compile()(1.0) == 4 and programs.under_way.value == 0
