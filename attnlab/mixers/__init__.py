"""Mixers: whatever moves information along a sequence, behind `begin` and `mix`
(`attnlab.attention.mixer`). Attention that reads from left to right is one of them; here are those
that are no attention, LSTMN's tape, and the loops over time that systems share.

A new mixer is one file and one line here; one of a user's own is named by its dotted path. A slot of
a system that only mixes (`Need(mixes=True)`) takes any of them.
"""

from attnlab.attention import MECHANISMS
from attnlab.config.registry import Table

MIXERS = Table(
    "mixer",
    {
        "recurrent": "attnlab.mixers.recurrent:RecurrentMixer",
        "convolution": "attnlab.mixers.convolution:ConvolutionMixer",
        **MECHANISMS.entries,
    },
    base="attnlab.attention.mixer:Mixer",
    given=("width",),
    declares=("capabilities",),
)
