"""The one exception a user sees, and near names."""

import pytest

from attnlab.errors import UserError, nearest


@pytest.mark.quick
def test_message_is_one_line() -> None:
    assert str(UserError("two\n  lines\tand  blanks ")) == "two lines and blanks"
    assert str(UserError("a\x1b[2Jb")) == "a\u241b[2Jb"
    assert str(UserError()) == ""


@pytest.mark.parametrize(
    ("word", "choices", "expected"),
    [
        ("hiden", ["hidden", "heads"], "did you mean 'hidden'?"),
        ("trian", ["train", "trains", "evaluate"], "did you mean 'train' or 'trains'?"),
        ("xyz", ["b", "a"], "choose from: a, b"),
        ("", ["b", "a"], "choose from: a, b"),
        ("9", ["96", "5"], "choose from: 5, 96"),
        ("xyz", [], "there is nothing to choose from"),
        ("aaaa", ["aaab", "aaac", "aaad", "aaae"], "did you mean 'aaae' or 'aaad' or 'aaac'?"),
    ],
)
def test_nearest(word: str, choices: list[str], expected: str) -> None:
    """At most three, the closest first; all choices, sorted, where none is close."""
    assert nearest(word, choices) == expected
    assert nearest(word, iter(choices)) == expected
