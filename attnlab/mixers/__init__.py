"""Mixers: layers that move information along a sequence, with the methods `begin` and `mix`
(`attnlab.attention.mixer`). Causal attention is one of them; here are the others, the tape of
LSTMN, and loops over time for systems.

A new mixer is one file and one line here; a user's own is named by its dotted path. A slot that
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
        "recurrent": "attnlab.mixers.recurrent:RecurrentMixer",
        "convolution": "attnlab.mixers.convolution:ConvolutionMixer",
        "performer": "attnlab.mixers.performer:Performer",
        "average": "attnlab.mixers.average:Average",
        "fourier": "attnlab.mixers.fourier:Fourier",
        "longformer": "attnlab.mixers.longformer:Longformer",
        "nystrom": "attnlab.mixers.nystrom:Nystrom",
        "reformer": "attnlab.mixers.reformer:Reformer",
        "retention": "attnlab.mixers.retention:Retention",
        "gated_linear": "attnlab.mixers.gated_linear:GatedLinear",
        "hgrn": "attnlab.mixers.hgrn:Hgrn",
        "mamba": "attnlab.mixers.mamba:Mamba",
        "delta_net": "attnlab.mixers.delta_net:DeltaNet",
        "gated_delta_net": "attnlab.mixers.gated_delta_net:GatedDeltaNet",
        "kda": "attnlab.mixers.kda:Kda",
        "delta_product": "attnlab.mixers.delta_product:DeltaProduct",
        "gated_delta_product": "attnlab.mixers.gated_delta_product:GatedDeltaProduct",
        "rwkv7": "attnlab.mixers.rwkv7:Rwkv7",
        "mlstm": "attnlab.mixers.mlstm:Mlstm",
        "ttt_linear": "attnlab.mixers.ttt_linear:TttLinear",
        "ttt_mlp": "attnlab.mixers.ttt_mlp:TttMlp",
        "by_layer": "attnlab.mixers.by_layer:MixerByLayer",
        "none": "attnlab.mixers.by_layer:NoMixer",
        **MECHANISMS.entries,
    },
    base="attnlab.attention.mixer:Mixer",
    given=("width",),
    declares=("capabilities",),
)
