"""The manifest: round trip, damage, differences between configs, and the code it names."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.records.manifest import Manifest, changed, code_revision, config_hash, differences
from attnlab.records.provenance import Changed

CONFIG = {
    "system": {"name": "rnnsearch", "hidden": 256},
    "batch": {"buckets": (16, 32)},
    "parallel": {"devices": 0},
    "seed": 0,
}


NO_CODE = {"modules": {}, "files": {}, "accepted": []}


def build(**changes: object) -> Manifest:
    about = {"devices": {"kind": "cpu", "count": 2}, "data": {"train": "abc"}}
    return Manifest.build({**CONFIG, **changes}, **about, command=["launch.py", "train"])


@pytest.mark.quick
def test_round_trip(tmp_path: Path) -> None:
    """What is written is read; a ConfigDict with tuples gives the same manifest as the plain
    dict.
    """
    assert Manifest.read(tmp_path) is None
    manifest = build()
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    assert manifest.config["batch"] == {"buckets": [16, 32]}
    assert manifest.command == ["launch.py", "train"]
    assert {"jax", "numpy", "flax"} <= manifest.packages.keys()
    assert manifest.created.endswith("+00:00")
    other = Manifest.build(ConfigDict(CONFIG), devices={}, data={})
    assert other.config == manifest.config and other.config_hash == manifest.config_hash


def test_a_hash_of_before_there_were_newer_settings_is_read(tmp_path: Path) -> None:
    manifest = build(training={"lag": -1})
    assert manifest.config_hash == build(training={}).config_hash
    older = dataclasses.replace(manifest, config_hash=config_hash(manifest.config, whole=True))
    older.write(tmp_path)
    assert Manifest.read(tmp_path) == older != manifest


DAMAGED: list[tuple[str, object]] = [
    ("own_code", 3),
    ("own_code", {}),
    ("own_code", {**NO_CODE, "modules": {"a": 1}}),
    ("own_code", {**NO_CODE, "modules": {"a": {"file": "a.py", "sha256": None, "copy": "a"}}}),
    ("own_code", {**NO_CODE, "accepted": [{"by": "me", "step": "9", "changed": {}}]}),
    ("vocabulary", ["shared.json"]),
]
"""Fields that may be null, and what they cannot be."""


def test_damaged_manifest_is_named(tmp_path: Path) -> None:
    """Cut, emptied, of another kind, or edited by hand: the config no longer has its hash."""
    build().write(tmp_path)
    path = tmp_path / "manifest.json"
    text = path.read_text()
    fields = [json.dumps({**json.loads(text), field: value}) for field, value in DAMAGED]
    for damaged in (text[:100], "{}", "[]", text.replace("256", "257"), *fields):
        path.write_text(damaged)
        with pytest.raises(UserError, match=f"{path} is damaged"):
            Manifest.read(tmp_path)
    path.write_text(json.dumps({**json.loads(text), "own_code": None, "vocabulary": None}))
    assert Manifest.read(tmp_path) is not None


def test_differences_name_field_and_both_values() -> None:
    """Changed, gone and new fields, with dotted names; ignored nodes do not count, nor do tuples
    against lists.
    """
    new = {"system": {"name": "rnnsearch", "width": 8}, "batch": {"buckets": [16, 32]}}
    new |= {"parallel": {"devices": 4}, "seed": "0"}
    assert differences(CONFIG, CONFIG) == []
    assert differences(CONFIG, new) == [
        "system.width: saved nothing, wanted 8",
        'seed: saved 0, wanted "0"',
        "system.hidden: saved 256, wanted nothing",
    ]
    expected = ["parallel.devices: saved 0, wanted 4"]
    assert differences(CONFIG, {**CONFIG, "parallel": {"devices": 4}}, ignore=()) == expected
    other = differences({"a": {"b": 3}, "ab": 1}, {"a": {"b": 4}, "ab": 2}, ignore=("a",))
    assert other == ["ab: saved 1, wanted 2"]


def test_another_vocabulary_is_refused_and_one_that_is_lost_left_to_its_reader(
    tmp_path: Path,
) -> None:
    """By the checksum that stands in a file; the file's layout does not matter, nor what an older
    manifest does not say. A trial is not told to train: only its sweep may train it.
    """
    vocabulary = {"shared.json": "a" * 64, "labels.json": "b" * 64}
    manifest = dataclasses.replace(build(), vocabulary=vocabulary)
    for workdir in (tmp_path / "run", tmp_path / "sweep" / "trials" / "one-0a1b2c3d" / "seed0"):
        manifest.check_vocabulary(workdir)
        (folder := workdir / "vocabulary").mkdir(parents=True)
        (folder / "shared.json").write_text(json.dumps({"sha256": "a" * 64, "other": 1}, indent=3))
        manifest.check_vocabulary(workdir)
        (folder / "labels.json").write_text(json.dumps({"sha256": "c" * 64}))
        (tmp_path / "sweep").mkdir(exist_ok=True)
        (tmp_path / "sweep" / "plan.json").write_text("{}")
        words = "labels.json is not the one that this run was trained with; put back a good copy"
        with pytest.raises(Changed, match=words) as raised:
            manifest.check_vocabulary(workdir)
        assert ("'train'" in str(raised.value)) == (workdir.name == "run")
        build().check_vocabulary(workdir)


def test_data_of_the_last_look_counts_and_must_be_readable(tmp_path: Path) -> None:
    """What cannot be read is no reason to look at other test data."""
    manifest, look = build(), tmp_path / "look.json"
    manifest.check_data({"test": "a"}, tmp_path)
    look.write_text(json.dumps({"time": "now", "data": {"test": "a"}}))
    manifest.check_data({"test": "a"}, tmp_path)
    with pytest.raises(Changed, match="split test"):
        manifest.check_data({"test": "b"}, tmp_path)
    for text in ("", "{}", '{"data": {"test": 3}}'):
        look.write_text(text)
        with pytest.raises(Changed, match=f"{look} is damaged .*put back a good copy"):
            manifest.check_data({"test": "b"}, tmp_path)


def test_another_config_is_refused_with_five_fields() -> None:
    """The parallel node may change; anything else may not."""
    manifest = build()
    manifest.check_config({**CONFIG, "parallel": {"devices": 4}}, "runs/a")
    fields = {f"field{number}": number for number in range(7)}
    with pytest.raises(UserError) as raised:
        manifest.check_config({**CONFIG, **fields}, "runs/a")
    five = "; ".join(f"field{number}: saved nothing, wanted {number}" for number in range(5))
    words = f"workdir runs/a holds another config: {five}; and 2 more. Use another --workdir"
    assert str(raised.value) == words


@pytest.mark.parametrize("saved", [{"tree": "a"}, {}])  # the second as of a run of before
@pytest.mark.parametrize("now", [{"tree": "a"}, {"tree": "b"}, {}])
def test_another_commit_is_a_change_with_another_package(saved: Any, now: Any) -> None:
    """Where the trees are the same, only pages have changed."""
    first, second = (
        dataclasses.replace(build(), code={"revision": name, **code, "dirty": False})
        for name, code in (("1", saved), ("2", now))
    )
    expected = ['code.revision: saved "1", wanted "2"'] * (not saved or saved != now)
    assert first.environment_changes(second) == expected


def test_code_revision_of_a_repository(tmp_path: Path) -> None:
    """None without repository, commit or tracking; dirty by a changed tracked file or a new module
    of the package, not by anything beside it, which no run imports. A commit of pages has the same
    tree.
    """

    def git(*arguments: str) -> str:
        settings = ("user.name=a", "user.email=a@example.org", "commit.gpgsign=false")
        flags = [word for setting in settings for word in ("-c", setting)]
        line = ["git", "-C", str(tmp_path), *flags, *arguments]
        return subprocess.check_output(line, text=True).strip()

    def expected(**fields: object) -> dict[str, object]:
        revision, tree = git("rev-parse", "HEAD"), git("rev-parse", "HEAD:package")
        return {"revision": revision, "tree": tree, **fields}

    code = tmp_path / "package"
    code.mkdir()
    assert code_revision(code) is None
    git("init", "-q")
    (code / "a.py").write_text("x = 1\n")
    (tmp_path / "README.md").write_text("as it was\n")
    assert code_revision(code) is None
    git("add", ".")
    git("commit", "-qm", "first")
    for file in ("result.txt", "scratch.py", "package/notes.txt", "README.md"):
        (tmp_path / file).write_text("x = 3\n")
    first = code_revision(code)
    assert first == expected(dirty=False)
    git("commit", "-qam", "pages")
    second = code_revision(code)
    assert second == {**first, "revision": git("rev-parse", "HEAD")} != first
    for new in (code / "new.py", code / "room" / "new.py", code / "new.so"):
        new.parent.mkdir(exist_ok=True)
        new.write_text("")
        assert code_revision(code) == expected(dirty=True)
        new.unlink()
    (code / "a.py").write_text("x = 2\n")
    assert code_revision(code) == expected(dirty=True)
    git("commit", "-qam", "code")
    third = code_revision(code)
    assert third == expected(dirty=False) and third["tree"] != first["tree"]
    installed = tmp_path / ".venv" / "package"
    installed.mkdir(parents=True)
    (installed / "a.py").write_text("")
    assert code_revision(installed) is None


def test_a_setting_that_is_newer_than_a_run_has_its_default() -> None:
    expected = configs.to_dict(configs.load("configs/language_modelling.py:lstm", []))
    older = {name: node for name, node in expected.items() if name != "lora"}
    older["training"] = {k: v for k, v in expected["training"].items() if k != "freeze"}
    assert changed(older, expected) == [] != differences(older, expected)
    other = {**expected, "lora": {**expected["lora"], "rank": 4}}
    assert changed(older, other) == ["lora.rank: saved 0, wanted 4"]
    # no config of ours
    assert changed({"a": 1}, {"a": 1, "b": 2}) == ["b: saved nothing, wanted 2"]
