"""Feature maps of linear attention (see `maps`). A new one is one class and one line here; a user's
own is named by its dotted path.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.features.maps import FeatureMap

FEATURES: "Table[type[FeatureMap]]" = Table(
    "feature map",
    {
        "elu": "attnlab.attention.features.maps:Elu",
        "relu": "attnlab.attention.features.maps:Relu",
        "squared": "attnlab.attention.features.maps:Squared",
        "softmax": "attnlab.attention.features.maps:Softmaxes",
        "hedgehog": "attnlab.attention.features.maps:Hedgehog",
        "taylor": "attnlab.attention.features.maps:Taylor",
        "dpfp": "attnlab.attention.features.maps:Dpfp",
        "cosine": "attnlab.attention.features.maps:Cosine",
        "identity": "attnlab.attention.features.maps:FeatureMap",
    },
    base="attnlab.attention.features.maps:FeatureMap",
)
