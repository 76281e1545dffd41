"""A user's own code: which files are it, what a config names and what that imports; when they count
as changed, and what is kept of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab.records import provenance
from attnlab.records.provenance import Changed, Code
from tests.commands.tiny import alone

ATTENTION = {"name": "own_top:Top", "parts": [{"name": "own_pack.deep:Deep"}]}
CONFIG = {"system": {"attention": ATTENTION, "width": 8}, "task": "translation"}


FILES = {
    "own_top.py": "import json\nimport numpy\nfrom own_aid import SCALE\n",
    "own_aid.py": "import importlib, own_top  # a circle\nx = importlib.import_module('own_later')\n",
    "own_later.py": "T = {'one': 'own_entry:Entry', 'no': 'own_spare:Absent', 'time': '12:30'}\n",
    "own_entry.py": "class Entry:\n    pass\n",
    "own_spare.py": "class Other:\n    pass\n",
    "own_pack/__init__.py": "",
    "own_pack/deep.py": "from . import beside\nfrom .inner.far import FAR\nfrom own_pack import *\n",
    "own_pack/beside.py": "def inside():\n    from .inner import near\n",
    "own_pack/stranger.py": "X = 1\n",
    "own_pack/inner/__init__.py": "from .given import GIVEN\n",
    "own_pack/inner/far.py": "FAR = 1\n",
    "own_pack/inner/given.py": "GIVEN = 1\n",
    "own_pack/inner/near.py": "from ..beside import inside\n",
}


MODULES = ["own_aid", "own_entry", "own_later", "own_pack", "own_pack.beside", "own_pack.deep"]
MODULES += ["own_pack.inner", "own_pack.inner.far"]
MODULES += ["own_pack.inner.given", "own_pack.inner.near", "own_top"]


def environment() -> dict[str, str]:
    """That of a process which finds the package."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files, in a folder that modules are found in."""
    write(tmp_path / "mine", FILES)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    return tmp_path / "mine"


def record(config: Any = CONFIG, **files: Path | None) -> provenance.Record:
    """As a manifest gives it back."""
    actual: provenance.Record = json.loads(json.dumps(provenance.code(config, **files).record()))
    return actual


def changes(record: provenance.Record, part: Any) -> list[provenance.Change]:
    """What has changed of a part's code since that of a whole was recorded."""
    now = provenance.code(part)
    return provenance.changes(provenance.without_unread(record, now), now)


def test_code_of_a_part_is_compared_without_the_rest(folder: Path, tmp_path: Path) -> None:
    """A module that the part looks for counts although it is gone."""
    part = {"system": CONFIG["system"]}
    whole = record({**part, "data": {"name": "own_spare:Other"}})
    assert not changes(whole, part)
    assert provenance.without_unread(None, provenance.code(part)) is None
    (folder / "own_spare.py").unlink()
    (folder / "own_top.py").unlink()
    assert [change.module for change in changes(whole, part) if not change.now] == ["own_top"]


EDITS = [
    ("own_top.py", None, "own_top.py is gone"),
    ("own_aid.py", "import own_top\n", "own_aid.py has changed"),
    ("own_pack/inner/far.py", "FAR = 2\n", "far.py has changed"),
    ("own_pack/inner/near.py", None, "near.py is gone"),
    ("own_pack/stranger.py", "X = 2\n", None),
    ("own_entry.py", "class Entry:\r\n    pass\r\n", None),
    ("own_spare.py", "class Absent:\n    pass\n", "own_spare.py is new"),
]


@pytest.mark.parametrize(("file", "text", "words"), EDITS)
def test_what_counts_as_changed(
    file: str, text: str | None, words: str | None, folder: Path, tmp_path: Path
) -> None:
    """What is not imported does not count, nor do line ends; what was not there before does."""
    before = record()
    provenance.code(CONFIG).keep(tmp_path / "run")
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(text.encode())
    if words is None:
        provenance.check(before, provenance.code(CONFIG), tmp_path / "run")
        return
    with pytest.raises(Changed) as raised:
        provenance.check(before, provenance.code(CONFIG), tmp_path / "run")
    assert words in str(raised.value) and "--accept-changed-code" in str(raised.value)
    copy = tmp_path / "run" / "code" / file
    assert str(raised.value).count(str(copy)) == (file != "own_spare.py")
    provenance.check(before, provenance.code(CONFIG, accept=True), tmp_path / "run")


def test_what_to_do_where_a_module_is_not_imported_any_more(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there is not gone."""
    before = record()
    (folder / "own_aid.py").write_text("import own_top\n")
    words = (
        r"own_later\.py is no longer imported.*; put that back, or accept it with"
        r" --accept-changed-code$"
    )
    with pytest.raises(Changed, match=words):
        provenance.check(before, provenance.code(CONFIG), tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(folder)])
    words = (
        r"own_top\.py cannot be imported from here.*; change to its folder or add it to PYTHONPATH,"
        r" or accept"
    )
    with pytest.raises(Changed, match=words):
        provenance.check(before, provenance.code(CONFIG), tmp_path)


def test_the_same_text_in_another_folder_is_the_same_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies are found like the modules they are of."""
    before = record()
    assert provenance.code(CONFIG).keep(tmp_path / "run") == []
    paths = [path for path in sys.path if path != str(folder)]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "run" / "code"), *paths])
    now = provenance.code(CONFIG)
    assert now.modules["own_top"].file == str(tmp_path / "run" / "code" / "own_top.py")
    provenance.check(before, now, tmp_path / "run")


def test_a_link_is_kept_as_a_file_and_said(folder: Path, tmp_path: Path) -> None:
    (folder / "own_top.py").rename(tmp_path / "elsewhere.py")
    (folder / "own_top.py").symlink_to(tmp_path / "elsewhere.py")
    (line,) = provenance.code(CONFIG).keep(tmp_path / "run")
    assert f"own_top.py is a link: a copy of what it leads to, {tmp_path / 'elsewhere.py'}" in line
    copy = tmp_path / "run" / "code" / "own_top.py"
    assert not copy.is_symlink() and copy.read_bytes() == (folder / "own_top.py").read_bytes()


def test_the_config_file_and_what_it_imports_are_kept_but_do_not_decide(
    folder: Path, tmp_path: Path
) -> None:
    write(folder, {"settings.py": "'''Mine.'''\nimport own_spare\nimport attnlab.config\n"})
    before = record(CONFIG, config_file=folder / "settings.py", experiment_file=None)
    assert {*before["files"]} == {"config-file/settings.py", "config-file/own_spare.py"}
    assert "own_spare" not in before["modules"]
    provenance.code(CONFIG, config_file=folder / "settings.py").keep(tmp_path / "run")
    copy = tmp_path / "run" / "code" / "config-file" / "settings.py"
    assert copy.read_bytes() == (folder / "settings.py").read_bytes()
    (folder / "settings.py").write_text("'''Better words.'''\nimport own_spare\n")
    now = provenance.code(CONFIG, config_file=folder / "settings.py")
    provenance.check(before, now, tmp_path / "run")
    (line,) = provenance.notes(before, now, tmp_path / "run")
    assert "settings.py has changed since" in line and "its settings have not" in line


def test_who_accepted_what_is_kept_with_both_versions(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    provenance.code(CONFIG).keep(run)
    first = record()
    (folder / "own_aid.py").write_text("import own_top\n")  # imports no own_later any more
    now = provenance.code(CONFIG, accept=True)
    second = provenance.accept(first, now, run, step=40)
    (word,) = second["accepted"]
    assert {*word["changed"]} == {"own_aid", "own_later", "own_entry"} and word["step"] == 40
    assert "@" in word["by"]
    for module, digest in (("own_later", None), ("own_aid", now.digests["own_aid"])):
        was = first["modules"][module]["sha256"]
        assert word["changed"][module] == {"was": was, "now": digest}
    assert (run / "code" / "own_aid.py").read_text() == FILES["own_aid.py"]
    assert (run / second["modules"]["own_aid"]["copy"]).read_text() == "import own_top\n"
    provenance.check(second, provenance.code(CONFIG), run)  # from now on it is the run's code
    (folder / "own_aid.py").write_text("import own_top, own_entry\n")
    third = provenance.accept(second, provenance.code(CONFIG), run, step=None)
    assert len(third["accepted"]) == 2
    assert third["modules"]["own_aid"]["copy"] == "code/accepted-2/own_aid.py"
    (folder / "own_top.py").write_text("import own_aid, own_entry\n")
    actual = provenance.summary(third, provenance.code(CONFIG))
    assert actual["own_aid"]["was"] == first["modules"]["own_aid"]["sha256"][:12]
    assert actual["own_aid"]["after_steps"] == [40, None]
    assert actual["own_aid"]["now"] == third["modules"]["own_aid"]["sha256"][:12]
    assert actual["own_later"]["now"] == "absent"
    assert actual["own_top"]["after_steps"] == []
    assert actual["own_top"]["was"] == first["modules"]["own_top"]["sha256"][:12]


def test_an_old_record_says_nothing(folder: Path, tmp_path: Path) -> None:
    provenance.check(None, provenance.code(CONFIG), tmp_path)
    (line,) = provenance.notes(None, provenance.code(CONFIG), tmp_path)
    assert "does not say what code it was made with" in line and "own_top" in line
    assert provenance.notes(None, Code({}), tmp_path) == []
    assert provenance.changes(None, provenance.code(CONFIG)) == []


@pytest.mark.quick
def test_what_a_config_names_and_what_that_imports_and_nothing_else(folder: Path) -> None:
    """Absolute and relative imports, packages, imports within functions and by a string, tables of
    names; no code is run for it.
    """
    value = provenance.code(CONFIG)
    assert list(value.modules) == MODULES and not {*MODULES} & {*sys.modules}
    assert value.modules["own_pack.inner.far"].file == str(folder / "own_pack" / "inner" / "far.py")
    ours = {"name": "multihead", "score": {"name": "attnlab.attention.scores.dot:Dot"}}
    assert provenance.code({"system": ours}).modules == {}
    others = {"system": {"name": "numpy:array", "other": {"name": "json:loads"}}}
    assert provenance.code({**others, "data": {"name": "own_absent:X"}}).modules == {}


def test_what_is_installed_anywhere_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another environment's packages too."""
    for place, expected in (("site-packages", []), ("mine", ["own_placed"])):
        (tmp_path / place).mkdir()
        (tmp_path / place / "own_placed.py").write_text("X = 1\n")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / place)
            value = provenance.code({"data": {"name": "own_placed:X"}})
        assert list(value.modules) == expected


def test_a_plain_setting_is_a_path_only_if_it_leads_somewhere(folder: Path) -> None:
    """A text may look like "module:Attribute"; a field of the user's may hold one."""
    data = {"file": "own_entry:en", "languages": ("own_spare:de", "own_spare:Other")}
    assert list(provenance.code({"data": data}).modules) == ["own_spare"]
    assert list(provenance.code({"data": {"part": "own_entry:Entry"}}).modules) == ["own_entry"]


def test_a_component_that_a_package_hands_on(folder: Path) -> None:
    """Its name is no word of the package's own text."""
    name, impl = "own_kit:Task", {"own_kit/impl.py": "class Task:\n    pass\n"}
    write(folder, {"own_kit/__init__.py": "from .impl import *\n", **impl})
    for config in ({"task": name}, {"system": {"name": name}}, {"optimizer": name}):
        assert list(provenance.code(config).modules) == ["own_kit", "own_kit.impl"]


def test_folders_in_folders_need_no_init_file(folder: Path) -> None:
    """Python looks into the second one only after it has imported the first, which nobody has."""
    write(folder, {"own_outer/own_inner/deep/part.py": "class Score:\n    pass\n"})
    config = {"name": "own_outer.own_inner.deep.part:Score"}
    value = provenance.code(config).modules
    assert list(value) == ["own_outer.own_inner.deep.part"]
    file = folder / "own_outer" / "own_inner" / "deep" / "part.py"
    assert value["own_outer.own_inner.deep.part"].file == str(file)


def test_the_order_of_the_path_decides_until_a_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders have a module of that name: the first one counts, but for a process that has the
    other one already.
    """
    for name in ("one", "two"):
        write(tmp_path / name, {"own_double.py": f"WHERE = '{name}'\n"})
        monkeypatch.syspath_prepend(str(tmp_path / name))
    config = {"name": "own_double:WHERE"}
    second = str(tmp_path / "two" / "own_double.py")
    assert provenance.code(config).modules["own_double"].file == second
    import own_double  # type: ignore[import-not-found]

    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    try:
        assert provenance.code(config).modules["own_double"].file == own_double.__file__ == second
    finally:
        del sys.modules["own_double"]


def test_a_script_a_file_that_is_no_python_and_a_module_without_a_file(folder: Path) -> None:
    """What is named from a script has its file; what is typed at a prompt has none."""
    script = "from attnlab.records import provenance\nprint(provenance.code({'name': '__main__:X'}).digests)\n"
    write(folder, {"own_broken.py": "class Own(:\n", "script.py": script})
    assert list(provenance.code({"name": "own_broken:Own"}).modules) == ["own_broken"]
    line = [sys.executable, str(folder / "script.py")]
    own = subprocess.check_output(line, text=True, env=environment())
    assert own.startswith("{'__main__': '") and alone(script, env=environment()) == "{}\n"
