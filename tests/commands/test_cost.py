"""`cost` prints a table and writes three files, and refuses a mistake in one line."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.analysis import costs
from tests.commands.tiny import refused, run_command

SMALL = ("cost", "--width=8", "--lengths=8,4")


def counted(name: str, module: Any, length: int, **how: Any) -> costs.Point:
    """A program whose time was not measured: that grows with its length."""
    return costs.Point(name, length, parameters=9, flops=1e3, bytes=10, seconds=1e-3 * length)


def test_a_table_and_three_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured, and how, is held by tests/api/test_costs.py."""
    monkeypatch.setattr("attnlab.api.costs.measured", counted)
    flags = ["--mechanisms=convolution", "--set=multihead.heads=2", "--forward"]
    found = run_command([*SMALL, *flags, f"--dir={tmp_path}"])
    assert found.code == 0 and "faster from" in found.out and "k T d^2" in found.out
    record = json.loads((tmp_path / "costs.json").read_text())
    points = [(point["name"], point["length"]) for point in record["points"]]
    assert points == list(itertools.product(("multihead", "convolution"), (4, 8)))
    assert record["set"] == ["multihead.heads=2"] and not record["backward"]
    assert (tmp_path / "costs.csv").exists() and (tmp_path / "costs.png").exists()


def test_nothing_measurable_is_said_of_each(tmp_path: Path) -> None:
    flags = ["--mechanisms=multihead", "--memory=0", "--lengths=4", f"--dir={tmp_path}"]
    found = run_command(["cost", "--width=8", *flags, "--set=multihead.heads=" + "1" * 400])
    assert found.code == 2 and "Traceback" not in found.out
    for heads, why in ((1, "its program takes"), (3, "multihead: width=8 is not divisible")):
        found = run_command(["cost", "--width=8", f"--set=multihead.heads={heads}", *flags])
        assert found.code == 0 and f"multihead: not run with 4 tokens: {why}" in found.out
        assert json.loads((tmp_path / "costs.json").read_text())["points"][0]["seconds"] is None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--mechanisms=multihaed"], "multihaed"),
        (["--mechanisms=single", "--lengths=4,x"], "--lengths=4,x: expected whole numbers"),
        (["--mechanisms=single", "--set=x.heads=2"], "expected NAME.FIELD=VALUE"),
        (["--mechanisms=recurrent", "--direction=bidirectional"], "recurrent is causal only"),
        (["--mechanisms=single", "--set=single.heads=2"], "heads"),
    ],
)
def test_a_mistake_is_one_line(flags: list[str], told: str, tmp_path: Path) -> None:
    assert told in refused("cost", *flags, f"--dir={tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()
