"""Alignments: from scores to weights (see `protocol`). A new one is a class, in
a file of its kind or of its own, and one line here.

Losses for alignments are here too: `losses`.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.alignments.protocol import Alignment

ALIGNMENTS: "Table[type[Alignment]]" = Table(
    "alignment",
    {
        "softmax": "attnlab.attention.alignments.protocol:Softmax",
        "softmax_plus_one": "attnlab.attention.alignments.protocol:SoftmaxPlusOne",
        "sink": "attnlab.attention.alignments.protocol:Sink",
        "sparsemax": "attnlab.attention.alignments.entmax:Sparsemax",
        "entmax": "attnlab.attention.alignments.entmax:Entmax",
        "learned_entmax": "attnlab.attention.alignments.entmax:LearnedEntmax",
        "scalable_softmax": "attnlab.attention.alignments.relatives:ScalableSoftmax",
        "softpick": "attnlab.attention.alignments.relatives:Softpick",
        "stick_breaking": "attnlab.attention.alignments.sequential:StickBreaking",
        "selective": "attnlab.attention.alignments.sequential:Selective",
        "top_k": "attnlab.attention.alignments.relatives:TopK",
        "moba": "attnlab.attention.alignments.moba:MoBA",
        "sigmoid": "attnlab.attention.alignments.relatives:Sigmoid",
        "local_m": "attnlab.attention.alignments.local:LocalM",
        "local_p": "attnlab.attention.alignments.local:LocalP",
        "local_p_renormalised": "attnlab.attention.alignments.local:RenormalisedLocalP",
        "uniform": "attnlab.attention.alignments.relatives:Uniform",
        "diagonal": "attnlab.attention.alignments.local:Diagonal",
        "monotonic": "attnlab.attention.alignments.sequential:Monotonic",
        "temporal": "attnlab.attention.alignments.sequential:Temporal",
        "hard": "attnlab.attention.alignments.hard:Hard",
        "straight_through": "attnlab.attention.alignments.hard:StraightThrough",
        "gumbel": "attnlab.attention.alignments.hard:Gumbel",
    },
    base="attnlab.attention.alignments.protocol:Alignment",
)
