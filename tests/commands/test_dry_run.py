"""`train --dry-run` says what a run will take, and writes nothing."""

import re
from pathlib import Path

from tests.commands.tiny import arguments, completed


def test_what_a_run_takes(tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    ended = completed([*arguments("rnnsearch", workdir), "--dry-run"])
    lines = dict(line.rsplit("  ", 1) for line in ended.out.splitlines() if "  " in line)
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    parameters = re.findall(r"^(\w+) +([\d,]+)$", ended.out.partition("what it takes")[0], re.M)
    numbers = {name: int(number.replace(",", "")) for name, number in parameters}
    assert numbers.pop("all") == sum(numbers.values())
    for name in ("parameters", "optimizer", "peak, on each device", "FLOPs of a step", "12 steps"):
        assert name in lines, ended.out
    assert lines["largest batch"].startswith("16x")
    assert "only the largest of the first 12 batches" in ended.out
    assert not workdir.exists()
    assert max(map(len, ended.out.splitlines())) <= 100
