"""Parts of systems other than attention: norms, feed-forward layers, residual blocks, recurrent
cells, convolutions, embeddings. A new norm or feed-forward layer is one class and one line here; a
user's own is named by its dotted path.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.layers.feedforward import FeedForward
    from attnlab.layers.initial import Initializer
    from attnlab.layers.norms import Norm
    from attnlab.layers.recurrent import Recurrent

NORMS: "Table[type[Norm]]" = Table(
    "norm",
    {
        "layer_norm": "attnlab.layers.norms:LayerNorm",
        "rms_norm": "attnlab.layers.norms:RMSNorm",
        "rms_norm_plus_one": "attnlab.layers.norms:RMSNormPlusOne",
        "scale_norm": "attnlab.layers.norms:ScaleNorm",
        "dynamic_tanh": "attnlab.layers.norms:DynamicTanh",
        "batch_norm": "attnlab.layers.norms:BatchNorm",
        "none": "attnlab.layers.norms:Norm",
    },
    base="attnlab.layers.norms:Norm",
)

CELLS: "Table[type[Recurrent]]" = Table(
    "cell",
    {
        "lstm": "attnlab.layers.lstm:LSTMLayer",
        "gru": "attnlab.layers.recurrent:StatefulGRULayer",
        "tanh": "attnlab.layers.recurrent:TanhLayer",
    },
    base="attnlab.layers.recurrent:Recurrent",
    given=("width", "initial"),
)

FEED_FORWARDS: "Table[type[FeedForward]]" = Table(
    "feed-forward",
    {
        "relu": "attnlab.layers.feedforward:Relu",
        "gelu": "attnlab.layers.feedforward:Gelu",
        "gelu_tanh": "attnlab.layers.feedforward:GeluTanh",
        "silu": "attnlab.layers.feedforward:Silu",
        "squared_relu": "attnlab.layers.feedforward:SquaredRelu",
        "glu": "attnlab.layers.feedforward:Glu",
        "bilinear": "attnlab.layers.feedforward:Bilinear",
        "reglu": "attnlab.layers.feedforward:ReGlu",
        "geglu": "attnlab.layers.feedforward:GeGlu",
        "geglu_tanh": "attnlab.layers.feedforward:GeGluTanh",
        "swiglu": "attnlab.layers.feedforward:SwiGlu",
        "none": "attnlab.layers.feedforward:NoFeedForward",
    },
    base="attnlab.layers.feedforward:FeedForward",
    given=("hidden", "dropout"),
)

INITIALIZERS: "Table[type[Initializer]]" = Table(
    "initializer",
    {
        "own": "attnlab.layers.initial:Initializer",
        "gpt2": "attnlab.layers.initial:Gpt2",
        "bert": "attnlab.layers.initial:Bert",
        "t5": "attnlab.layers.initial:T5",
    },
    base="attnlab.layers.initial:Initializer",
)
