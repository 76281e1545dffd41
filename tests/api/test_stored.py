"""Which folder is a trained run, and which config it has."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from attnlab import config as configs
from attnlab.api.stored import Stored
from attnlab.errors import UserError
from attnlab.records import provenance
from attnlab.records.manifest import Manifest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder that has a manifest and nothing else."""
    config = configs.load("configs/translation.py:rnnsearch", ["training.steps=7"])
    folder = tmp_path / "run"
    folder.mkdir()
    Manifest.build(config, devices={}, data={}, command=[]).write(folder)
    return folder


@pytest.mark.quick
def test_the_stored_config_with_overrides_of_its_use(run: Path) -> None:
    found = Stored.find(run, ["decoding.beam=9", "parallel.devices=2", "data.test=5"])
    config = found.config
    assert found.workdir == run and (
        config.decoding.beam,
        config.parallel.devices,
        config.data.test,
        config.training.steps,
    ) == (9, 2, 5, 7)
    assert Stored.find(run).config == configs.load(
        "configs/translation.py:rnnsearch", ["training.steps=7"]
    )  # tuples and all, through JSON
    same = Stored.find(
        run, ["training.steps=7", "decoding.beam=2"], "configs/translation.py:rnnsearch"
    )
    assert same.config.decoding.beam == 2


def test_a_member_of_an_ensemble_has_its_test_split_closed_as_alone(
    run: Path, tmp_path: Path
) -> None:
    """Also where the run that it joins is nobody's trial."""
    trial = tmp_path / "sweep" / "trials" / "general-0a1b2c3d" / "seed0"
    shutil.copytree(run, trial)
    (tmp_path / "sweep" / "plan.json").write_text("{}")
    stored = Stored.find(run, ensemble=[trial])
    stored.check_splits(["train", "valid"])
    with pytest.raises(
        UserError, match=f"{trial} is a trial of the sweep .* its test split stays closed"
    ):
        stored.check_splits(["valid", "test"])
    Stored.find(run).check_splits(["test"])


def test_other_data_needs_no_source_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the source need not even be there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "own_lines.py"
    source.write_text("class Lines:\n    pass\n")
    config = {
        **configs.to_dict(configs.load("configs/translation.py:rnnsearch")),
        "data": {"name": "own_lines:Lines"},
    }
    (tmp_path / "run").mkdir()
    Manifest.build(config, devices={}, data={}, own_code=provenance.of(config).record()).write(
        tmp_path / "run"
    )
    source.unlink()
    with pytest.raises(UserError, match=r"own_lines\.py is gone"):
        Stored.find(tmp_path / "run")
    stored = Stored.find(tmp_path / "run", ["data=dates"])
    assert (
        stored.config.data.name == "dates" and stored.notes() == [] and stored.changed_code() == {}
    )


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
    config = {
        **configs.to_dict(configs.load("configs/translation.py:rnnsearch")),
        "data": {"name": "own_limit:Own"},
    }
    (tmp_path / "run").mkdir()
    Manifest.build(config, devices={}, data={}, own_code=provenance.of(config).record()).write(
        tmp_path / "run"
    )
    stored = Stored.find(tmp_path / "run")
    own_limit = importlib.import_module("own_limit")
    stored.remember_imports()
    file.write_text(OWN.format(22))
    for accept in (False, True):
        with pytest.raises(
            UserError,
            match=r"own_limit\.py is not what it was when this process imported it; restart Python",
        ):
            Stored.find(tmp_path / "run", accept_changed_code=accept)
    importlib.reload(own_limit)
    assert own_limit.LIMIT == 22 and {
        *Stored.find(tmp_path / "run", accept_changed_code=True).changed_code()
    } == {"own_limit"}
    file.write_text(OWN.format(1))
    with pytest.raises(UserError, match="restart Python, or reload own_limit"):
        Stored.find(tmp_path / "run")
    del sys.modules["own_limit"]
    Stored.find(tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "config", "words"),
    [
        (
            ["training.steps=8"],
            None,
            (
                "config.training.steps cannot change after training; these can: data.*, decoding.*,"
                " parallel.*"
            ),
        ),
        (
            ["system.attention=multihead"],
            None,
            "config.system.attention cannot change after training",
        ),
        (
            ["decoding.bean=2"],
            None,
            "config.decoding.bean: no such key; did you mean 'decoding.beam'",
        ),
        (
            [],
            "configs/translation.py:rnnsearch",
            "holds another config: training.steps: saved 7, wanted",
        ),
    ],
)
def test_another_model_is_refused(
    overrides: list[str], config: str | None, words: str, run: Path
) -> None:
    with pytest.raises(UserError, match=words.replace("*", r"\*")):
        Stored.find(run, overrides, config)
