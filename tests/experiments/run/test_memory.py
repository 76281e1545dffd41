"""The kernel's count of kills for lack of memory."""

from pathlib import Path

import pytest

from attnlab.experiments.run import memory


def test_all_counters_that_can_be_read_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("memory.events", "memory.oom_control", "vmstat")]
    monkeypatch.setattr(memory, "COUNTERS", paths)
    assert memory.kills() is None
    paths[0].write_text("low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert memory.kills() == 2
    paths[1].write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    paths[2].write_text("nr_free_pages 17\noom_kill soon\n")  # of a system that answers otherwise
    assert memory.kills() == 7
