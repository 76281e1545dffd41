"""Published systems, one file each, built from shared layers and from whatever mechanism the config names."""

from attnlab.registry import Table

SYSTEMS = Table(
    "system",
    {
        "rnn_encoder_decoder": "attnlab.systems.rnn_encoder_decoder:RNNEncoderDecoder",
        "rnnsearch": "attnlab.systems.rnnsearch:RNNsearch",
        "transformer": "attnlab.systems.transformer:Transformer",
    },
)
