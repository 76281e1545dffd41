"""How large is the atlas of a large model, how long does it take to open, and how fast does it answer?

    python -m benchmarks.atlas --layers=12 --heads=12 --tokens=128

The weights are made up: rows of a Dirichlet distribution. Times are of `performance.now()` in a
headless Chromium ($CHROME, or `chromium` on the PATH), in milliseconds: from the start of the
address to the end of the page's script, to the last small map, and from a choice (a head by its
small map, a layer by a key, a query by its token, also
with the whole map drawn large, a search) until the page is drawn and laid out;
pixels on a screen come after. Prints them against the targets.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from attnlab.pages.atlas import AtlasExample, AtlasMap, write_atlas
from attnlab.progress import table
from tests.pages.browser import CHROMIUM, run_in_page

MEGABYTES, OPENING, ANSWER = 10, 2000, 50  # targets; the last two in milliseconds
MEASURE = """
const opened = performance.now();
dispatchEvent(new Event("beforeprint"));
const drawn = performance.now(), tiles = all(".tile"), times = {};
const time = (name, choose) => {
  times[name] = [];
  for (let turn = 0; turn < 20; turn++) {
    const began = performance.now();
    choose(turn);
    document.body.getBoundingClientRect();
    first(".plot").getContext("2d").getImageData(0, 0, 1, 1);
    times[name].push(performance.now() - began);
  }
};
time("head", turn => tiles[turn * 7 % tiles.length].click());
time("layer", () => press("ArrowDown"));
time("query", turn => tokens()[turn * 5 % tokens().length].click());
set("window", "all");
time("query, whole text", turn => tokens()[turn * 3 % tokens().length].click());
time("search", turn => set("sought", `t${turn}`));
return {opened, drawn, times};
"""


def main() -> None:
    """Write the page, measure it, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, number in (("layers", 12), ("heads", 12), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=number)
    chosen = parser.parse_args()
    if not CHROMIUM:
        parser.error("no chromium on the PATH, and no $CHROME")
    rows = measure(chosen.layers, chosen.heads, chosen.tokens)
    title = f"an atlas of {chosen.layers} x {chosen.heads} heads of {chosen.tokens} tokens"
    table(title, ("figure", "value", "target", ""), rows)


def measure(layers: int, heads: int, tokens: int) -> list[tuple[str, float, str, str]]:
    """Returns a row for each figure: name, value, target, and whether it is reached."""
    generator, text = np.random.default_rng(0), [f"t{place}" for place in range(tokens)]
    maps = [
        AtlasMap(f"layer_{layer}/self", weights, text, text, statistics={"largest": weights.max((1, 2))})
        for layer in range(layers)
        for weights in [generator.dirichlet([0.1] * tokens, (heads, tokens)).astype(np.float32)]
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "atlas.html"
        write_atlas(page, "measured", [AtlasExample("a text", maps)])
        size = page.stat().st_size / 1e6
        seen = run_in_page(page, MEASURE, at_once=True)
    medians = {
        f"{name}, median of 20 (ms)": float(np.median(times))
        for name, times in seen["times"].items()
    }
    limits = {"page (MB)": (size, MEGABYTES), "opening (ms)": (seen["opened"], OPENING)}
    limits["opening, with all small maps (ms)"] = (seen["drawn"], OPENING)
    limits |= {name: (median, ANSWER) for name, median in medians.items()}
    return [
        (name, round(value, 1), f"<= {limit}", "reached" if value <= limit else "missed")
        for name, (value, limit) in limits.items()
    ]


if __name__ == "__main__":
    main()
