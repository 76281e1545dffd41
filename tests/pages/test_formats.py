"""Markdown and LaTeX of a table whose cells hold every sign that means something there."""

import pytest

from attnlab.pages.formats import latex, markdown
from attnlab.pages.tables import Table

TABLE = Table(
    "a_b | c",
    ("variant", "n", "x"),
    (("one|two_*<b>", "3", "-"), ("[50 % & \\more", "-4", "")),
    numbers=frozenset((1,)),
    strong=frozenset((1,)),
    notes=("p < 0.05 #1\x1b",),
)


@pytest.mark.quick
def test_markdown() -> None:
    assert markdown(TABLE).splitlines() == [
        r"## a\_b \| c",
        "",
        "| variant | n | x |",
        "| --- | ---: | --- |",
        r"| one\|two\_\*\<b> | 3 | - |",
        r"| **\[50 % \& \\more** | **-4** |  |",
        "",
        r"p \< 0.05 #1␛",
    ]


@pytest.mark.quick
def test_latex() -> None:
    assert latex(TABLE).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{a\_b $|$ c. p $<$ 0.05 \#1␛}",
        r"\begin{tabular}{lrl}",
        r"\toprule",
        r"variant & n & x \\",
        r"\midrule",
        r"one$|$two\_*$<$b$>$ & 3 & -- \\",
        r"\textbf{{[}50 \% \& \textbackslash{}more} & \textbf{$-$4} &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
