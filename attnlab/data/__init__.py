"""Sentence pairs and how they reach the training loop: sources, vocabularies, batches as a function of (seed, step).

A *source* is a frozen dataclass whose fields are its configuration, with one method,
`pairs(split) -> list[(source text, target text)]` for `split` in `SPLITS`.
"""

from attnlab.registry import Table

SPLITS = ("train", "valid", "test")

SOURCES = Table(
    "data source",
    {
        "dates": "attnlab.data.dates:Dates",
        "grammar": "attnlab.data.grammar:Grammar",
        "copying": "attnlab.data.copying:Copying",
        "files": "attnlab.data.files:ParallelFiles",
        "table": "attnlab.data.files:TabFiles",
        "joined": "attnlab.data.joined:Joined",
        "of_length": "attnlab.data.of_length:OfLength",
        "tfds": "attnlab.data.tfds:Tfds",
    },
)
