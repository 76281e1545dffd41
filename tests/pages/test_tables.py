"""Tables as text in cells; Markdown and LaTeX of one whose cells hold every sign that means something
there.
"""

import pytest

from attnlab.pages import tables

TEXTS = [
    (tables.number(None), "-"),
    (tables.number(0.123456), "0.1235"),
    (tables.number(0.5), "0.5000"),
    (tables.number(-9999.4), "-9999"),
    (tables.number(123456.7), "123,457"),
    (tables.number(1.1371579e61), "1.137e+61"),
    (tables.interval((-9.70978e62, 1.13687e63)), "[-9.71e+62, 1.14e+63]"),
    (tables.signed(0.25), "+0.2500"),
    (tables.signed(-0.25), "-0.2500"),
    (tables.interval((0.5, 12.3456)), "[0.5, 12.3]"),
    (tables.interval((-0.0877412, 0.0005513)), "[-0.0877, 0.0006]"),
    (tables.interval((12345.6, 23456.7)), "[12,346, 23,457]"),
    (tables.interval((0.994871, 1.002463)), "[0.9949, 1.0025]"),  # beside a mean of 0.9987
    (tables.interval((0.998671, 0.998712)), "[0.99867, 0.99871]"),
    (tables.interval((-0.0001234, 0.0000171)), "[-0.000123, 0.000017]"),
    (tables.interval((99.99, 100.01)), "[99.99, 100.01]"),
    (tables.interval((1.0, 1.0)), "[1.0000, 1.0000]"),
    (tables.p_value(0.0004), "< 0.001"),
    (tables.p_value(0.04999), "0.050"),
    (tables.scaled(999.0), "999"),
    (tables.scaled(1_234_567.0), "1.235 M"),
    (tables.scaled(2.5e15), "2.5 P"),
    (tables.milliseconds(0.00123456), "1.23"),
    (tables.milliseconds(12.3456), "12,346"),
    (tables.memory(1023 * 2**20), "1023 MiB"),
    (tables.memory(3 * 2**29), "1.5 GiB"),
]


@pytest.mark.quick
@pytest.mark.parametrize(("made", "text"), TEXTS)
def test_numbers_as_text(made: str, text: str) -> None:
    assert made == text


TABLE = tables.Table(
    "a_b | c",
    ("variant", "n", "x"),
    (("one|two_*<b>", "3", "-"), ("[50 % & \\more", "-4", "")),
    numbers=frozenset((1,)),
    strong=frozenset((1,)),
    notes=("p < 0.05 #1\x1b",),
)


@pytest.mark.quick
def test_markdown() -> None:
    assert tables.markdown(TABLE).splitlines() == [
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
    assert tables.latex(TABLE).splitlines() == [
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
