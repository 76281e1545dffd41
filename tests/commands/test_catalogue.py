"""The page docs/mechanisms.md is what the code says of itself."""

import pathlib

import pytest

from attnlab.commands import catalogue, listing
from attnlab.commands.catalogue import COMMAND, page

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
