"""The attention maps of an example, as `attnlab.load(...).maps(text)` gives them: arrays with named axes,
which notebooks show.

Axis letters: H heads, Tq queries, Tk keys.
"""

import dataclasses
import html
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.analysis.inside import statistics_of
from attnlab.analysis.maps import as_shares, map_png, save_map
from attnlab.analysis.results import LEGIBLE
from attnlab.pages.atlas import AtlasExample, AtlasMap, write_atlas
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.maps import IMAGE, grid_of, sides_of

MEANINGS = {
    "entropy": "of the weights of a query, in nats; mean over queries",
    "confidence": "the largest weight of a query; mean over queries",
    "distance": "from a query to its keys, in tokens, by weight",
    "sink_mass": "weight on the first key",
    "previous_argmax": "share of queries whose largest weight is on the token before",
    "induction_argmax": "the same, on a token behind an earlier one that equals the query's",
    "delimiter_mass": "weight on punctuation and special tokens",
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Map:
    """The weights of one attention for one example.

    Attributes:
      name: of the attention, its path in the system ("attention", "decoder_0/cross_attention").
      weights: [H,Tq,Tk] float32; a row has the weights of one query.
      queries: a label for each of the Tq queries; for a decoder the tokens that it predicts.
      keys: a label for each of the Tk keys.
      kind: what the numbers are: "exact" weights, an "effective" matrix, or a "sensitivity"; see
        `attnlab.attention.mixer.Kind`.
    """

    name: str
    weights: np.ndarray
    queries: list[str]
    keys: list[str]
    kind: str = "exact"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw it as a PNG, one panel for each head."""
        shares, title = as_shares(self.name, self.weights, self.kind)
        save_map(path, shares, self.keys, self.queries, title=title)

    def __repr__(self) -> str:
        heads, queries, keys = self.weights.shape
        return f"Map({self.name!r}, {self.kind}, {heads} heads, {queries} queries, {keys} keys)"

    def _repr_png_(self) -> bytes | None:
        """Returns the map as a PNG image, which a notebook shows, or None if it is too large to
        read.
        """
        if max(self.weights.shape[1:]) > LEGIBLE:
            return None
        shares, title = as_shares(self.name, self.weights, self.kind)
        return map_png(shares, self.keys, self.queries, title=title)


class Maps(dict[str, Map]):
    """The maps of one example by name.

    Attributes:
      example: the same for an atlas.
    """

    example: AtlasExample

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an atlas of the maps to `path`, and the arrays beside it."""
        write_atlas(Path(path), self.example.title, [self.example], MEANINGS)

    def _repr_html_(self) -> str:
        """Returns the atlas of these maps as HTML with a frame, which a notebook shows."""
        with tempfile.TemporaryDirectory() as folder:
            self.save(path := Path(folder, "atlas.html"))
            page = html.escape(path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="700" style="border:0"></iframe>'


def atlas_example(
    task: Any, example: Any, maps: Mapping[str, AttentionMap], model: str = "", note: str = ""
) -> AtlasExample:
    """Returns an `AtlasExample` for `attnlab.pages.atlas.write_atlas` of an example and its
    attention maps by name, with the text `note` at each map and the statistics of each head in this
    example.
    """
    records, image, parts = statistics_of(task.system, [maps]), getattr(example, "image", None), []
    for name, map_ in maps.items():
        of_heads = [record for record in records if record["map"] == name]
        grid = None
        if image is not None and sides_of(task.system, name)[1] == IMAGE:
            fitting = grid_of(len(map_.columns), *image.shape[:2])
            grid = fitting and fitting[1:]
            if task.grid and task.grid[0] * task.grid[1] == len(map_.columns):
                grid = task.grid
        statistics = {column: [record[column] for record in of_heads] for column in MEANINGS}
        tokens = list(map_.rows), list(map_.columns)
        parts.append(AtlasMap(name, map_.weights, *tokens, map_.kind, note, statistics, grid))
    return AtlasExample(example.shown(), parts, model, image)
