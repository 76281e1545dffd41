"""`train --dry-run` says what a run will take, and writes nothing."""

from pathlib import Path

from tests.commands.tiny import arguments, completed, refused


def test_what_a_run_takes(tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    ended = completed([*arguments("rnnsearch", workdir), "--dry-run"])
    lines = dict(line.rsplit("  ", 1) for line in ended.out.splitlines() if "  " in line)
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    sizes = {name: value.replace(",", "") for name, value in lines.items()}
    numbers = {name: int(value) for name, value in sizes.items() if value.isdigit()}
    assert numbers.pop("all") == sum(numbers.values())
    for name in ("parameters", "optimizer", "peak, on each device", "FLOPs of a step", "12 steps"):
        assert name in lines, ended.out
    assert lines["largest batch"].startswith("16x")
    assert "only the largest of the first 12 batches" in ended.out
    assert not workdir.exists()
    assert max(map(len, ended.out.splitlines())) <= 100


def test_a_wrong_config_is_refused(tmp_path: Path) -> None:
    words = arguments("rnnsearch", tmp_path / "run", "optimizer.lr=1")
    assert "did you mean 'schedule.peak'" in refused(*words, "--dry-run")
