"""Pictures that take part in a page; their axes: places, logarithms and ticks."""

import itertools
import math
import re
import xml.etree.ElementTree
from collections.abc import Iterator

import pytest

from attnlab.pages.svg import HEIGHT, WIDTH, Chart, Look, Scale, brief

LOOK = Look(3, "a <b>", "c0")


def drawn() -> Chart:
    labels = {"x_label": "step", "y_label": "nats"}
    chart = Chart("loss <b> & $x$", [0.0, 10.0], [1.0, 2.0], **labels, names=True)
    low, high = ([(0.0, 1.0), (10.0, 1.5)], [(0.0, 1.2), (10.0, 2.0)])
    marks = [chart.band(low, high), chart.line(low), chart.dot(low[0]), chart.cross(high[0])]
    chart.group(LOOK, "a <b>: 1", [*marks, chart.upright(5.0, -9.0, 9.0)])
    return chart


@pytest.mark.quick
def test_a_picture_is_one_element_that_takes_part_in_the_page() -> None:
    """No size, no file of its own, no colour of its own; text is text and shown as it is; the same
    drawing gives the same text.
    """
    text = drawn().text
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == "svg" and root.attrib["aria-label"] == "loss <b> & $x$"
    assert {"width", "height"}.isdisjoint(root.attrib)
    group = next(one for one in root if one.get("data-row") == "3")
    assert group.get("class") == "c0" and group[0].tag == "title" and group[0].text == "a <b>: 1"
    assert {"loss <b> & $x$", "step", "nats"} <= {one.text for one in root.iter("text")}
    assert drawn().text == text and "#" not in text and " id=" not in text and len(text) < 3000


def places(text: str) -> Iterator[tuple[float, float]]:
    for path in re.findall(r'class="(?:line|band)" d="([^"]*)"', text):
        yield from ((float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path))


def test_everything_lies_within_the_picture() -> None:
    """What is drawn, and an upright that reaches beyond the axis."""
    text = drawn().text
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places(text))
    assert len(list(places(text))) == 6
    ((top, bottom),) = re.findall(r'class="thin" d="M[\d.]+ ([\d.]+)V([\d.]+)"', text)
    assert 0 <= float(bottom) < float(top) <= HEIGHT


@pytest.mark.quick
def test_names_at_the_ends_of_lines_do_not_cover_each_other() -> None:
    chart = Chart("many", [0.0, 1.0], [0.0, 1.0], names=True)
    looks = [Look(number, f"a long name, number {number}", "c0") for number in range(8)]
    chart.end_names([(look, (1.0, 0.5)) for look in looks])
    heights = [float(y) for y in re.findall(r'class="label" x="[\d.]+" y="([\d.]+)"', chart.text)]
    assert len(heights) == 8
    assert all(after - before >= 11 for before, after in itertools.pairwise(heights))
    assert heights[0] > 0 and heights[-1] < HEIGHT and "a long…mber 0" in chart.text
    assert len(set(re.findall(r'class="label"[^>]*>([^<]+)', chart.text))) == 8
    assert "number 7</title>" in chart.text


def test_names_beside_points_take_a_free_place_or_none() -> None:
    chart = Chart("points", [0.0, 1.0], [0.0, 1.0])
    names = [chart.name((0.5, 0.5), "the same place") for _ in range(6)]
    assert [bool(name) for name in names] == [True] * 4 + [False] * 2 and len(set(names[:4])) == 4
    assert 'text-anchor="end"' in chart.name((1.0, 0.1), "at the right end")
    alike = [(0.0, 0.20), (0.0, 0.21)]  # at the left end, where no text fits but on the right
    for point in alike:
        chart.keep_free(point)
    assert all(chart.name(point, "multihead") for point in alike)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("score=dot", "score=dot"),
        ("score=dot, peak=0.004", "dot, 0.004"),
        ("additive (peak=0.004)", "additive (0.004)"),
        ("without feed_forward", "without…forward"),
        ("score=additive, peak=0.001, heads=2", "additive….001, 2"),
    ],
)
def test_a_long_name_keeps_what_tells_it_from_others(name: str, text: str) -> None:
    assert brief(name, 16) == text


@pytest.mark.quick
def test_every_value_has_its_place_within_the_axis() -> None:
    scale = Scale.over([2.0, 4.0], 0.0, 100.0)
    assert not scale.log and 0 < scale(2.0) < scale(3.0) < scale(4.0) < 100
    assert scale(3.0) == pytest.approx(50)
    upwards = Scale.over([2.0, 4.0], 100.0, 0.0)
    assert upwards(4.0) < upwards(2.0) and upwards.clipped(1e9) == 0
    assert upwards.clipped(-1e9) == pytest.approx(100)


def test_an_axis_is_logarithmic_where_the_range_asks_for_it_and_can_be() -> None:
    for low, high, asked in (
        (1.0, 19.0, None),
        (0.0, 20.0, None),
        (-1.0, 20.0, True),
        (1.0, 1e6, False),
    ):
        assert not Scale.over([low, high], 0.0, 1.0, log=asked).log
    for low, high, asked in ((1.0, 20.0, None), (1.0, 2.0, True)):
        scale = Scale.over([low, high], 0.0, 1.0, log=asked)
        assert scale.log and scale(math.sqrt(low * high)) == pytest.approx(0.5)


TICKS = [
    (0.0, 1.0, False, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    (-0.031, 0.018, False, ["-0.03", "-0.02", "-0.01", "0", "0.01"]),
    (100_001.0, 100_009.0, False, ["100.002 k", "100.004 k", "100.006 k", "100.008 k"]),
    (1.0, 100.0, True, ["1", "3", "10", "30", "100"]),
    (1e-5, 2.0, True, ["1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]),
    (2e3, 3e6, True, ["10 k", "100 k", "1 M"]),
    (1e9, 1.6e9, True, ["1.0 G", "1.1 G", "1.2 G", "1.3 G", "1.4 G", "1.5 G", "1.6 G"]),
    (1.0, 1e12, True, ["1", "1,000", "1 M", "1 G", "1 T"]),
]


@pytest.mark.quick
@pytest.mark.parametrize(("low", "high", "log", "texts"), TICKS)
def test_ticks_are_round_and_told_apart(
    low: float, high: float, log: bool, texts: list[str]
) -> None:
    ticks = Scale(low, high, 0.0, 1.0, log).ticks(7 if high == 1.6e9 else 6)
    assert [text for _, text in ticks] == texts
    within = [low <= value * (1 + 1e-9) <= high * (1 + 1e-9) ** 2 for value, _ in ticks]
    assert all(
        inside or abs(value) < 1e-9 for inside, (value, _) in zip(within, ticks, strict=True)
    )


def test_equal_or_no_values_have_an_axis_too() -> None:
    for values in ([], [0.0], [5.0], [-3.0, -3.0]):
        for log in (None, True):
            scale = Scale.over(values, 0.0, 1.0, log=log)
            assert scale.low < scale.high and len(scale.ticks()) >= 2
            assert all(0 <= scale(value) <= 1 for value in values)
