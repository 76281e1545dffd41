"""A run whose code, data or vocabulary is no longer what it was made from is noticed by every command,
which goes on only where it is told to.
"""

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlab.config import config_hash
from attnlab.data.vocabulary import Vocabulary
from attnlab.records.manifest import Manifest
from tests.commands.tiny import CommandResult, on_files, refused, run_command

MINE = '''
"""Additive attention, blunted."""

import jax.numpy as jnp
from flax import linen as nn

from attnlab.attention.protocol import Attention
from attnlab.attention.mechanisms.single import Single
from blunt import BY


class Mine(Single):
    """Reads with a query that is made smaller."""

    def read(self, query, memory, visibility):
        return super().read(query * BY, memory, visibility)
'''
SETTINGS = '''
"""A small system with a mechanism of my own, on files."""

from attnlab.config import load


def get_config(argument=""):
    return load("configs/translation.py:rnnsearch", {overrides!r})
'''


def forget() -> None:
    """Nothing of the user's is imported yet."""
    for name in ("mine", "blunt"):
        sys.modules.pop(name, None)


class Folder:
    """A user's folder: where they stand, with a run in it."""

    def __init__(self, path: Path) -> None:
        self.path, self.run = path, path / "run"
        self.train = ["train", "--config=settings.py", "--workdir=run"]
        self.train.append("--config.parallel.devices=1")

    def call(self, *argv: str, stdin: str = "") -> CommandResult:
        """A command, as a process of its own would see the folder."""
        forget()
        return run_command([*argv], stdin)

    def whole(self, command: list[str]) -> list[str]:
        """A command with the flags that name the run."""
        if command == ["train"]:
            return self.train
        return [*command, "run" if command == ["verify"] else "--workdir=run"]

    def refused(self, *argv: str) -> str:
        """The one line of a command that ends with 2."""
        forget()
        return refused(*argv, stdin="a\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of a mechanism of the user's."""
    path = tmp_path_factory.mktemp("user")
    (path / "mine.py").write_text(MINE)
    (path / "blunt.py").write_text("BY = 0.5\n")
    settings = on_files(path / "data", "data", train=64, valid=8, test=4)
    settings.append("system.attention=mine:Mine")
    (path / "settings.py").write_text(SETTINGS.format(overrides=settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setattr(sys, "path", [one for one in sys.path if one])
        ended = Folder(path).call(*Folder(path).train)
    assert ended.code == 0, ended.err
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A copy of it to be changed; the test stands there."""
    shutil.copytree(made, tmp_path / "user")
    monkeypatch.chdir(tmp_path / "user")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    yield Folder(tmp_path / "user")
    forget()


USES = [["evaluate"], ["generate"], ["inspect", "--source=de 1"], ["evaluate", "--ensemble=other"]]


def test_a_run_holds_the_code_it_was_made_with(folder: Folder) -> None:
    manifest = json.loads((folder.run / "manifest.json").read_text())
    assert {*manifest["own_code"]["modules"]} == {"mine", "blunt"}
    assert manifest["own_code"]["accepted"] == []
    for name in ("mine.py", "blunt.py"):
        assert (folder.run / "code" / name).read_bytes() == (folder.path / name).read_bytes()
    assert (folder.run / "code" / "config-file" / "settings.py").read_bytes() == (
        folder.path / "settings.py"
    ).read_bytes()


@pytest.mark.parametrize("command", [*USES, ["verify"], ["train"]], ids=" ".join)
def test_changed_code_and_another_vocabulary_are_refused(
    command: list[str], folder: Folder
) -> None:
    """Code of a module which the named one imports; the line names the file and where the old one
    is. A vocabulary of equal settings is a valid file, only not the one of the parameters.
    """
    shutil.copytree(folder.run, "other")
    (folder.path / "blunt.py").write_text("BY = 0.25\n")
    before = (folder.run / "manifest.json").read_bytes()
    line = folder.refused(*folder.whole(command))
    words = "run was made with other code: blunt.py has changed (as it was: run/code/blunt.py)"
    assert words in line
    assert "--accept-changed-code" in line and (folder.run / "manifest.json").read_bytes() == before
    (folder.path / "blunt.py").write_text("BY = 0.5\n")
    where = Path("other" if "--ensemble=other" in command else "run") / "vocabulary" / "shared.json"
    texts = [f"en de {number} sdrow" for number in range(90, 10, -1)]
    Vocabulary.train(texts, **Vocabulary.load(where).settings).save(where)
    line = folder.refused(*folder.whole(command))
    assert f"{where} is not the one that this run was trained with" in line


def test_a_member_of_an_ensemble_is_looked_at_too(folder: Folder) -> None:
    """The run itself was made with today's code, the other one was not."""
    shutil.copytree(folder.run, "other")
    path = Path("other/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["own_code"]["modules"]["mine"]["sha256"] = "0" * 64
    path.write_text(json.dumps(manifest))
    words = "other was made with other code: mine.py has changed"
    assert words in folder.refused("evaluate", "--workdir=run", "--ensemble=other")


@pytest.mark.full
def test_evaluate_with_other_code_says_so_beside_the_numbers(folder: Folder) -> None:
    was = json.loads(folder.call("evaluate", "--workdir=run", "--json").out)
    assert "changed_code" not in was
    (folder.path / "blunt.py").write_text("BY = 40.0\n")
    ended = folder.call("evaluate", "--workdir=run", "--json", "--accept-changed-code")
    now = json.loads(ended.out)
    assert ended.code == 0 and now["loss"] != was["loss"] and {*now["changed_code"]} == {"blunt"}
    assert len(now["changed_code"]["blunt"]["was"]) == 12
    assert "note: going on with other code" in ended.err
    assert "blunt.py" in ended.err


@pytest.mark.full
def test_a_run_that_goes_on_with_other_code_holds_both(folder: Folder) -> None:
    """After that it needs no flag any more, but whatever is made of it says that its first steps
    had other code.
    """
    shutil.rmtree(folder.run / "checkpoints" / "12")
    (folder.path / "blunt.py").write_text("BY = 0.25\n")
    ended = folder.call(*folder.train, "--accept-changed-code")
    assert ended.code == 0, ended.err
    own = json.loads((folder.run / "manifest.json").read_text())["own_code"]
    (word,) = own["accepted"]
    assert word["step"] == 8 and {*word["changed"]} == {"blunt"} and word["by"]
    assert (folder.run / "code" / "blunt.py").read_text() == "BY = 0.5\n"
    assert (folder.run / "code" / "accepted-1" / "blunt.py").read_text() == "BY = 0.25\n"
    again = folder.call("evaluate", "--workdir=run", "--split=valid", "--json")
    assert again.code == 0 and "note: run went on after step 8 with other code (blunt)" in again.err
    change = {key: word["changed"]["blunt"][key][:12] for key in ("was", "now")}
    change |= {"after_steps": [8]}
    for printed in (again.out, (folder.run / "results.json").read_text()):
        assert json.loads(printed)["changed_code"] == {"blunt": change}


@pytest.mark.full
def test_a_finished_run_is_reported_with_other_code_but_holds_none_of_it(folder: Folder) -> None:
    """No step is trained with it."""
    (folder.path / "blunt.py").write_text("BY = 0.25\n")
    before = (folder.run / "manifest.json").read_bytes()
    assert folder.call(*folder.train, "--accept-changed-code").code == 0
    assert (folder.run / "manifest.json").read_bytes() == before
    assert {*json.loads((folder.run / "results.json").read_text())["changed_code"]} == {"blunt"}
    assert "blunt.py has changed" in folder.refused("evaluate", "--workdir=run")


@pytest.mark.full
def test_code_that_is_edited_after_its_import_is_not_in_the_numbers(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was imported before."""
    from attnlab.training import run

    def early(self: run.Run, *given: object) -> object:
        (folder.path / "blunt.py").write_text("BY = 0.25\n")
        return fit(self, *given)

    fit = run.Run.fit
    monkeypatch.setattr(run.Run, "fit", early)
    assert folder.call(*folder.train).code == 0
    assert (folder.path / "blunt.py").read_text() == "BY = 0.25\n"
    assert "changed_code" not in json.loads((folder.run / "results.json").read_text())


@pytest.mark.full
def test_code_that_has_trained_nothing_yet_is_simply_replaced(folder: Folder) -> None:
    """As after an error in the first step, which is mended."""
    shutil.rmtree(folder.run / "checkpoints")
    (folder.path / "blunt.py").write_text("BY = 0.25\n")
    assert folder.call(*folder.train).code == 0
    own = json.loads((folder.run / "manifest.json").read_text())["own_code"]
    assert own["accepted"] == [] and (folder.run / "code" / "blunt.py").read_text() == "BY = 0.25\n"


def test_a_file_that_is_gone_is_found_in_the_run(
    made: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not gone while it lies where the run was made, only out of reach."""
    (folder.path / "mine.py").unlink()
    line = folder.refused("evaluate", "--workdir=run")
    assert f"{made / 'mine.py'} cannot be imported from here (as it was: run/code/mine.py)" in line
    assert "add it to PYTHONPATH" in line
    manifest = folder.run / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(made), str(folder.path)))
    words = "mine.py is gone (as it was: run/code/mine.py)"
    assert words in folder.refused("evaluate", "--workdir=run")
    monkeypatch.syspath_prepend(str(folder.run / "code"))
    assert folder.call("evaluate", "--workdir=run", "--split=valid").code == 0


@pytest.mark.full
def test_an_old_run_is_used_with_a_note_and_a_new_docstring_with_another(folder: Folder) -> None:
    (folder.path / "settings.py").write_text(
        (folder.path / "settings.py").read_text().replace("A small system", "A tiny system")
    )
    ended = folder.call(*folder.train)
    assert ended.code == 0
    assert "settings.py has changed since run was begun, but its settings have not" in ended.err
    manifest = json.loads((folder.run / "manifest.json").read_text())
    for name in ("own_code", "vocabulary"):
        del manifest[name]
    (folder.run / "manifest.json").write_text(json.dumps(manifest))
    (folder.path / "blunt.py").write_text("BY = 0.25\n")
    ended = folder.call("evaluate", "--workdir=run", "--split=valid")
    assert ended.code == 0
    assert "note: run does not say what code it was made with" in ended.err
    assert ended.err.count("\n") == 1


def changed_data(folder: Folder) -> str:
    """Another test split in the place of the old one, which is in `new`; what is said of it."""
    shutil.copytree("data", "new")
    for side in ("de", "en"):
        (folder.path / "data" / f"test.{side}").write_text(
            "".join(f"{side} {number} words\n" for number in range(4, 8))
        )
    return "the data of workdir run has changed since it began (split test)"


def test_data_that_changed_in_place_is_refused(folder: Folder) -> None:
    words = changed_data(folder)
    assert words in folder.refused("evaluate", "--workdir=run")
    assert words in folder.refused("evaluate", "--workdir=run", "--config.data.directory=data")
    manifest = Manifest.read("run")
    del manifest.config["data"]["test"]  # a setting that an older run does not have
    older = dataclasses.replace(manifest, config_hash=config_hash(manifest.config))
    older.write("run")
    assert words in folder.refused("evaluate", "--workdir=run")
    (folder.path / "data" / "valid.de").write_text("de\n" * 8)
    assert "(split valid)" in folder.refused("verify", "run")


@pytest.mark.full
def test_data_that_has_not_changed_or_is_named_is_taken(folder: Folder) -> None:
    changed_data(folder)
    assert folder.call("evaluate", "--workdir=run", "--split=valid").code == 0
    assert folder.call("evaluate", "--workdir=run", "--config.data.directory=new").code == 0
    assert folder.call("generate", "--workdir=run", stdin="de 1 words\n").code == 0
