"""A model card has the results with intervals, for people and for the Hub, and the command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import yaml

from tests.commands.tiny import run_command


def test_the_card_of_a_run(searched: Path, tmp_path: Path) -> None:
    command = ["export", str(searched), "--to=card", f"--out={tmp_path}"]
    assert run_command(command).code == 0
    text = (tmp_path / "README.md").read_text()
    head = yaml.safe_load(text.split("---\n")[1])
    (measured,) = head["model-index"][0]["results"]
    results = json.loads((searched / "results.json").read_text())
    values = {entry["type"]: entry["value"] for entry in measured["metrics"]}
    assert values["loss"] == results["loss"] and "decoding_seconds" not in values
    assert measured["dataset"]["split"] == "test" and measured["task"]["type"] == "translation"
    row = re.search(r"\| loss \| (\S+) \| (\S+) to (\S+) \|", text)
    assert row is not None and float(row[2]) < float(row[1]) < float(row[3])
    manifest = json.loads((searched / "manifest.json").read_text())
    assert text.endswith(shlex.join(manifest["command"]) + "\n")
    again = run_command(command)
    assert again.code == 2 and "README.md is there" in again.err
    nothing = run_command(["export", str(tmp_path), "--to=card"])
    assert nothing.code == 2 and "holds no run with scores" in nothing.err
