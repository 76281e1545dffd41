"""Attention maps of examples as parts of an atlas, with the statistics of their heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attnlab.analysis.heads import HeadStatistics, Record
from attnlab.pages.atlas import AtlasExample, AtlasMap
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


def statistics_of(examples: Iterable[Mapping[str, AttentionMap]]) -> list[Record]:
    """Returns the statistics of heads over the labelled maps of examples, see
    `attnlab.analysis.heads`. How rare a token is, is counted in these examples.
    """
    every, counts = list(examples), Counter[str]()
    for maps in every:
        keys: list[list[str]] = [list(map_.columns) for map_ in maps.values()]
        counts.update(*sorted(keys, key=len)[-1:])
    statistics = HeadStatistics(frequencies=counts)
    for maps in every:
        for name, map_ in maps.items():
            queries = None if list(map_.rows) == list(map_.columns) else map_.rows
            statistics.add(name, map_.weights, map_.columns, queries, kind=map_.kind)
    return statistics.records()


def atlas_example(
    task: Any, example: Any, maps: Mapping[str, AttentionMap], model: str = "", note: str = ""
) -> AtlasExample:
    """Returns an example with its labelled maps as `attnlab.pages.atlas.write_atlas` takes it, a
    note at each map; the statistics of heads are those of this example.
    """
    records, image, parts = statistics_of([maps]), getattr(example, "image", None), []
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
