"""`launch.py list` names every component, and says of each what it is, has and costs; and what
components say of themselves, as text, where no component of the page docs/mechanisms.md shows it:
the rest is on that page, which `test_catalogue.py` compares with the code.

    a = b

Args:
  width: of a rule.

  height: no argument's meaning, since the section is over.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from attnlab.attention.protocol import Capabilities
from attnlab.commands import listing
from attnlab.commands.catalogue import page
from attnlab.config import find_file
from attnlab.config.registry import Table
from attnlab.systems import SYSTEMS
from tests.commands.tiny import completed, refused


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


def listed(*words: str) -> str:
    """What `list` prints, which comes to its end."""
    ended = completed(["list", *words])
    return ended.out


def test_kinds() -> None:
    out = listed()
    parts = ("mechanisms", "scores", "alignments", "positions", "visibilities", "kernels")
    assert all(
        f"\n{kind} " in out
        for kind in (*parts, "tasks", "systems", "data", "optimizers", "schedules", "configs")
    )
    assert "did you mean 'schedules'" in refused("list", "schedule")


def test_components_with_fields_and_what_cannot_be_imported() -> None:
    plain, gone = listing.component_rows(MECHANISMS, ("module", "about", "fields"))
    assert plain == ("plain", __name__, "What it is, in one line.", "hidden=32, sizes=(1, 2)")
    assert gone[:-1] == ("gone", "", "")
    assert gone[-1].startswith("not available: mechanism 'gone': cannot import")
    cells = listing.component_cells("holder", Holder, ())
    assert cells["fields"] == "attention=<mechanism>, other=plain"


COUNTED = pytest.param("systems", marks=pytest.mark.full)  # whose parameters are counted


@pytest.mark.parametrize("kind", [*(kind for kind in listing.KINDS if kind != "systems"), COUNTED])
def test_every_kind_is_there(kind: str) -> None:
    out = listed(kind)
    entries = listing.components(kind).names()
    assert entries and all(f"\n{entry} " in out for entry in entries) and "not available" not in out
    if "year" in listing.KINDS[kind].columns:
        lines = [line for line in out.splitlines() if line.split("  ")[0].strip() in entries]
        assert all(re.search(r"  (19|20)\d\d  \S", line) for line in lines)
        assert len(lines) == len(entries)


@pytest.mark.full
def test_every_system_has_a_small_setting_in_the_config_file_of_its_task() -> None:
    """Else nothing is said of its size."""
    rows = {row[0]: row[1:] for row in listing.component_rows(SYSTEMS, ("task", "parameters"))}
    sizes = {name: int(count.replace(",", "") or 0) for name, (_, count) in rows.items()}
    assert [name for name, (task, _) in rows.items() if not task or sizes[name] < 1000] == []


def test_tasks_say_which_systems_and_data_they_take() -> None:
    lines = {line.split()[0]: line for line in listed("tasks").splitlines()[2:]}
    taken = {
        "translation": ("rnnsearch, luong", "dates, grammar", "pairs(split)", "bleu max"),
        "language_modelling": ("lstm_lm, attention_lm", "associations", "texts(split)"),
        "classification": ("self_attentive", "markers, lookup, entailment", "labelled(split)"),
    }
    for name, words in taken.items():
        left = ("lstm_lm", "markers") if name == "translation" else ("rnnsearch", "dates")
        assert all(word in lines[name] for word in words)
        assert not any(word in lines[name] for word in left)
    out = listed("tasks", "attnlab.tasks.texts:TextTask")
    assert re.search(r"\nsystems +encoder_classifier, bert_classifier, lstmn_classifier", out)
    # what code hands to a task is no field of a config
    assert not re.search(r"^(fields|system )", out, re.MULTILINE)


def test_one_component_with_its_fields_and_its_formula() -> None:
    out = listed("mechanisms", "gated")
    assert re.search(r"\nsource +Qiu et al., ", out) and "sigmoid(x W_g)" in out
    assert re.search(r'\ngate +element +"element" \(one for each number', out)
    # what a class inherits is said by its base
    assert re.search(r"\nkey_heads +0 +K, how many heads of keys and values", out)
    words = "unknown mechanism 'gatd'; did you mean 'gated'"
    assert words in refused("list", "mechanisms", "gatd")
    assert "list configs: takes no name" in refused("list", "configs", "x")


def test_a_component_of_ones_own_is_shown_by_its_path_with_what_it_has() -> None:
    out = listed("mechanisms", f"{__name__}:Plain")
    assert "What it is, in one line." in out and re.search(r"\nhidden +32\n", out)
    assert not any(word in out for word in ("family", "year", "source", "capabilities"))
    rows = listing.component_rows(MECHANISMS, ("family", "year", "capabilities", "about"))
    assert rows[0] == ("plain", "", "", "", "What it is, in one line.")


def test_the_page_goes_to_the_terminal() -> None:
    assert listed("--markdown") == page()
    assert "leave out 'scores'" in refused("list", "scores", "--markdown")


def test_configs_are_read_not_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "configs").mkdir()
    (folder / "toy.py").write_text('"""A toy.\n\nMore."""\nraise SystemExit("was run")\n')
    (folder / "broken.py").write_text("def (:\n")
    (folder / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    lines = listed("configs").splitlines()[3:]
    assert lines[0].startswith("configs/broken.py  not readable")
    assert lines[1].split(maxsplit=1) == ["configs/toy.py", "A toy."]
    (folder / "toy.py").unlink()
    assert [file for file, _ in listing.file_rows("configs")] == ["configs/broken.py"]


def test_attnlabs_own_files_are_listed_from_any_folder_by_the_names_that_find_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("configs/translation.py", "experiments/quickstart.py"):
        assert f"\n{file} " in listed(file.partition("/")[0])
        assert find_file(file, "file").is_file()


PLAIN = "self, cross, causal, bidirectional, padding, dense, cache, maps exact, positions embedding"


def rule(width: int = 3, height: int = 4) -> None:
    """A function."""


class Priced:
    """Has its own formula.

        c = d

    Cost: nothing.

    Attributes:
      width: takes
        two lines.
    """


def test_a_bounded_length_a_function_and_a_class_with_its_cost() -> None:
    """A function has no formula, though its module, which explains its arguments, may have some."""
    assert listing.capability_names(Capabilities(max_length=7)) == f"{PLAIN}, up to 7 keys"
    fields = [dataclasses.astuple(field) for field in listing.settable_fields(rule)]
    assert fields == [("width", "3", "of a rule."), ("height", "4", "")]
    assert (listing.formula(rule), listing.formula(Priced)) == ("", "c = d")
