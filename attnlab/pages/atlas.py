"""The atlas: one HTML file in which a reader chooses the layer, the head and the query of attention
maps, with the exact arrays beside it.

The file needs no network. Its script (`atlas.js`) decodes a map when it is drawn. In the file a
weight is a code of 16 bits: a sign, and the rounded logarithm of the weight relative to the largest
of its head. The error is relative, the same for small and large weights, and is stated on the page.

Axis letters: H heads, Tq queries, Tk keys, h and w of a grid of places, C channels of an image.
"""

import base64
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.errors import UserError, visible
from attnlab.pages import html
from attnlab.pages.svg import cut
from attnlab.pages.tables import Table, number
from attnlab.records.files import write_atomic

ARRAYS = "maps.npz"
LARGEST = 100_000_000  # bytes of weights in a page; a browser takes long to open more
LEVELS, STEP = 32767, 2.0**-11  # codes of positive weights, and the logarithm from one to the next
ERROR = math.exp(STEP / 2) - 1  # at most, relative to the weight
FLOOR = math.exp((0.5 - LEVELS) * STEP)  # below it, relative to the head's largest, a weight is 0
KINDS = {
    "exact": "These are the weights with which the model averaged its values, read from the pass"
    " that gave its answer.",
    "effective": "The model computes no such weights. This is the matrix by which its outputs"
    " depend on its values in the same pass; its entries may be below 0.",
    "sensitivity": "The layer is not linear. An entry is the norm of the derivative of an output"
    " with respect to an input, and holds for small changes of this input alone.",
}
CAUTION = (
    "A map says where a head reads from. It does not say that the answer depends on it: other"
    " weights can give the same answer (Jain and Wallace 2019; Wiegreffe and Pinter 2019). Switch"
    " the head off, or change its weights, before you explain an answer by them."
)
_FOLDER = Path(__file__).parent
STYLE, SCRIPT, ELEMENTS = (
    (_FOLDER / f"atlas.{kind}").read_text(encoding="utf-8") for kind in ("css", "js", "html")
)
_DUST = 1e-6  # a weight less than this below 0, relative to the largest, is 0, rounded
_BLANKS = {"\n": "\u23ce", "\t": "\u21e5", " ": "\u2423", "": "\u2205"}


@dataclasses.dataclass(frozen=True, eq=False)
class AtlasMap:
    """The maps of all heads of one layer for one example.

    Attributes:
      name: of the attention, its path in the system ("encoder_0/self_attention").
      weights: [H,Tq,Tk] float32, finite.
      queries: Tq tokens; the same list as `keys` where a text attends to itself.
      keys: Tk tokens; of a map over an image the places of its grid row by row, after tokens that
        are no places.
      kind: what the weights are, a key of `KINDS`.
      note: a further sentence on this map, "" for none.
      statistics: numbers of each head by the name of the statistic, H each; NaN where a head has
        none.
      grid: (h, w) of the places of the example's image that the last h * w keys are; None where
        keys are no places.
    """

    name: str
    weights: np.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    kind: str = "exact"
    note: str = ""
    statistics: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` if weights [H,Tq,Tk], tokens, kind, grid and statistics of the map do
        not fit each other, and `UserError` if a weight is not finite.

        Raises:
          UserError: a weight is not finite.
          ValueError: a shape that does not fit, or an unknown kind.
        """
        sizes = (len(self.queries), len(self.keys))
        if self.weights.ndim != 3 or self.weights.shape[1:] != sizes or not self.weights.size:
            raise ValueError(f"{self.name}: weights {self.weights.shape} for tokens {sizes}")
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: kind {self.kind!r}; choose from {', '.join(KINDS)}")
        if self.grid and math.prod(self.grid) > sizes[1]:
            raise ValueError(f"{self.name}: a grid {self.grid} for {sizes[1]} keys")
        for name, values in self.statistics.items():
            if len(values) != len(self.weights):
                raise ValueError(f"{self.name}: {name!r} of {len(values)} heads")
        if not np.isfinite(self.weights).all():
            raise UserError(f"map {self.name}: weights that are not finite cannot be shown")


@dataclasses.dataclass(frozen=True, eq=False)
class AtlasExample:
    """One input of one model, and its maps.

    Attributes:
      title: the text, or the name of the image.
      maps: of its layers, first to last; their names differ.
      model: the name of the model, "" where all examples are of one.
      image: [H,W,C] uint8 under the maps with a grid, C 1 or 3; None for none.
    """

    title: str
    maps: Sequence[AtlasMap]
    model: str = ""
    image: np.ndarray | None = None


def write_atlas(
    path: str | Path,
    title: str,
    examples: Sequence[AtlasExample],
    meanings: Mapping[str, str] | None = None,
) -> None:
    """Writes the attention maps of `examples` as an interactive HTML page to `path`, and as exact
    arrays to `maps.npz` in the same folder; `meanings` explains each statistic by name; raises
    `UserError` if the weights are too many for a page.

    The arrays of map "m" of example 0 are "0/m" [H,Tq,Tk], "0/m/queries" and "0/m/keys".

    Args:
      path: of the HTML file; its folder is made if absent.
      title: the heading of the page.
      examples: at least one; two of them can be seen side by side.
      meanings: what a statistic is, and its unit, by its name; shown beside its numbers.

    Raises:
      UserError: the weights are more than `LARGEST` bytes of the page; nothing is written.
      ValueError: no examples, or an example with two maps of one name or none.
    """
    _check(examples)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _page(title, examples, dict(meanings or {}))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **_arrays(examples))
    write_atomic(path.with_name(ARRAYS), buffer.getvalue())
    write_atomic(path, text)


def _check(examples: Sequence[AtlasExample]) -> None:
    """Raises `ValueError` if there is no example, or one without maps or with two maps of one name,
    and `UserError` if all weights together take more than `LARGEST` bytes of a page.
    """
    for example in examples:
        names = [part.name for part in example.maps]
        if not names or len({*names}) < len(names):
            raise ValueError(f"{example.title}: its maps are called {names}")
    if not examples:
        raise ValueError("an atlas of no examples")
    # two bytes a weight, four letters for three bytes
    size = sum(part.weights.size for example in examples for part in example.maps) * 8 // 3
    if size > LARGEST:
        raise UserError(
            f"an atlas of {size / 1e6:,.0f} MB of weights, at most {LARGEST / 1e6:.0f} MB fit a page:"
            " take fewer examples, layers, heads or tokens"
        )


def encode_weights(weights: np.ndarray) -> tuple[float, bytes]:
    """Returns a pair: the largest absolute weight of one head, and its weights [Tq,Tk] as 16-bit
    codes on a logarithmic scale, little-endian bytes, with a relative error of at most `ERROR`, but
    0 for weights below `FLOOR` of the largest.

    Args:
      weights: [Tq,Tk], finite.

    Returns:
      The largest size of a weight, and the codes as little-endian bytes: 0 for a weight below
      `FLOOR` of the largest, else k for largest * exp(STEP * (k - LEVELS)), and 32768 more for a
      weight below 0.
    """
    sizes = np.abs(weights, dtype=np.float64)
    largest = float(sizes.max())
    with np.errstate(divide="ignore"):
        levels = np.rint(LEVELS + np.log(sizes / (largest or 1.0)) / STEP)
    codes = np.maximum(levels, 0).astype("<u2") | (np.signbit(weights) & (levels > 0)) * 0x8000
    return largest, codes.astype("<u2").tobytes()


def _arrays(examples: Sequence[AtlasExample]) -> dict[str, Any]:
    """Returns the arrays of `maps.npz` by name: for map "m" of example 0 "0/m", its weights
    [H,Tq,Tk] as float32, and "0/m/queries" and "0/m/keys", its tokens.
    """
    arrays: dict[str, Any] = {}
    for place, example in enumerate(examples):
        for part in example.maps:
            name = f"{place}/{part.name}"
            arrays[name] = np.asarray(part.weights, np.float32)
            for side in ("queries", "keys"):
                arrays[f"{name}/{side}"] = np.array(list(getattr(part, side)), np.str_)
    return arrays


def _page(title: str, examples: Sequence[AtlasExample], meanings: Mapping[str, str]) -> str:
    """Returns the whole page as HTML text: heading, table of statistics with their `meanings`,
    script, and the coded weights, tokens and images of all examples as embedded data.
    """
    texts: dict[tuple[str, ...], int] = {}  # every list of tokens once
    described, embedded, row = [], [], 0
    for place, example in enumerate(examples):
        maps = []
        for layer, part in enumerate(example.maps):
            heads = [encode_weights(head) for head in part.weights]
            for head, (_, codes) in enumerate(heads):
                coded = base64.b64encode(codes).decode("ascii")
                identity = f"weights-{place}-{layer}-{head}"
                embedded.append(f'<script type="text/plain" id="{identity}">{coded}</script>')
            maps.append(_described(part, [largest for largest, _ in heads], texts, row))
            row += len(heads)
        described.append({"title": example.title, "model": example.model, "maps": maps})
        if example.image is not None:
            address = _data_address(example.image)
            embedded.append(f'<img id="image-{place}" src="{address}" alt="" hidden>')
    data = {
        "levels": LEVELS,
        "step": STEP,
        "ramps": {
            theme: {name: _ramp(stops.split()) for name, stops in ramps.items()}
            for theme, ramps in html.RAMPS.items()
        },
        "texts": [[_shown(token) for token in text] for text in texts],
        "meanings": meanings,
        "examples": described,
    }
    # no token can end the element, and none is more than ASCII
    coded = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    parts = [
        _head(title, examples),
        ELEMENTS,
        "<noscript><p>The maps are drawn by the script of this page.</p></noscript>",
        _table(examples, meanings),
        f'<script type="application/json" id="atlas-data">{coded}</script>',
        *embedded,
    ]
    return html.whole(title, parts, style=STYLE, script=SCRIPT)


def _described(
    part: AtlasMap, largest: list[float], texts: dict[tuple[str, ...], int], row: int
) -> dict[str, Any]:
    """Returns a dict for JSON that describes a map without its weights, such as its name, kind and
    statistics (None for NaN), the `largest` weight of each head, `row` of its first head in the
    table, and the numbers of its two lists of tokens in `texts`, where new lists are added.
    """
    queries, keys = (
        texts.setdefault(tuple(side), len(texts)) for side in (part.queries, part.keys)
    )
    statistics = {
        name: [float(value) if math.isfinite(value) else None for value in values]
        for name, values in part.statistics.items()
    }
    return {
        "name": part.name,
        "kind": part.kind,
        "note": part.note,
        "largest": largest,
        "signed": bool(part.weights.min() < -_DUST * max(largest)),
        "queries": queries,
        "keys": keys,
        "grid": part.grid,
        "statistics": statistics,
        "row": row,
    }


def _ramp(stops: list[str]) -> list[list[int]]:
    """Returns 256 colours [red, green, blue] from the first stop ("ffffff") to the last."""
    colours = np.array([list(bytes.fromhex(stop)) for stop in stops])
    places = np.linspace(0, len(stops) - 1, 256)
    parts = [np.interp(places, range(len(stops)), part) for part in colours.T]
    return np.rint(parts).astype(int).T.tolist()


def _shown(token: str) -> str:
    """Returns a token for the page: signs in place of blanks and control characters."""
    if not token.strip():
        return "".join(_BLANKS.get(sign, "\u2423") for sign in token) or _BLANKS[""]
    return visible(token.replace("\n", _BLANKS["\n"]).replace("\t", _BLANKS["\t"]))


def _data_address(image: np.ndarray) -> str:
    """Returns an image [H,W,C] uint8 as a "data:" URL, the text of a PNG in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(buffer, "png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _head(title: str, examples: Sequence[AtlasExample]) -> str:
    """Returns the `<header>` of the page as HTML: its title, a definition of each kind of map in
    the examples, a caution, and the rounding error of the weights on the page.
    """
    used = {part.kind for example in examples for part in example.maps}
    kinds = "".join(
        f"<dt>{kind}</dt><dd>{html.literal(sentence)}</dd>"
        for kind, sentence in KINDS.items()
        if kind in used
    )
    # rounded up
    error, floor = math.ceil(1e5 * ERROR) / 1e3, f"{math.ceil(1e8 * FLOOR) / 1e8:.1e}"
    exact = (
        f"Weights on this page are within {error} % of the exact ones; those below"
        f" {floor.replace('e-0', 'e-')} of the largest of their head may be 0. The exact arrays are"
        f" in {ARRAYS} beside this file. Colour follows the root of a weight's size, from 0 to the largest"
        " of the head."
    )
    return (
        f"<header><h1>{html.literal(title)}</h1><dl>{kinds}</dl>"
        f'<p class="verdict open">{html.literal(CAUTION)}</p>'
        f'<p class="name">{html.literal(exact)}</p></header>'
    )


def _table(examples: Sequence[AtlasExample], meanings: Mapping[str, str]) -> str:
    """Returns the statistics of all heads as a sortable HTML table, a row for each head of each
    map, with the `meanings` of statistics as notes; "" if no map has statistics.
    """
    maps = [(example, part) for example in examples for part in example.maps]
    names = list(dict.fromkeys(name for _, part in maps for name in part.statistics))
    if not names:
        return ""
    rows = []
    for example, part in maps:
        labels = cut(" \u00b7 ".join(filter(None, (example.model, example.title))), 60)
        absent = [math.nan] * len(part.weights)
        for head in range(len(part.weights)):
            values = [float(part.statistics.get(name, absent)[head]) for name in names]
            cells = [number(value if math.isfinite(value) else None) for value in values]
            rows.append((labels, part.name, str(head), *cells))
    numbers = frozenset(range(2, 3 + len(names)))
    notes = tuple(f"{name}: {meanings[name]}." for name in names if name in meanings)
    columns = ("example", "layer", "head", *names)
    table = Table("Statistics of all heads", columns, tuple(rows), numbers, notes=notes)
    return html.table(table, linked=True, folded=True)
