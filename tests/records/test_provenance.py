"""A user's own code: which files count, when they count as changed, and what is kept of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab.records import provenance
from attnlab.records.provenance import Changed, Code

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "system": {
        "attention": {"name": "own_top:Top", "parts": [{"name": "own_pack.deep:Deep"}]},
        "width": 8,
    },
    "task": "translation",
}
FILES = {
    "own_top.py": "import json\nimport numpy\nfrom own_aid import SCALE\n",
    "own_aid.py": (
        "import importlib\nimport own_top  # a circle\nLATER ="
        " importlib.import_module('own_later')\n"
    ),
    "own_later.py": (
        "TABLE = {'one': 'own_entry:Entry', 'no': 'own_spare:Absent', 'time': '12:30'}\n"
    ),
    "own_entry.py": "class Entry:\n    pass\n",
    "own_spare.py": "class Other:\n    pass\n",
    "own_pack/__init__.py": "",
    "own_pack/deep.py": (
        "from . import beside\nfrom .inner.far import FAR\nfrom own_pack import *\n"
    ),
    "own_pack/beside.py": "def inside():\n    from .inner import near\n",
    "own_pack/stranger.py": "X = 1\n",
    "own_pack/inner/__init__.py": "from .given import GIVEN\n",
    "own_pack/inner/far.py": "FAR = 1\n",
    "own_pack/inner/given.py": "GIVEN = 1\n",
    "own_pack/inner/near.py": "from ..beside import inside\n",
}
MODULES = [
    "own_aid",
    "own_entry",
    "own_later",
    "own_pack",
    "own_pack.beside",
    "own_pack.deep",
    "own_pack.inner",
    "own_pack.inner.far",
]
MODULES += ["own_pack.inner.given", "own_pack.inner.near", "own_top"]


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
    found: provenance.Record = json.loads(json.dumps(provenance.of(config, **files).record()))
    return found


@pytest.mark.quick
def test_what_a_config_names_and_what_that_imports_and_nothing_else(folder: Path) -> None:
    """Absolute and relative imports, packages, imports within functions and by a string, tables of
    names; no code is run for it.
    """
    found = provenance.of(CONFIG)
    assert list(found.modules) == MODULES and not {*MODULES} & {*sys.modules}
    assert found.modules["own_pack.inner.far"].file == str(folder / "own_pack" / "inner" / "far.py")
    assert (
        provenance.of(
            {"system": {"name": "multihead", "score": {"name": "attnlab.attention.scores.dot:Dot"}}}
        ).modules
        == {}
    )
    assert (
        provenance.of(
            {
                "system": {"name": "numpy:array", "other": {"name": "json:loads"}},
                "data": {"name": "own_absent:X"},
            }
        ).modules
        == {}
    )


def test_a_plain_setting_is_a_path_only_if_it_leads_somewhere(folder: Path) -> None:
    """A text may look like "module:Attribute"; a field of the user's may hold one."""
    assert list(
        provenance.of(
            {"data": {"file": "own_entry:en", "languages": ("own_spare:de", "own_spare:Other")}}
        ).modules
    ) == ["own_spare"]
    assert list(provenance.of({"data": {"part": "own_entry:Entry"}}).modules) == ["own_entry"]


def test_a_component_that_a_package_hands_on(folder: Path) -> None:
    """Its name is no word of the package's own text."""
    write(
        folder,
        {
            "own_kit/__init__.py": "from .impl import *\n",
            "own_kit/impl.py": "class Task:\n    pass\n",
        },
    )
    for config in (
        {"task": "own_kit:Task"},
        {"system": {"name": "own_kit:Task"}},
        {"optimizer": "own_kit:Task"},
    ):
        assert list(provenance.of(config).modules) == ["own_kit", "own_kit.impl"]


def test_code_of_a_part_is_compared_without_the_rest(folder: Path, tmp_path: Path) -> None:
    """A module that the part looks for counts although it is gone."""
    part = {"system": CONFIG["system"]}
    whole = record({**part, "data": {"name": "own_spare:Other"}})
    assert not provenance.changes(
        provenance.of_part(whole, provenance.of(part)), provenance.of(part)
    )
    assert provenance.of_part(None, provenance.of(part)) is None
    (folder / "own_spare.py").unlink()
    (folder / "own_top.py").unlink()
    (change,) = (
        one
        for one in provenance.changes(
            provenance.of_part(whole, provenance.of(part)), provenance.of(part)
        )
        if not one.now
    )
    assert change.module == "own_top"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("own_top.py", None, "own_top.py is gone"),
        ("own_aid.py", "import own_top\n", "own_aid.py has changed"),
        ("own_pack/inner/far.py", "FAR = 2\n", "far.py has changed"),
        ("own_pack/inner/near.py", None, "near.py is gone"),
        ("own_pack/stranger.py", "X = 2\n", None),
        ("own_entry.py", "class Entry:\r\n    pass\r\n", None),
        ("own_spare.py", "class Absent:\n    pass\n", "own_spare.py is new"),
    ],
)
def test_what_counts_as_changed(
    file: str, text: str | None, words: str | None, folder: Path, tmp_path: Path
) -> None:
    """What is not imported does not count, nor do line ends; what was not there before does."""
    before = record()
    provenance.of(CONFIG).keep(tmp_path / "run")
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(text.encode())
    if words is None:
        provenance.check(before, provenance.of(CONFIG), tmp_path / "run")
        return
    with pytest.raises(Changed) as raised:
        provenance.check(before, provenance.of(CONFIG), tmp_path / "run")
    assert words in str(raised.value) and "--accept-changed-code" in str(raised.value)
    copy = tmp_path / "run" / "code" / file
    assert str(raised.value).count(str(copy)) == (file != "own_spare.py")
    provenance.check(before, provenance.of(CONFIG, accept=True), tmp_path / "run")


def test_what_to_do_where_a_module_is_not_imported_any_more(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there is not gone."""
    before = record()
    (folder / "own_aid.py").write_text("import own_top\n")
    with pytest.raises(
        Changed,
        match=(
            r"own_later\.py is no longer imported.*; put that back, or accept it with"
            r" --accept-changed-code$"
        ),
    ):
        provenance.check(before, provenance.of(CONFIG), tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(folder)])
    words = (
        r"own_top\.py cannot be imported from here.*; change to its folder or add it to PYTHONPATH,"
        r" or accept"
    )
    with pytest.raises(Changed, match=words):
        provenance.check(before, provenance.of(CONFIG), tmp_path)


def test_the_same_text_in_another_folder_is_the_same_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies are found like the modules they are of."""
    before = record()
    provenance.of(CONFIG).keep(tmp_path / "run")
    monkeypatch.setattr(
        sys,
        "path",
        [str(tmp_path / "run" / "code"), *(one for one in sys.path if one != str(folder))],
    )
    now = provenance.of(CONFIG)
    assert now.modules["own_top"].file == str(tmp_path / "run" / "code" / "own_top.py")
    provenance.check(before, now, tmp_path / "run")


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
    assert provenance.of(config).modules["own_double"].file == str(
        tmp_path / "two" / "own_double.py"
    )
    import own_double  # type: ignore[import-not-found]

    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    try:
        assert (
            provenance.of(config).modules["own_double"].file
            == own_double.__file__
            == str(tmp_path / "two" / "own_double.py")
        )
    finally:
        del sys.modules["own_double"]


def test_the_config_file_and_what_it_imports_are_kept_but_do_not_decide(
    folder: Path, tmp_path: Path
) -> None:
    write(
        folder,
        {
            "settings.py": "'''Mine.'''\nimport own_spare\nimport attnlab.config\n",
            "own_spare.py": "PEAK = 1\n",
        },
    )
    before = record(CONFIG, config_file=folder / "settings.py", experiment_file=None)
    assert {*before["files"]} == {
        "config-file/settings.py",
        "config-file/own_spare.py",
    } and "own_spare" not in before["modules"]
    provenance.of(CONFIG, config_file=folder / "settings.py").keep(tmp_path / "run")
    assert (tmp_path / "run" / "code" / "config-file" / "settings.py").read_bytes() == (
        folder / "settings.py"
    ).read_bytes()
    (folder / "settings.py").write_text("'''Better words.'''\nimport own_spare\n")
    now = provenance.of(CONFIG, config_file=folder / "settings.py")
    provenance.check(before, now, tmp_path / "run")
    (line,) = provenance.notes(before, now, tmp_path / "run")
    assert "settings.py has changed since" in line and "its settings have not" in line


def test_who_accepted_what_is_kept_with_both_versions(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    provenance.of(CONFIG).keep(run)
    first = record()
    (folder / "own_aid.py").write_text("import own_top\n")  # imports no own_later any more
    now = provenance.of(CONFIG, accept=True)
    second = provenance.accepted(first, now, run, step=40)
    (word,) = second["accepted"]
    assert (
        {*word["changed"]} == {"own_aid", "own_later", "own_entry"}
        and word["step"] == 40
        and "@" in word["by"]
    )
    assert word["changed"]["own_later"] == {
        "was": first["modules"]["own_later"]["sha256"],
        "now": None,
    }
    assert word["changed"]["own_aid"] == {
        "was": first["modules"]["own_aid"]["sha256"],
        "now": now.digests["own_aid"],
    }
    assert (run / "code" / "own_aid.py").read_text() == FILES["own_aid.py"]
    assert (run / second["modules"]["own_aid"]["copy"]).read_text() == "import own_top\n"
    provenance.check(second, provenance.of(CONFIG), run)  # from now on it is the run's code
    (folder / "own_aid.py").write_text("import own_top, own_entry\n")
    third = provenance.accepted(second, provenance.of(CONFIG), run, step=None)
    assert (
        len(third["accepted"]) == 2
        and third["modules"]["own_aid"]["copy"] == "code/accepted-2/own_aid.py"
    )
    (folder / "own_top.py").write_text("import own_aid, own_entry\n")
    found = provenance.summary(third, provenance.of(CONFIG))
    assert found["own_aid"]["was"] == first["modules"]["own_aid"]["sha256"][:12] and found[
        "own_aid"
    ]["after_steps"] == [40, None]
    assert (
        found["own_aid"]["now"] == third["modules"]["own_aid"]["sha256"][:12]
        and found["own_later"]["now"] == "absent"
    )
    assert (
        found["own_top"]["after_steps"] == []
        and found["own_top"]["was"] == first["modules"]["own_top"]["sha256"][:12]
    )


def test_an_old_record_says_nothing(folder: Path, tmp_path: Path) -> None:
    provenance.check(None, provenance.of(CONFIG), tmp_path)
    (line,) = provenance.notes(None, provenance.of(CONFIG), tmp_path)
    assert "does not say what code it was made with" in line and "own_top" in line
    assert (
        provenance.notes(None, Code({}), tmp_path)
        == []
        == provenance.changes(None, provenance.of(CONFIG))
    )


def test_a_script_a_file_that_is_no_python_and_a_module_without_a_file(folder: Path) -> None:
    """What is named from a script has its file; what is typed at a prompt has none."""
    script = "from attnlab.records import provenance\nprint(provenance.of({'name': '__main__:X'}).digests)\n"
    write(folder, {"own_broken.py": "class Own(:\n", "script.py": script})
    assert list(provenance.of({"name": "own_broken:Own"}).modules) == ["own_broken"]
    how: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "check": True,
        "env": {**os.environ, "PYTHONPATH": str(ROOT)},
    }
    assert subprocess.run([sys.executable, str(folder / "script.py")], **how).stdout.startswith(
        "{'__main__': '"
    )
    assert subprocess.run([sys.executable, "-c", script], **how).stdout == "{}\n"
