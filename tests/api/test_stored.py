"""A stored run has the config that it was trained with, and refuses to become another model. A model
card has the results with intervals, for people and for the Hub, and the command.
"""

import importlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from attnlab import config as configs
from attnlab.api.stored import Stored, write_card
from attnlab.errors import UserError
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from tests.commands.tiny import refused, run_command

RNNSEARCH = "configs/translation.py:rnnsearch"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder that has a manifest and nothing else."""
    folder = tmp_path / "run"
    folder.mkdir()
    config = configs.load(RNNSEARCH, ["training.steps=7"])
    Manifest.build(config, devices={}, data={}, command=[]).write(folder)
    return folder


def of_own_code(folder: Path, data: str) -> Path:
    """A run whose data source is code of the user's."""
    config = {**configs.to_dict(configs.load(RNNSEARCH)), "data": {"name": data}}
    folder.mkdir()
    code = provenance.code(config).record()
    Manifest.build(config, devices={}, data={}, own_code=code).write(folder)
    return folder


@pytest.mark.quick
def test_the_stored_config_with_overrides_of_its_use(run: Path) -> None:
    stored = Stored.find(run, ["decoding.beam=9", "parallel.devices=2", "data.test=5"])
    config = stored.config
    assert stored.workdir == run and (config.data.test, config.training.steps) == (5, 7)
    assert (config.decoding.beam, config.parallel.devices) == (9, 2)
    trained = configs.load(RNNSEARCH, ["training.steps=7"])
    assert Stored.find(run).config == trained  # tuples and all, through JSON
    same = Stored.find(run, ["training.steps=7", "decoding.beam=2"], RNNSEARCH)
    assert same.config.decoding.beam == 2


def test_a_member_of_an_ensemble_has_its_test_closed_as_alone(run: Path, tmp_path: Path) -> None:
    """Also where the run that it joins is nobody's trial."""
    trial = tmp_path / "sweep" / "trials" / "general-0a1b2c3d" / "seed0"
    shutil.copytree(run, trial)
    (tmp_path / "sweep" / "plan.json").write_text("{}")
    stored = Stored.find(run, ensemble=[trial])
    stored.check_splits(["train", "valid"])
    words = f"{trial} is a trial of the sweep .* its test split stays closed"
    with pytest.raises(UserError, match=words):
        stored.check_splits(["valid", "test"])
    Stored.find(run).check_splits(["test"])


def test_other_data_needs_no_own_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the source need not even be there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "own_lines.py"
    source.write_text("class Lines:\n    pass\n")
    run = of_own_code(tmp_path / "run", "own_lines:Lines")
    source.unlink()
    with pytest.raises(UserError, match=r"own_lines\.py is gone"):
        Stored.find(run)
    stored = Stored.find(run, ["data=dates"])
    assert stored.config.data.name == "dates"
    assert stored.notes() == [] and stored.changed_code() == {}


OWN = "LIMIT = {}\n\n\nclass Own:\n    pass\n"
"""A data source of a user's."""


def test_a_module_that_is_edited_after_its_import_is_refused_until_it_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file says: the module in memory would compute."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "own_limit.py"
    file.write_text(OWN.format(1))
    run = of_own_code(tmp_path / "run", "own_limit:Own")
    stored = Stored.find(run)
    own_limit = importlib.import_module("own_limit")
    stored.remember_imports()
    file.write_text(OWN.format(22))
    words = r"own_limit\.py is not what it was when this process imported it; restart Python"
    for accept in (False, True):
        with pytest.raises(UserError, match=words):
            Stored.find(run, accept_changed_code=accept)
    importlib.reload(own_limit)
    assert own_limit.LIMIT == 22
    assert {*Stored.find(run, accept_changed_code=True).changed_code()} == {"own_limit"}
    file.write_text(OWN.format(1))
    with pytest.raises(UserError, match="restart Python, or reload own_limit"):
        Stored.find(run)
    del sys.modules["own_limit"]
    Stored.find(run)


@pytest.mark.parametrize(
    ("overrides", "config", "words"),
    [
        (["training.steps=8"], None, r"steps cannot change .*; these can: data.\*, decoding"),
        (["system.attention=multihead"], None, "config.system.attention cannot change after"),
        (["decoding.bean=2"], None, "decoding.bean: no such key; did you mean 'decoding.beam'"),
        ([], RNNSEARCH, "config: schedule.warmup: saved 0, wanted 100; training.steps: saved 7"),
    ],
)
def test_another_model(overrides: list[str], config: str | None, words: str, run: Path) -> None:
    with pytest.raises(UserError, match=words):
        Stored.find(run, overrides, config)


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
