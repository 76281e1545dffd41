"""Pictures as SVG elements inside a page, and their axes: from numbers to places, and ticks. They are
written as text, with the fonts and colours of the page.

Marks of one row of a table are a group with `data-row` and a `<title>`: the page highlights the
group, and shows the title under the pointer. The classes that the elements have are described in
`attnlab.pages.html`.
"""

import dataclasses
import html
import itertools
import math
import re
from collections.abc import Iterable, Sequence

from attnlab.pages.html import COLOURS
from attnlab.pages.tables import prefix_of

WIDE = 20.0  # from this ratio of the largest to the smallest number on an axis is logarithmic
_EDGE = 0.04  # the share of an axis that is left free at each end


@dataclasses.dataclass(frozen=True)
class Scale:
    """One axis.

    Attributes:
      low, high: the numbers at its ends, low < high.
      begin, end: their places; `end` may be the smaller one, as on a vertical axis.
      log: equal ratios, not differences, are equal lengths.
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    @classmethod
    def over(
        cls, values: Iterable[float], begin: float, end: float, *, log: bool | None = None
    ) -> "Scale":
        """Returns an axis from position `begin` to `end` of the picture that shows all `values` (0
        to 1 if there are none) with some space beside them; it is logarithmic if `log` (None: if
        largest / smallest is at least `WIDE`) and all values are above 0.

        Args:
          values: finite; without any the axis goes from 0 to 1.
          begin, end: as in the class.
          log: None: logarithmic if all values are above 0 and the largest is `WIDE` times the
            smallest.
        """
        numbers = list(values) or [0.0, 1.0]
        low, high = min(numbers), max(numbers)
        log = low > 0 and (high / low >= WIDE if log is None else log)
        if log:
            room = (high / low) ** _EDGE if high > low else 1.1
            return cls(low / room, high * room, begin, end, log=True)
        room = (high - low) * _EDGE or abs(high) * 0.1 or 0.5
        return cls(low - room, high + room, begin, end)

    def __call__(self, value: float) -> float:
        """Returns the position of a number along the axis, between `begin` and `end` if it is
        within the axis.
        """
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = map(math.log, (low, high, at))
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)

    def clipped(self, value: float) -> float:
        """The place of a number; for a number beyond the axis the nearer end."""
        return self(min(max(value, self.low), self.high))

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Returns the ticks of the axis, about `most` at most, as pairs of a round number and its
        text.
        """
        if self.log and self.high / self.low >= 6:
            return [(value, label(value, value)) for value in self._powers(most)]
        values = self._steps(most)
        apart = min((after - before for before, after in itertools.pairwise(values)), default=0.0)
        return [(value, label(value, apart)) for value in values]

    def _steps(self, most: int) -> list[float]:
        """Returns all multiples of a step between the ends of a linear axis; the step is the
        smallest 1, 2 or 5 times a power of ten that gives about `most` multiples or fewer.
        """
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(size * power for size in (1, 2, 5, 10) if size * power >= least)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]

    def _powers(self, most: int) -> list[float]:
        """Returns the numbers at which a logarithmic axis has ticks, at most `most`: 1, 2 and 5 (or
        1 and 3) times powers of ten, powers of ten alone, or every k-th of them.
        """
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        alone = (((1,), step) for step in range(1, last - first + 2))
        for leaders, every in (((1, 2, 5), 1), ((1, 3), 1), *alone):
            values = [
                leader * 10.0**power
                for power in range(first, last + 1)
                if power % every == 0
                for leader in leaders
            ]
            values = [value for value in values if self.low <= value <= self.high]
            if len(values) <= most:
                return values
        return []


def label(value: float, step: float) -> str:
    """Returns the text of the number `value` at a tick with enough digits to distinguish it from a
    number `step` away, a decimal prefix (such as k or M) from 10,000 on, and an exponent below
    0.001.
    """
    size = max(abs(value), abs(step))
    limit, prefix = prefix_of(size) if size >= 1e4 else (1.0, "")
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = min(6, max(0, math.ceil(-math.log10(abs(step) / limit) - 1e-9))) if step else 3
    return f"{value / limit:,.{decimals}f}{prefix}" if abs(value) > 0 else "0"


WIDTH, HEIGHT = 400.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 12.0, 34.0, 40.0
_NAMES = 92.0  # on the right, for names
_LETTER, _LINE = 5.9, 12.0  # about the width of a letter and the height of a line of text
Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Look:
    """The style of the marks of a row.

    Attributes:
      row: the number of the row.
      name: of the row.
      kind: a class: "c0" to "c6" for a colour, "base" for the baseline, "other" for one among many.
    """

    row: int
    name: str
    kind: str

    @property
    def label(self) -> str:
        """The name of the row, with "(baseline)" after it where it is that."""
        return f"{self.name} (baseline)" if self.kind == "base" else self.name

    @property
    def shown(self) -> bool:
        """Whether the row stands out, in a colour or as the baseline."""
        return self.kind != "other"


class Chart:
    """A picture with two axes; marks are added one after the other.

    Attributes:
      x, y: the axes, see `Scale`.
    """

    def __init__(
        self,
        title: str,
        x: Sequence[float],
        y: Sequence[float],
        *,
        x_label: str = "",
        y_label: str = "",
        x_log: bool | None = None,
        y_log: bool | None = None,
        names: bool = False,
    ) -> None:
        """Computes both axes so that they show all values `x` and `y` (`x_log`, `y_log`: on a
        logarithmic scale; None: `Scale.over` decides), and draws the grid and the axis labels;
        `names` leaves space for names on the right.

        Args:
          title: above the picture, and what a screen reader calls it.
          x, y: all values to be shown.
          x_label, y_label: below and above the axes.
          x_log, y_log: see `Scale.over`.
          names: leave room for names on the right.
        """
        self.x = Scale.over(x, _LEFT, WIDTH - (_NAMES if names else _RIGHT), log=x_log)
        self.y = Scale.over(y, HEIGHT - _BOTTOM, _TOP, log=y_log)
        self._title = title
        self._taken: list[tuple[float, float, float, float]] = []
        self._parts = [*self._grid(), *self._labels(x_label, y_label)]

    def group(self, look: Look, about: str, marks: Iterable[str]) -> None:
        """Adds the SVG elements `marks` to the drawing as one group with the class and the table
        row of `look` and the tooltip `about`; without marks nothing is added.
        """
        inside = "".join(marks)
        if inside:
            title = f"<title>{html.escape(about)}</title>"
            row = f'<g class="{look.kind}" data-row="{look.row}">'
            self._parts.append(f"{row}{title}{inside}</g>")

    def draw(self, mark: str) -> None:
        """Draw a mark that belongs to no row."""
        self._parts.append(mark)

    def line(self, points: Sequence[Point], kind: str = "line") -> str:
        """Returns the SVG element of a line through points; a dot for one point, "" for none."""
        if len(points) == 1:
            return self.dot(points[0])
        return f'<path class="{kind}" d="{self._path(points)}"/>' if points else ""

    def band(self, low: Sequence[Point], high: Sequence[Point]) -> str:
        """The area between two lines."""
        path = self._path([*low, *reversed(high)])
        return f'<path class="band" d="{path}Z"/>' * (len(low) > 1)

    def dot(self, point: Point, kind: str = "dot", radius: float = 3.0) -> str:
        """A dot."""
        x, y = _short(self.x(point[0])), _short(self.y(point[1]))
        return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{_short(radius)}"/>'

    def cross(self, point: Point) -> str:
        """A small cross."""
        x, y = _short(self.x(point[0]) - 3), _short(self.y(point[1]) - 3)
        return f'<path class="cross" d="M{x} {y}l6 6m0-6l-6 6"/>'

    def upright(self, at: float, low: float, high: float) -> str:
        """Returns the SVG element of a vertical line from `low` to `high` at the number `at`, cut
        at the ends of the axis.
        """
        x = _short(self.x(at))
        begin, end = (_short(self.y.clipped(y)) for y in (low, high))
        return f'<path class="thin" d="M{x} {begin}V{end}"/>'

    def name(self, point: Point, text: str, longest: int = 16) -> str:
        """Returns the SVG of a name `text`, in `brief`, beside a data point (x, y), at the first of
        eight positions that is free, and reserves that position; "" if none is free.
        """
        x, y, shown = self.x(point[0]), self.y(point[1]), brief(text, longest)
        aside = ((6, 4, "start"), (-6, 4, "end"))
        places = [*aside, (0, -8, "middle"), (0, 16, "middle")]
        places += [(left, below, side) for left, _, side in aside for below in (16, -8)]
        for left, below, anchor in places:
            box = _box(x + left, y + below, shown, anchor)
            across = self.x.begin <= box[0] and box[1] <= WIDTH
            inside = across and box[2] >= _TOP - _LINE and box[3] <= HEIGHT - _BOTTOM + 2
            if inside and not any(_meet(box, other) for other in self._taken):
                self._taken.append(box)
                return _text(x + left, y + below, shown, "label", anchor)
        return ""

    def keep_free(self, point: Point, radius: float = 3.0) -> None:
        """Let no text cover a point."""
        x, y = self.x(point[0]), self.y(point[1])
        self._taken.append((x - radius, x + radius, y - radius, y + radius))

    def end_names(self, ends: Sequence[tuple[Look, Point]], longest: int = 13) -> None:
        """Adds the name of each line, in `brief`, in a column right of the axes,
        with a thin line to it from the line's end (`ends`: pairs of a line's look and its last data
        point), moved up or down so that none covers another; too many names run out at the top.
        """
        ranked = sorted(ends, key=lambda end: self.y.clipped(end[1][1]))
        places = _apart(
            [self.y.clipped(point[1]) for _, point in ranked], _TOP + 4, HEIGHT - _BOTTOM
        )
        for (look, point), y in zip(ranked, places, strict=True):
            begin = f"{_short(self.x(point[0]) + 1)} {_short(self.y.clipped(point[1]))}"
            lead = f'<path class="lead" d="M{begin}L{_short(self.x.end + 4)} {_short(y)}"/>'
            text = _text(self.x.end + 6, y + 3.5, brief(look.name, longest), "label")
            self.group(look, look.name, [lead, text])

    @property
    def text(self) -> str:
        """Returns the drawing as an `<svg>` element; equal drawings give equal text."""
        head = (
            f'<svg class="chart" role="img" aria-label="{html.escape(self._title)}"'
            f' viewBox="0 0 {WIDTH:g} {HEIGHT:g}">'
        )
        title = _text(WIDTH / 2, 14, self._title, "title")
        return "\n".join([head, title, *self._parts, "</svg>"])

    def _grid(self) -> list[str]:
        """Returns a list of three SVG elements as text: the grid lines, the axes (one path), and
        the group of the numbers at the ticks.
        """
        across = [(_short(self.y(value)), text) for value, text in self.y.ticks()]
        left, right, bottom = _short(_LEFT), _short(self.x.end), _short(HEIGHT - _BOTTOM)
        lines = "".join(f"M{left} {y}H{right}" for y, _ in across) + "".join(
            f"M{_short(self.x(value))} {_short(_TOP)}V{bottom}" for value, _ in self.x.ticks(5)
        )
        names = [
            f'<text x="{_short(_LEFT - 5)}" y="{y}" dy="3.5" text-anchor="end">{text}</text>'
            for y, text in across
        ]
        names += [
            _text(self.x(value), HEIGHT - _BOTTOM + 14, text, anchor="middle")
            for value, text in self.x.ticks(5)
        ]
        axes = f'<path class="axis" d="M{left} {_short(_TOP)}V{bottom}H{right}"/>'
        return [f'<path class="grid" d="{lines}"/>', axes, f'<g class="ticks">{"".join(names)}</g>']

    def _labels(self, x_label: str, y_label: str) -> list[str]:
        below = _text((_LEFT + self.x.end) / 2, HEIGHT - 8, x_label, "ticks", "middle")
        above = _text(4, _TOP - 8, y_label, "ticks")
        return [below] * bool(x_label) + [above] * bool(y_label)

    def _path(self, points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{_short(self.x(x))} {_short(self.y.clipped(y))}" for x, y in points)


def kind(place: int) -> str:
    """The class of the row at `place` among those with a colour; "other" after the last colour."""
    return f"c{place}" if place < len(COLOURS) else "other"


def swatch(look: Look) -> str:
    """Returns a small SVG picture of a line in the style of a row, for legends."""
    return (
        f'<svg class="swatch {look.kind}" viewBox="0 0 26 8"><path class="line" d="M1 4H25"/></svg>'
    )


def brief(name: str, longest: int) -> str:
    """Returns a name in at most `longest` characters: if it is longer, the values of its settings
    alone ("dot, 0.004" of "score=dot, peak=0.004"), without its middle if these are too long.
    """
    short = name if len(name) <= longest else re.sub(r"[^\s=(]+=", "", name)
    if len(short) <= longest:
        return short
    end = (longest - 1) // 2
    return f"{short[: longest - 1 - end].rstrip()}\u2026{short[-end:].lstrip()}"


def cut(text: str, longest: int) -> str:
    """Text without its end if it is too long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _short(value: float) -> str:
    """A place with one decimal, which is a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    """A text at a place, of a class and with an anchor where these are given."""
    begin, end = f'class="{kind}" ' * bool(kind), f' text-anchor="{anchor}"' * bool(anchor)
    return f'<text {begin}x="{_short(x)}" y="{_short(y)}"{end}>{html.escape(text)}</text>'


def _box(x: float, y: float, text: str, anchor: str) -> tuple[float, float, float, float]:
    """Estimates left, right, top and bottom of a text at this position."""
    width = _LETTER * len(text)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return left, left + width, y - _LINE + 3, y + 2


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def _apart(places: Sequence[float], least: float, most: float) -> list[float]:
    """Returns the sorted heights `places`, moved so that neighbours are at least a line of text
    apart, from `least` to `most`; where they are too many for that, the first ones get less than
    `least`.
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + _LINE if moved else least))
    limit = most
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], limit)
        limit = moved[number] - _LINE
    return moved
