"""What stands at the place of a gate in an image network: x [B,H,W,C] to the same shape (see
`protocol`). A new one is one file and one line here; a user's own is named by its dotted path.

A backbone has the field `gate` (see `attnlab.systems.vision.backbone`). The non-local blocks are
attention, so they stand in its room.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.layers.gates.protocol import Gate

GATES: "Table[type[Gate]]" = Table(
    "gate",
    {
        "se": "attnlab.layers.gates.pooled:SqueezeExcitation",
        "eca": "attnlab.layers.gates.pooled:EfficientChannel",
        "channel": "attnlab.layers.gates.pooled:Channel",
        "spatial": "attnlab.layers.gates.pooled:Spatial",
        "cbam": "attnlab.layers.gates.pooled:Cbam",
        "coordinate": "attnlab.layers.gates.pooled:Coordinate",
        "residual_attention": "attnlab.layers.gates.residual_attention:ResidualAttention",
        "non_local": "attnlab.attention.non_local:NonLocal",
        "non_local_gaussian": "attnlab.attention.non_local:NonLocalGaussian",
        "non_local_dot": "attnlab.attention.non_local:NonLocalDot",
        "non_local_concat": "attnlab.attention.non_local:NonLocalConcat",
        "none": "attnlab.layers.gates.protocol:NoGate",
    },
    base="attnlab.layers.gates.protocol:Gate",
)
