"""Lines of cells by what stands between them; comments and widths are tested in test_conll.py."""

import pytest

from attnlab.data.readers.tables import split_lines
from tests.refusals import check_refused


@pytest.mark.quick
@pytest.mark.parametrize(
    ("separator", "cells"),
    [
        ("auto", ["a b", "c"]),
        ("blanks", ["a", "b\tc"]),
        ("any", ["a", "b", "c"]),
        ("|", ["a b\tc"]),
    ],
)
def test_cells_by_separator(separator: str, cells: list[str]) -> None:
    assert [row.cells for row in split_lines(["a b\tc", " "], separator, "s")] == [cells, []]
    check_refused("s='tabs': .*did you mean 'tab'", split_lines, ["a"], "tabs", "s")
