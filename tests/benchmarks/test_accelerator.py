"""The benchmark of accelerators runs whole on a processor, and says in one line that there is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import accelerator, rounds


@pytest.mark.parametrize(
    "parts",
    [["precision", "mixers"], pytest.param(list(accelerator.PARTS), marks=pytest.mark.full)],
)
def test_every_part_leaves_its_table(
    parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that fails leaves its error; cuDNN alone is not there."""
    monkeypatch.setattr(accelerator, "MIXERS", ("multihead", "nothing"))
    arguments = ["accelerator", "--tiny", f"--out={tmp_path}", "--parts", *parts]
    monkeypatch.setattr(sys, "argv", arguments)
    accelerator.main()
    tables = json.loads((tmp_path / "accelerator.json").read_text())["tables"]
    assert list(tables) == parts
    cells = [str(cell) for table in tables.values() for row in table["rows"] for cell in row]
    wrong = [cell for cell in cells if "Error" in cell]
    assert all("unknown" in one or "cuDNN" in one for one in wrong) and len(wrong) <= 2
    assert (tmp_path / "accelerator.md").read_text().count("### ") == len(parts)


def test_without_an_accelerator_it_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["accelerator"])
    with pytest.raises(SystemExit, match="2"):
        rounds.main(accelerator.main)
    assert capsys.readouterr().err.startswith(
        "error: no accelerator: JAX computes on the processor"
    )
