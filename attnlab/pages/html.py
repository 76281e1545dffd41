"""A self-contained HTML file, and its parts: sections, tables, text. Its frame, style sheet and script
are `page.html`, `page.css` and `page.js`.

It can be read on a telephone (a row of a table becomes a block with the names of its columns), on
light and dark ground, and on paper. All content is there without the script, but for what a page
with a script of its own draws. The script does what the page does with a pointer or the keyboard: a
click on a column's head sorts by it, and what belongs to the row under the pointer is lit
everywhere. Cells are numbers where they begin with one ("[0.1, 0.2]", "1.2 M", "< 0.001",
"0:01:30"); empty ones and "-" are last.
"""

import base64
import dataclasses
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnlab.errors import visible
from attnlab.pages.tables import Table

# Okabe and Ito's colours, which people with any colour vision tell apart, without their black and
# with a blue that shows on dark ground too. A class "c0" to "c6" has the colour of its place.
COLOURS = ("#1F83C4", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B5A900")
# Ends and stops of the colours of weights, by the theme of the page: lightness changes steadily, so
# that they are told apart with any colour vision and in grey. The first one is the ground.
RAMPS = {
    "light": {
        "up": "ffffff d3ecd9 86cfc0 3a9fb0 2a6796 2b3a74 1d1147",
        "plus": "ffffff b7d6ef 5aa5d8 1f6fb0 0b3c70",
        "minus": "ffffff f9d3b4 ee9a56 c75a0c 7a2f00",
    },
    "dark": {
        "up": "14171b 32387f 2f639a 22899a 3bb47d 9bd94a fde725",
        "plus": "14171b 1b4a78 1f7cc4 62bdf2 d8efff",
        "minus": "14171b 6a3208 bb580e f3a04f ffe6ca",
    },
}
_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8") + "".join(
    f".c{place} {{ color: {colour}; }}\n" for place, colour in enumerate(COLOURS)
)
PAGE = (_FOLDER / "page.html").read_text(encoding="utf-8")
SCRIPT = (_FOLDER / "page.js").read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A part of a page that is drawn.

    Attributes:
      title: above it.
      body: HTML.
      notes: below it; empty ones are left out.
    """

    title: str
    body: str
    notes: tuple[str, ...]


def figure(of: Figure) -> str:
    """A section with a figure and its notes."""
    return section(of.title, f"{of.body}\n{notes(*of.notes)}")


def panels(pictures: Sequence[str], most: int | None = None, name: str = "") -> str:
    """Pictures side by side; those after the first `most` are folded, as so many more of `name`."""
    parts = [f"<figure>{picture}</figure>" for picture in pictures]
    return fold_after(most, name, '<div class="figures">', parts, "</div>", "\n")


def picture(path: Path, about: str, kind: str = "") -> str:
    """Returns an HTML `img` of a PNG file, which is put into the page, with the text `about` for who
    cannot see it, and the class `kind` unless that is "".
    """
    data = base64.b64encode(path.read_bytes()).decode()
    begin = f'<img class="{kind}"' if kind else "<img"
    return f'{begin} alt="{literal(about)}" src="data:image/png;base64,{data}">'


def fold_after(
    most: int | None, name: str, begin: str, parts: Sequence[str], end: str, between: str = ""
) -> str:
    """Returns HTML with the first `most` parts (None: all) inside one element, `begin` to `end`,
    and the others folded inside another one, under "N more" of `name`.
    """
    most = len(parts) if most is None else most
    shown, rest = (f"{begin}{between.join(part)}{end}" for part in (parts[:most], parts[most:]))
    more = f"{len(parts) - most} more {name}"
    return shown + (fold(more, rest) if parts[most:] else "")


def whole(title: str, parts: Iterable[str], *, style: str = "", script: str = "") -> str:
    """Returns the whole file, of parts that are HTML; empty ones are left out.

    Args:
      title: of the file, as text.
      parts: HTML.
      style, script: CSS and JavaScript after those of every page.
    """
    body = "\n".join(part for part in parts if part)
    filled = {"style": STYLE + style, "script": SCRIPT + script, "body": body}
    return visible(PAGE.format(title=literal(title), **filled))


def table(of: Table, *, linked: bool = False, folded: bool = False) -> str:
    """Returns the table `of` as an HTML section with its title and notes; `linked` numbers the rows
    so that figures can refer to them, `folded` hides them until the reader opens them.

    Args:
      of: the table.
      linked: figures refer to its rows by number.
      folded: the rows are hidden until the reader opens them.
    """
    heads = "".join(  # a long name may break after "_"
        f"<th{_side(of, place)}>{literal(column).replace('_', '_<wbr>')}</th>"
        for place, column in enumerate(of.columns)
    )
    rows = "\n".join(_row(of, place, linked) for place in range(len(of.rows)))
    below = f"\n{notes(*of.notes)}" if of.notes else ""
    made = table_element("sortable" * (len(of.rows) > 1), heads, rows)
    body = f'<div class="wide">{made}</div>{below}'
    return section(
        of.title, fold(f"{len(of.rows)} row{'s' * (len(of.rows) != 1)}", body) if folded else body
    )


def table_element(kind: str, heads: str, rows: str) -> str:
    """A `<table>` of HTML heads and rows, with the class `kind` unless that is ""."""
    begin = f'<table class="{kind}">' if kind else "<table>"
    return f"{begin}\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _row(of: Table, place: int, linked: bool) -> str:
    """Returns row `place` of the table `of` as an HTML `<tr>` with its cells, the class "strong" or
    "weak" if the table marks the row so, and its number as `data-row` if `linked`.
    """
    kind = "strong" if place in of.strong else "weak" if place in of.weak else ""
    cells = "".join(
        f'<td{_side(of, column)} data-label="{literal(of.columns[column])}">{_cell(of, column, cell)}</td>'
        for column, cell in enumerate(of.rows[place])
    )
    link = f' data-row="{place}"' if linked else ""
    return f'<tr class="{kind}"{link}>{cells}</tr>' if kind else f"<tr{link}>{cells}</tr>"


def _cell(of: Table, column: int, cell: str) -> str:
    """Returns a cell as HTML; an interval is not broken over two lines."""
    return literal(cell).replace(", ", ",&nbsp;") if column in of.numbers else literal(cell)


def section(title: str, body: str) -> str:
    """A part of a page with a heading."""
    return f"<section>\n<h2>{literal(title)}</h2>\n{body}\n</section>"


def fold(title: str, body: str) -> str:
    """A part that is hidden until the reader opens it or prints the page."""
    return f"<details><summary>{literal(title)}</summary>{body}</details>"


def notes(*lines: str) -> str:
    """Lines as a list for below a table or a figure; empty ones are left out."""
    return f"<ul>{''.join(f'<li>{literal(line)}</li>' for line in lines if line)}</ul>"


def _side(of: Table, column: int) -> str:
    return ' class="number"' if column in of.numbers else ""


def literal(text: str) -> str:
    """Text escaped for HTML."""
    return html.escape(text).replace(" %", "&nbsp;%")
