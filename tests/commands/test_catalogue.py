"""The page docs/mechanisms.md is what the code says of itself, with names and layouts of parameters;
what `launch.py list systems` says of each system.
"""

import dataclasses
import pathlib
import re

import pytest

from attnlab.attention import MECHANISMS
from attnlab.commands import catalogue, listing
from attnlab.commands.catalogue import COMMAND, page
from attnlab.layers.cards import card_of
from attnlab.systems import SYSTEMS
from tests.commands.tiny import run_command

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "mechanisms.md"


@pytest.fixture(scope="module")
def text() -> str:
    """The page as the code makes it."""
    return page()


def test_the_page_is_what_the_code_says(text: str) -> None:
    written, now = PAGE.read_text(encoding="utf-8").splitlines(), text.splitlines()
    changed = next((pair for pair in zip(written, now, strict=False) if pair[0] != pair[1]), None)
    assert written == now, (
        f"docs/mechanisms.md is out of date, write it again: {COMMAND}\nfirst difference (written,"
        f" now): {changed}"
    )


def test_the_page_has_every_component_once_with_formula_and_shapes(text: str) -> None:
    for kind in ("mechanisms", "mixers", *catalogue.PARTS):
        for name in listing.components(kind).names():
            assert f"\n| {name} | " in text
    sections = text.split("\n### ")[1:]
    names = listing.components("mechanisms").names()
    more = [name for name in listing.components("mixers").names() if name not in names]
    assert [one.partition("`\n")[0] for one in sections] == [f"`{name}" for name in [*names, *more]]
    for section, name in zip(sections[len(names) :], more, strict=True):
        assert name in ("by_layer", "none") or " = " in section.split("```")[1]
    for section in sections[: len(names)]:
        assert section.count("```") == 2
        assert " = " in section.split("```")[1]
        assert "[B,Tq,width]" in text
        assert "Memory: " in section or section.startswith("`multi_step`")


def test_bars_in_a_cell_do_not_end_it(text: str) -> None:
    row = next(line for line in text.splitlines() if line.startswith("| euclidean"))
    assert "-\\|q_i - k_j\\|" in row and row.replace("\\|", "").count("|") == 8


@pytest.mark.parametrize("name", SYSTEMS.names())
def test_every_system_carries_a_card_of_its_own(name: str) -> None:
    card = card_of(SYSTEMS.resolve(name))
    assert card and not card.family and 1960 <= card.year <= 2026, f"{name} carries no card"


def test_systems_say_where_they_come_from_what_they_are_for_and_how_large_they_are() -> None:
    lines = run_command(["list", "systems", "convs2s"]).out
    cells = dict(re.findall(r"^(\w+)  +(\S.*)$", lines, re.MULTILINE))
    assert (cells["task"], cells["year"]) == ("translation", "2017")
    assert cells["source"].startswith("Gehring et al., ")
    f, d, v, layers, places = 64, 64, 1000, 3, 256
    # two in a decoder layer, four around the stacks
    linear = {(f, d): 2 * layers + 4, (f, v): 1, (3 * d, 2 * d): 2 * layers}
    normed = sum(count * outputs * (inputs + 2) for (inputs, outputs), count in linear.items())
    assert int(cells["parameters"].replace(",", "")) == normed + 2 * (v + places) * f
    assert catalogue.system_cells("mine", int) == {"task": "", "parameters": ""}


@pytest.mark.parametrize("name", MECHANISMS.names())
def test_every_axis_of_every_mechanism_has_a_letter(name: str) -> None:
    """A new mechanism needs its sizes in `catalogue.MECHANISMS`; no two of its letters may stand for
    one size.
    """
    listed = catalogue.mechanism_parameters(name)
    assert listed and not re.findall(r"\[[^\]]*\b\d\d+\b", listed), listed
    sizes = catalogue.MECHANISMS[name]
    values = [*sizes.letters.values(), *sizes.widths.values()]
    assert len(set(values)) == len(values)


def test_inside_multihead_a_score_has_one_set_of_parameters_as_wide_as_a_head() -> None:
    sizes = dataclasses.replace(
        catalogue.MECHANISMS["multihead"], fields={"heads": 4, "score": "general"}, letters={"D": 6}
    )
    assert "`score/w/kernel` [D, D]" in catalogue.mechanism_parameters("multihead", sizes)
