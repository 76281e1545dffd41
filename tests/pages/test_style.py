"""The style sheet and the script of a page."""

import re

import pytest

from attnlab.pages import style


@pytest.mark.quick
def test_nothing_is_loaded_and_every_colour_and_variable_is_there() -> None:
    for text in (style.STYLE, style.SCRIPT):
        assert not re.search(r"https?:|//|@import|url\(|</|fetch|eval|innerHTML", text)
        assert text.count("{") == text.count("}") and text.isascii() and text.endswith("\n")

    for place, colour in enumerate(style.COLOURS):
        assert f".c{place} {{ color: {colour}; }}" in style.STYLE
    used, given = (re.findall(form, style.STYLE) for form in (r"var\((--\w+)\)", r"(--\w+):"))
    assert {*used} == {*given}
