"""`train --dry-run` says what a run will take, and writes nothing."""

from __future__ import annotations

from pathlib import Path

from tests.commands.tiny import arguments, refused, run_command


def test_what_a_run_takes(tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    ended = run_command([*arguments("rnnsearch", workdir), "--dry-run"])
    assert ended.code == 0, ended.err
    lines = dict(line.rsplit("  ", 1) for line in ended.out.splitlines() if "  " in line)
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    numbers = {name: value for name, value in lines.items() if value.isdigit()}
    assert int(numbers.pop("all")) == sum(map(int, numbers.values()))
    for name in ("peak of the program", "FLOPs of such a step", "a step", "12 steps"):
        assert name in lines, ended.out
    assert lines["batches"].startswith("source 16x")
    assert "only the largest of the first 12 batches" in ended.out
    assert not workdir.exists()
    assert max(map(len, ended.out.splitlines())) <= 170


def test_a_wrong_config_is_refused(tmp_path: Path) -> None:
    words = arguments("rnnsearch", tmp_path / "run", "optimizer.lr=1")
    assert "did you mean 'schedule.peak'" in refused(*words, "--dry-run")
