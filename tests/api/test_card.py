"""A model card has the results with intervals, for people and for the Hub, and the command."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from attnlab.api.card import write_card
from tests.commands.tiny import refused, run_command


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
    assert "README.md is there" in refused(*command)
    assert "holds no run with scores" in refused("export", str(tmp_path), "--to=card")


@pytest.mark.parametrize(
    "command",
    [
        ["/a b/launch.py", "train", "--config=c.py"],
        ["/bin/attnlab", "continue", "a"],
        ["launch.py", "sweep", "--dir=s"],
        ["/lib/ipykernel_launcher.py", "-f", "train"],
        ["-c"],
        [],
    ],
)
def test_a_trial_has_its_name_and_a_command_that_is_its_own(
    command: list[str], searched: Path, tmp_path: Path
) -> None:
    """That of a sweep, a notebook or Python trains something else; `verify` trains it again."""
    trial = tmp_path / "sums" / "trials" / "add" / "seed0"
    shutil.copytree(searched, trial, ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "sums" / "plan.json").touch()
    manifest = json.loads((trial / "manifest.json").read_text())
    (trial / "manifest.json").write_text(json.dumps(manifest | {"command": command}))
    text = write_card(trial, tmp_path / "card").read_text()
    assert "\n# sums/add/seed0\n" in text
    ours = command[1:2] in (["train"], ["continue"])
    again = ["launch.py", "verify", str(trial)]
    python = "" if command[:1] == ["/bin/attnlab"] else "python "
    python = python if ours else f"NPROC={manifest['devices']['cores']} python "
    assert text.endswith(f"    {python}{shlex.join(command if ours else again)}\n")
    assert ("This command\nhas trained it, and `verify`" in text) == ours
