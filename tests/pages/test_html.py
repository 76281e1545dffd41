"""A page and its parts, its style sheet and its script."""

import re

import pytest

from attnlab.pages import html
from attnlab.pages.tables import Table


@pytest.mark.quick
def test_text_is_shown_as_it_is_and_rows_say_what_they_are() -> None:
    rows, marks = (("x & y", "3"), ("z", "4 %"), ("w", "")), map(frozenset, ((1,), (1,), (2,)))
    made = html.table(Table("a <b>", ("name", "n"), rows, *marks, ("<i>",)))
    assert "<h2>a &lt;b&gt;</h2>" in made and "<li>&lt;i&gt;</li>" in made
    words = '<tr><td data-label="name">x &amp; y</td><td class="number" data-label="n">3</td></tr>'
    strong = words.replace("<tr>", '<tr class="strong">').replace("x &amp; y", "z")
    assert words in made and strong.replace(">3<", ">4&nbsp;%<") in made
    assert made.count('<tr class="weak">') == 1
    assert "<ul>" not in html.table(Table("t", ("a",), (("b",),)))


@pytest.mark.quick
def test_tables_of_more_than_one_row_can_be_sorted_and_linked_and_folded() -> None:
    two = Table("t", ("name", "n"), (("x", "3"), ("y", "4")), notes=("a note",))
    assert '<table class="sortable">' in html.table(two) and "data-row" not in html.table(two)
    assert "<details>" not in html.table(two)
    assert "<table>" in html.table(one := Table("t", ("a_b",), (("b",),)))
    assert ">1 row<" in html.table(one, folded=True) and "<th>a_<wbr>b</th>" in html.table(one)
    assert html.table(two, linked=True).count('<tr data-row="1">') == 1
    assert "<details><summary>2 rows</summary>" in html.table(two, folded=True)
    assert html.notes("one <b>", "", "two") == "<ul><li>one &lt;b&gt;</li><li>two</li></ul>"


def test_a_whole_page_leaves_out_what_is_empty() -> None:
    made = html.whole("a & b", ["<p>one</p>", "", "<p>two</p>"])
    assert "<title>\u241b</title>" in html.whole("\x1b", [])
    assert "<title>a &amp; b</title>" in made and "<p>one</p>\n<p>two</p>" in made
    assert made.startswith("<!doctype html>")
    # which finds what it works on
    assert made.count("<script>") == 1 and made.index("<p>two</p>") < made.index("<script>")


@pytest.mark.quick
def test_nothing_is_loaded_and_every_colour_and_variable_is_there() -> None:
    for text in (html.STYLE, html.SCRIPT):
        assert not re.search(r"https?:|//|@import|url\(|</|fetch|eval|innerHTML", text)
        assert text.count("{") == text.count("}") and text.isascii() and text.endswith("\n")

    for place, colour in enumerate(html.COLOURS):
        assert f".c{place} {{ color: {colour}; }}" in html.STYLE
    used, given = (re.findall(form, html.STYLE) for form in (r"var\((--\w+)\)", r"(--\w+):"))
    assert {*used} == {*given}
