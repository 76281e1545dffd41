"""`compare DIR DIR`: tables on the terminal and in a file, mistakes in one line."""

from pathlib import Path

import pytest

from tests.commands.tiny import run_command
from tests.experiments.synthetic import sweep


@pytest.mark.quick
def test_compare_prints_and_writes(tmp_path: Path) -> None:
    first = sweep(tmp_path / "first", {"a": (0.9, 0.8)})
    second = sweep(tmp_path / "second", {"a": (0.95, 0.8)}, seeds=[0, 1])
    before = set(tmp_path.rglob("*"))
    printed = run_command(["compare", str(first), str(second)]).out
    assert "exact on the test split, higher is better" in printed
    assert "0.8500" in printed
    assert f"A: {first} (made)." in printed
    assert "Nothing on record differs but the numbers." in printed
    assert set(tmp_path.rglob("*")) == before
    for name, words in (("both.md", "## What differs between the two"), ("both.csv", "a,2,0.85")):
        run_command(["compare", str(first), str(second), f"--out={tmp_path / name}"])
        assert words in (tmp_path / name).read_text()
