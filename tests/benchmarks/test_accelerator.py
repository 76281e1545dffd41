"""The benchmark of accelerators runs whole on a processor, and says in one line that there is none."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import accelerator
from tests.refusals import check_refused

ALL = pytest.param(list(accelerator.PARTS), marks=pytest.mark.full)


@pytest.mark.parametrize("parts", [["precision", "mixers"], ALL])
def test_every_part_leaves_its_table(
    parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the error of what cannot be measured: a mixer that nobody knows, and cuDNN."""
    monkeypatch.setattr(accelerator, "MIXERS", ("multihead", "nothing"))
    monkeypatch.setattr(
        sys, "argv", ["", "--tiny", f"--out={tmp_path}", "--seconds=900", "--parts", *parts]
    )
    accelerator.main()
    tables = json.loads((tmp_path / "accelerator.json").read_text())["tables"]
    wrong = [row for table in tables.values() for row in table["rows"] if "Error" in str(row)]
    assert list(tables) == parts and len(wrong) == len({"mixers", "attention"} & {*parts})
    assert (tmp_path / "accelerator.md").read_text().count("### ") == len(parts)
    monkeypatch.setattr(sys, "argv", [""])
    check_refused("no accelerator: JAX computes on the processor alone", accelerator.main)
