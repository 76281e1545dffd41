"""A user's own modules in a folder, for the tests of what is kept of them."""

import os
from pathlib import Path

import pytest

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
