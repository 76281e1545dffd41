"""`launch.py list`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from attnlab.commands import listing
from attnlab.errors import UserError
from attnlab.registry import Table


@dataclasses.dataclass
class Plain:
    """What it is, in one line.

    And more.
    """

    given: int
    hidden: int = 32
    sizes: tuple[int, ...] = (1, 2)


MECHANISMS = Table("mechanism", {"plain": f"{__name__}:Plain", "gone": "no_such_module_at_all:X"})


@dataclasses.dataclass
class Holder:
    """Holds parts."""

    attention: Any
    other: Any = dataclasses.field(default_factory=lambda: {"name": "plain"})

    parts: ClassVar[Mapping[str, Table]] = {"attention": MECHANISMS, "other": MECHANISMS}


def run(kind: str | None) -> int:
    return listing.run(argparse.Namespace(kind=kind))


def test_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None) == 0
    out = capsys.readouterr().out
    for kind in ("mechanisms", "scores", "alignments", "positions", "systems", "data", "optimizers", "schedules", "configs"):
        assert f"\n{kind} " in out
    with pytest.raises(UserError, match="did you mean 'schedules'"):
        run("schedule")


def test_components_with_fields_and_what_cannot_be_imported() -> None:
    plain, gone = listing.component_rows(MECHANISMS)
    assert plain == ("plain", __name__, "What it is, in one line.", "hidden=32, sizes=(1, 2)")
    assert gone[0] == "gone" and gone[2].startswith("not available: mechanism 'gone': cannot import")
    assert listing.field_texts(Holder) == ["attention=<mechanism>", "other=plain"]


@pytest.mark.parametrize("kind", list(listing.KINDS))
def test_every_kind_is_there(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(kind) == 0
    out = capsys.readouterr().out
    module, _, name = listing.KINDS[kind].table.partition(":")
    entries = getattr(importlib.import_module(module), name).names()
    assert entries and all(f"\n{entry} " in out for entry in entries) and "not available" not in out


def test_configs_are_read_not_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "toy.py").write_text('"""A toy.\n\nMore."""\nraise SystemExit("was run")\n')
    (folder / "broken.py").write_text("def (:\n")
    (folder / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert run("configs") == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert lines[0].startswith("configs/broken.py  not readable") and lines[1].split(maxsplit=1) == ["configs/toy.py", "A toy."]
    assert listing.config_rows(tmp_path / "nowhere") == []
