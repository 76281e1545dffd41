"""Networks that make a feature map of an image: [B,H,W,C'] to [B,h,w,C] (see `protocol`). Systems of
classification put a read-out on top; what captions, answers and finds has one below its attention. A
new one is one file and one line here; a user's own is named by its dotted path.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.layers.backbones.protocol import Backbone

BACKBONES: "Table[type[Backbone]]" = Table(
    "backbone",
    {
        "cnn": "attnlab.layers.backbones.protocol:CNN",
        "resnet": "attnlab.layers.backbones.resnet:ResNet",
        "vit": "attnlab.systems.vision.vit:VisionTransformer",
    },
    base="attnlab.layers.backbones.protocol:Backbone",
)
