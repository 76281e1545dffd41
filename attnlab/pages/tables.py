"""A table as text in cells, numbers as such text, and the table as Markdown and as LaTeX."""

import dataclasses
import math
from collections.abc import Sequence

from attnlab.errors import visible

NONE = "-"
LONGEST = 1e15  # numbers from here on are written with a power of 10


@dataclasses.dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
      title: above it.
      columns: their heads.
      rows: as many cells each.
      numbers: which columns hold numbers, aligned to the right.
      strong, weak: which rows to emphasise, and which to weaken (partial ones).
      notes: below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()
    weak: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def only(self, columns: Sequence[str]) -> "Table":
        """The same with these columns only."""
        return self.at([self.columns.index(column) for column in columns])

    def at(self, places: Sequence[int]) -> "Table":
        """Returns a copy of the table with only the columns at the indices `places`, in this order;
        two columns may have the same heading.
        """
        columns, *rows = (
            tuple(row[place] for place in places) for row in (self.columns, *self.rows)
        )
        numbers = _moved(self.numbers, places)
        return dataclasses.replace(self, columns=columns, rows=tuple(rows), numbers=numbers)

    def rows_at(self, places: Sequence[int]) -> "Table":
        """Returns the table with only the rows at these indices, in this order."""
        strong, weak = (_moved(marked, places) for marked in (self.strong, self.weak))
        rows = tuple(self.rows[place] for place in places)
        return dataclasses.replace(self, rows=rows, strong=strong, weak=weak)


def _moved(marked: frozenset[int], places: Sequence[int]) -> frozenset[int]:
    """The new places of what is marked, where the old `places` are kept in this order."""
    return frozenset(new for new, old in enumerate(places) if old in marked)


def number(value: float | None) -> str:
    """Returns a number as text with four significant digits; from 10,000 on as an integer with
    commas, from `LONGEST` on with an exponent; "-" for None.
    """
    if value is None:
        return NONE
    if abs(value) >= LONGEST:
        return f"{value:.4g}"
    return f"{value:#.4g}".rstrip(".") if abs(value) < 9999.5 else f"{value:,.0f}"


def signed(value: float) -> str:
    """`number` with its sign."""
    return f"{'+' * (value >= 0)}{number(value)}"


def interval(value: tuple[float, float] | None) -> str:
    """Returns an interval (low, high) as "[low, high]" with as many decimals as show three digits
    of its width (4 decimals without a width), but at most five digits of its larger end; from
    `LONGEST` on with three digits; "-" for None.
    """
    if value is None:
        return NONE
    width, most = value[1] - value[0], max(map(abs, value))
    if most >= LONGEST:
        return f"[{value[0]:.3g}, {value[1]:.3g}]"
    decimals = (
        max(0, min(2 - math.floor(math.log10(width)), 4 - math.floor(math.log10(most))))
        if width > 0
        else 4
    )
    return f"[{value[0]:,.{decimals}f}, {value[1]:,.{decimals}f}]"


def mean(value: float | None, around: tuple[float, float] | None) -> str:
    """ "0.925 [0.904, 0.946]", without an interval the number alone."""
    return number(value) + (f" {interval(around)}" if around else "")


def p_value(value: float | None) -> str:
    """Three decimals, "< 0.001" below."""
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def scaled(value: float | None) -> str:
    """Returns a count as text with a decimal prefix, "1.23 G"; "-" for None."""
    if value is None:
        return NONE
    limit, prefix = prefix_of(value)
    return f"{value / limit:.4g}{prefix}"


def prefix_of(size: float) -> tuple[float, str]:
    """Returns the largest decimal prefix that is not above `size`, as a number and its sign (" k");
    (1, "") below 1,000.
    """
    prefixes = ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))
    return next(((limit, prefix) for limit, prefix in prefixes if size >= limit), (1.0, ""))


def milliseconds(seconds: float | None, together: int = 1) -> str:
    """Returns seconds as milliseconds in text, with three digits or all before the point, and the
    number of trials that share the step if more than one.
    """
    if seconds is None:
        return NONE
    shown = f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"
    return f"{shown} (share of a step of {together})" if together > 1 else shown


def memory(size: float | None, together: int = 1) -> str:
    """Returns bytes as MiB or GiB in text, and of how many trials they are if more than one; "-"
    for None.
    """
    if size is None:
        return NONE
    shown = f"{size / 2**30:.4g} GiB" if size >= 2**30 else f"{size / 2**20:.4g} MiB"
    return f"{shown} (of {together} trials)" if together > 1 else shown


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "[": "{[}",  # at the start of a row it would be an option of the preceding line break
}


def markdown(table: Table) -> str:
    """Returns a table as Markdown: a heading, a pipe table with strong rows in bold, and its notes."""
    head = ["---:" if place in table.numbers else "---" for place in range(len(table.columns))]
    rows = [
        [f"**{cell}**" if cell and place in table.strong else cell for cell in map(literal, row)]
        for place, row in enumerate(table.rows)
    ]
    every = ([*map(literal, table.columns)], head, *rows)
    lines = [f"| {' | '.join(cells)} |" for cells in every]
    notes = (f"{literal(note)}\n" for note in table.notes)
    return "\n".join([f"## {literal(table.title)}", "", *lines, "", *notes])


def latex(table: Table) -> str:
    r"""Returns a table as a LaTeX `table` environment with booktabs rules
    (`\usepackage{booktabs}`), strong rows in bold, title and notes in the caption.
    """
    sides = "".join("r" if place in table.numbers else "l" for place in range(len(table.columns)))
    rows = [
        [_latex(cell, i in table.strong, j in table.numbers) for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    caption = " ".join(map(_escaped, (f"{table.title}.", *table.notes)))
    body = [" & ".join(row) + r" \\" for row in rows]
    head = " & ".join(map(_escaped, table.columns)) + r" \\"
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        head,
        r"\midrule",
    ]
    return "\n".join([*lines, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def literal(text: str) -> str:
    """Returns the text escaped for Markdown, so that it neither ends a cell nor is read as Markdown
    or HTML.
    """
    for sign in ("\\", "|", "*", "_", "`", "<", "[", "&", "~"):
        text = text.replace(sign, f"\\{sign}")
    return visible(" ".join(text.splitlines()))


def _latex(cell: str, strong: bool, numbers: bool) -> str:
    """Returns a cell escaped for LaTeX, in bold if `strong`, with minus signs if it holds numbers,
    "--" for an empty one.
    """
    text = "--" if cell == NONE else _escaped(cell)
    text = text.replace("-", "$-$") if numbers and cell != NONE else text
    return rf"\textbf{{{text}}}" if strong and text else text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in visible(text))
