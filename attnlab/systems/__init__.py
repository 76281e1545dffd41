"""Published systems, one file each, built from shared layers and from whatever mechanism the config names."""

from attnlab.registry import Table

SYSTEMS = Table(
    "system",
    {
        "rnnsearch": "attnlab.systems.rnnsearch:RNNsearch",
        "transformer": "attnlab.systems.transformer:Transformer",
    },
)
