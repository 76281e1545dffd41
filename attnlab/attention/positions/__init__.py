"""Position schemes: they give a model the positions of tokens, through the hooks of `protocol`. A
new one is one file and one line here.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.positions.protocol import PositionScheme
    from attnlab.attention.positions.rope_scaling import Unscaled

POSITIONS: "Table[type[PositionScheme]]" = Table(
    "position scheme",
    {
        "none": "attnlab.attention.positions.protocol:PositionScheme",
        "sinusoidal": "attnlab.attention.positions.sinusoidal:Sinusoidal",
        "learned": "attnlab.attention.positions.learned:Learned",
        "shaw": "attnlab.attention.positions.shaw:Shaw",
        "transformer_xl": "attnlab.attention.positions.transformer_xl:TransformerXL",
        "t5": "attnlab.attention.positions.t5:T5",
        "alibi": "attnlab.attention.positions.alibi:Alibi",
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
        "none": "attnlab.attention.positions.rope_scaling:Unscaled",
        "linear": "attnlab.attention.positions.rope_scaling:Linear",
        "ntk": "attnlab.attention.positions.rope_scaling:Ntk",
        "yarn": "attnlab.attention.positions.rope_scaling:Yarn",
        "llama3": "attnlab.attention.positions.rope_scaling:Llama3",
    },
    base="attnlab.attention.positions.rope_scaling:Unscaled",
)
