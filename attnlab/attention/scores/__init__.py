"""Scores: how well a query and a key fit, one number for each pair (see `protocol`). A new one is
a class, in a file of its kind or of its own, and one line here.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.scores.protocol import Score

SCORES: "Table[type[Score]]" = Table(
    "score",
    {
        "dot": "attnlab.attention.scores.protocol:Dot",
        "scaled_dot": "attnlab.attention.scores.protocol:ScaledDot",
        "general": "attnlab.attention.scores.linear:General",
        "biased_general": "attnlab.attention.scores.linear:BiasedGeneral",
        "activated_general": "attnlab.attention.scores.linear:ActivatedGeneral",
        "additive": "attnlab.attention.scores.perceptrons:Additive",
        "concat": "attnlab.attention.scores.perceptrons:Concat",
        "concat_identity": "attnlab.attention.scores.perceptrons:ConcatIdentity",
        "location_aware": "attnlab.attention.scores.perceptrons:LocationAware",
        "coverage": "attnlab.attention.scores.perceptrons:Coverage",
        "location": "attnlab.attention.scores.linear:Location",
        "source_only": "attnlab.attention.scores.perceptrons:SourceOnly",
        "cosine": "attnlab.attention.scores.similarities:Cosine",
        "euclidean": "attnlab.attention.scores.similarities:Euclidean",
        "gaussian": "attnlab.attention.scores.similarities:Gaussian",
        "qk_norm": "attnlab.attention.scores.similarities:QKNorm",
        "qk_layernorm": "attnlab.attention.scores.similarities:QKLayerNorm",
        "qk_rmsnorm": "attnlab.attention.scores.similarities:QKRMSNorm",
        "qk_rmsnorm_plus_one": "attnlab.attention.scores.similarities:QKRMSNormPlusOne",
        "soft_capped": "attnlab.attention.scores.soft_capped:SoftCapped",
    },
    base="attnlab.attention.scores.protocol:Score",
)
