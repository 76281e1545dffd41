"""A table as Markdown and as LaTeX."""

from attnlab.errors import visible
from attnlab.pages.tables import NONE, Table

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
