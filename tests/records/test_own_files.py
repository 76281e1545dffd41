"""Which files are a user's own: what a config names, and what that imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.records import provenance
from tests.commands.tiny import alone
from tests.records.own_code import CONFIG, MODULES, environment, write


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
