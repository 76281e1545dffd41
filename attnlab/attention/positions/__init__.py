"""Position schemes: they give a model the positions of tokens, through the hooks of `protocol`. A
new one is one file and one line here.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.positions.protocol import PositionScheme
    from attnlab.attention.positions.rope import Unscaled

POSITIONS: "Table[type[PositionScheme]]" = Table(
    "position scheme",
    {
        "none": "attnlab.attention.positions.protocol:PositionScheme",
        "sinusoidal": "attnlab.attention.positions.absolute:Sinusoidal",
        "learned": "attnlab.attention.positions.absolute:Learned",
        "shaw": "attnlab.attention.positions.relative:Shaw",
        "transformer_xl": "attnlab.attention.positions.relative:TransformerXL",
        "t5": "attnlab.attention.positions.relative:T5",
        "alibi": "attnlab.attention.positions.relative:Alibi",
        "rope": "attnlab.attention.positions.rope:Rope",
        "sinusoidal_2d": "attnlab.attention.positions.grid:Sinusoidal2D",
        "rope_2d": "attnlab.attention.positions.grid:Rope2D",
        "cope": "attnlab.attention.positions.contextual:CoPE",
        "syntax": "attnlab.attention.positions.syntax:Syntax",
        "syntax_relative": "attnlab.attention.positions.syntax:SyntaxRelative",
    },
    base="attnlab.attention.positions.protocol:PositionScheme",
)

SCALINGS: "Table[type[Unscaled]]" = Table(
    "rope scaling",
    {
        "none": "attnlab.attention.positions.rope:Unscaled",
        "linear": "attnlab.attention.positions.rope:Linear",
        "ntk": "attnlab.attention.positions.rope:Ntk",
        "yarn": "attnlab.attention.positions.rope:Yarn",
        "llama3": "attnlab.attention.positions.rope:Llama3",
    },
    base="attnlab.attention.positions.rope:Unscaled",
)
