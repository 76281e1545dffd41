"""The HTML page: well-formed, whole in itself, and it says what the records say."""

import dataclasses
import html.parser
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report import page as report_page
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.figures import examples
from attnlab.experiments.report.page import page
from attnlab.experiments.report.warnings import Warned
from tests.experiments.synthetic import PNG, SCORES, claim, sweep

VOID = {"meta", "img", "link", "br"}


class Reader(html.parser.HTMLParser):
    """Checks that elements close in order; keeps attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def made(directory: Path, scores: Any = SCORES, **changes: Any) -> str:
    return page(gather(sweep(directory, scores, **changes)))


@pytest.mark.quick
def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    """No address but names of namespaces; one script, inside and at the end; no style sheet or
    picture that is not inside.
    """
    text = made(tmp_path)
    assert not re.search(r"<(link|iframe|base)\b|@import|\bon\w+=", text)
    assert re.findall(r"<script[^>]*>", text) == ["<script>"]
    assert text.endswith("</script>\n</body>\n</html>\n")
    for tag, attributes in Reader(text).tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                assert (value or "").startswith(("data:image/png;base64,", "#")), (tag, name)
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http:" not in outside and "https:" not in outside
    assert not re.search(r"url\((?!#)", outside)


@pytest.mark.quick
def test_it_says_what_the_records_say(tmp_path: Path) -> None:
    text = made(tmp_path)
    words = " ".join(" ".join(Reader(text).text).split())
    for part in (
        "Does the score <matter> & how much?",
        "supported (4 seeds)",
        "Claim: Content beats location.",
        "12 trials: 12 done",
        "[-0.5185, -0.4815]",
        "12,353",
        "2.5 G",
        "additive - location >= 0.3",
    ):
        assert part in words
    assert '<p class="verdict yes">' in text and "unfinished" not in text.partition("<body>")[2]
    assert text.count("<figure>") == 4 and text.count("<img ") == 9 and text.count("<details>") == 6
    assert all(attributes.get("alt") for tag, attributes in Reader(text).tags if tag == "img")


def test_false_open_and_absent_claims_look_different(tmp_path: Path) -> None:
    false = claim({"location": 1.0, "additive": -1.0})
    text = made(tmp_path / "false", claim=false)
    assert '<p class="verdict no"><b>not supported (4 seeds)</b>' in text
    assert "verdict yes" not in text
    words = '<p class="verdict open"><b>undecided at 1 seed'
    assert words in made(tmp_path / "open", {"additive": (0.9,), "location": (0.1,)})
    assert '<p class="verdict">No claim was stated.</p>' in made(tmp_path / "none", claim=None)


def test_half_done_and_lost_trials_are_marked(tmp_path: Path) -> None:
    text = made(tmp_path / "half", {**SCORES, "general": (math.nan,) * 4}, final=False)
    assert '<p class="unfinished">Unfinished: ' in text
    assert "The test split has not been read" in text and "<img " not in text
    text = made(tmp_path / "lost", {**SCORES, "general": (0.9, math.nan, 0.9, 0.8)})
    assert re.search(r'<tr class="weak"[^>]*>.*seed 1 diverged', text)
    Reader(text)


@pytest.mark.quick
def test_without_a_script_everything_is_there_and_can_be_found(tmp_path: Path) -> None:
    """What is folded opens by itself; nothing is hidden by the style sheet; rows carry the numbers
    by which figures call them, and cells the names of their columns, for narrow screens.
    """
    text = re.sub(r"<script>.*</script>", "", made(tmp_path), flags=re.DOTALL)
    assert "<button" not in text and "hidden" not in text and "visibility: hidden" not in text
    tags = Reader(text).tags
    called = {attributes["data-row"] for _, attributes in tags if "data-row" in attributes}
    rows = {attributes.get("data-row") for tag, attributes in tags if tag == "tr"} - {None}
    assert called == rows == {"0", "1", "2"}
    pairs = itertools.pairwise(tag for tag, _ in tags)
    assert all(tag == "summary" for before, tag in pairs if before == "details")
    cells = [attributes for tag, attributes in tags if tag == "td"]
    assert cells and all("data-label" in attributes for attributes in cells)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags


@pytest.mark.quick
def test_warnings_come_before_anything_else(tmp_path: Path) -> None:
    warning = Warned("looks <2>", "the test split was read twice & more")
    text = page(dataclasses.replace(gather(sweep(tmp_path)), warnings=(warning,)))
    place = text.index("<li><b>looks &lt;2&gt;</b>: the test split was read twice &amp; more</li>")
    assert text.index("<h1>") < place < text.index('<p class="verdict')
    assert '<ul class="warnings">' not in made(tmp_path / "none")


def test_a_table_of_thousands_of_rows_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that are not done come first in what is kept."""
    monkeypatch.setattr(report_page, "MOST", 5)
    text = made(tmp_path, {**SCORES, "location": (0.4, 0.4, 0.4, math.nan)})
    trials = text[text.index("<h2>Trials</h2>") :]
    assert trials.partition("</table>")[0].count("<tr") == 6
    assert "diverged" in trials.partition("</table>")[0]
    assert "5 of 12 rows are here" in trials


@pytest.mark.full
def test_fifty_variants_leave_room_for_pictures(tmp_path: Path) -> None:
    """A page is to have less than 2 MB: pictures take four thirds of `BYTES`, and what does not
    grow with seeds half of the rest.
    """
    scores = {f"variant {place}": (0.9 - place / 100, 0.9 - place / 90) for place in range(50)}
    text = made(tmp_path, scores, claim=None)
    assert len(text.encode()) < (2_000_000 - examples.BYTES * 4 / 3) / 2
    assert "in grey: 42 others" in text


@pytest.mark.parametrize(
    ("width", "maps", "several", "long"), [(600, 1, 0, 0), (600, 2, 1, 0), (601, 1, 1, 1)]
)
def test_pictures_that_are_many_or_long_get_the_whole_width(
    tmp_path: Path, width: int, maps: int, several: int, long: int
) -> None:
    """A system's only small picture shares its line with others; the width of a PNG stands in bytes
    16 to 19.
    """
    found = sweep(tmp_path, SCORES)
    for folder in {path.parent for path in tmp_path.rglob("maps/test0*.png")}:
        for path in folder.glob("*.png"):
            path.unlink()
        (folder.parent / "examples.json").unlink()
        (folder.parent / "translations.txt").unlink()
        for place in range(maps):
            picture = PNG[:16] + width.to_bytes(4) + PNG[20:]
            (folder / f"test0-cross{place}.png").write_bytes(picture)
    shown = page(gather(found))
    articles = shown.count("<article")
    assert articles >= 2 and shown.count('<article class="several"') == several * articles
    assert shown.count('<img class="long"') == long * articles
