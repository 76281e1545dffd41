"""The labels of pictures."""

from attnlab.analysis.labels import label


def test_labels_are_readable() -> None:
    assert label("Straße") == "Straße" and label("$x_1$") == "$x_1$"
    assert label("a\nb") == "a\\nb" and label(" ") == "\N{OPEN BOX}"
    assert label("\U000f0000") == "\\U000f0000"
    assert label("x" * 40) == "x" * 23 + "…"
