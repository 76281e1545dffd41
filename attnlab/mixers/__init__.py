"""Mixers: layers that move information along a sequence, with the methods `begin` and `mix`
(`attnlab.attention.mixer`). Causal attention is one of them; here are the others, the tape of
LSTMN, and loops over time for systems.

A new mixer is a class and one line here; a user's own is named by its dotted path. A slot that
only mixes (`Need(mixes=True)`) takes any of them.
"""

from typing import TYPE_CHECKING

from attnlab.attention import MECHANISMS
from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.mixer import Mixer

MIXERS: "Table[type[Mixer]]" = Table(
    "mixer",
    {
        "recurrent": "attnlab.mixers.passing:RecurrentMixer",
        "convolution": "attnlab.mixers.passing:ConvolutionMixer",
        "performer": "attnlab.mixers.performer:Performer",
        "average": "attnlab.mixers.passing:Average",
        "fourier": "attnlab.mixers.whole:Fourier",
        "longformer": "attnlab.mixers.longformer:Longformer",
        "nystrom": "attnlab.mixers.whole:Nystrom",
        "reformer": "attnlab.mixers.reformer:Reformer",
        "retention": "attnlab.mixers.decaying:Retention",
        "gated_linear": "attnlab.mixers.decaying:GatedLinear",
        "hgrn": "attnlab.mixers.decaying:Hgrn",
        "mamba": "attnlab.mixers.decaying:Mamba",
        "delta_net": "attnlab.mixers.delta_rule:DeltaNet",
        "gated_delta_net": "attnlab.mixers.delta_rule:GatedDeltaNet",
        "kda": "attnlab.mixers.delta_rule:Kda",
        "delta_product": "attnlab.mixers.delta_rule:DeltaProduct",
        "gated_delta_product": "attnlab.mixers.delta_rule:GatedDeltaProduct",
        "rwkv7": "attnlab.mixers.rwkv7:Rwkv7",
        "mlstm": "attnlab.mixers.mlstm:Mlstm",
        "ttt_linear": "attnlab.mixers.ttt:TttLinear",
        "ttt_mlp": "attnlab.mixers.ttt:TttMlp",
        "by_layer": "attnlab.mixers.by_layer:MixerByLayer",
        "none": "attnlab.mixers.by_layer:NoMixer",
        **MECHANISMS.entries,
    },
    base="attnlab.attention.mixer:Mixer",
    given=("width",),
    declares=("capabilities",),
)
