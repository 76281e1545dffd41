"""Position schemes: where a token stands, told to a model through one of three hooks (see `protocol`)."""

from attnlab.registry import Table

POSITIONS = Table(
    "position scheme",
    {
        "none": "attnlab.attention.positions.protocol:PositionScheme",
        "sinusoidal": "attnlab.attention.positions.sinusoidal:Sinusoidal",
    },
)
