"""The frame of a page, and its style sheet and script, which stand inside the file: `page.html`,
`page.css` and `page.js`.

The script does what the page does with a pointer or the keyboard: a click on a column's head sorts by
it, and what belongs to the row under the pointer is lit everywhere. Cells are numbers where they
begin with one ("[0.1, 0.2]", "1.2 M", "< 0.001", "0:01:30"); empty ones and "-" are last.
"""

from pathlib import Path

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
