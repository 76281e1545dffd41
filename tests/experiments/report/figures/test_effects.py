"""A strip for every effect."""

import re
from pathlib import Path

from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.figures.effects import strips
from tests.experiments.report.tabled import drawn
from tests.experiments.report.test_effects import made


def test_each_effect_has_its_strip_with_a_line_where_none_would_be(tmp_path: Path) -> None:
    made(tmp_path)
    contents = gather(tmp_path)
    text = drawn(strips(contents.effects, contents.comparison))
    rows = re.findall(r"<tr data-row.*?</tr>", text)
    assert len(rows) == 3 and 'aria-label="norm=none: -0.1738"' in rows[0]
    assert all('class="strip c0"' in row and 'class="front"' in row for row in rows)
    assert strips((), contents.comparison) is None
