"""Kernels: ways to compute exact attention; none changes the result beyond rounding. A new one is
one file and one line here.

A kernel is a class without arguments. `kernel(look)` is the context of a `Look`; `refuses(look)`
says why the kernel cannot compute it and what to choose, or None; `misfit(alignment)` says the same
about a class of alignments, before anything runs; `weighs` is True if the kernel can return the
weights. Mechanisms call `choice.attend`.
"""

from typing import Literal

from attnlab.config.registry import Table

KERNELS = Table(
    "kernel",
    {
        "auto": "attnlab.attention.kernels.choice:Auto",
        "plain": "attnlab.attention.kernels.plain:Plain",
        "blockwise": "attnlab.attention.kernels.blockwise:Blockwise",
        "xla": "attnlab.attention.kernels.fused:Xla",
        "cudnn": "attnlab.attention.kernels.fused:Cudnn",
    },
)
KernelName = Literal["auto", "plain", "blockwise", "xla", "cudnn"]
BACKWARDS = ("auto", "plain")  # kernels for looks that depend on earlier looks
BACKWARDLESS = "never has looks that depend on earlier looks; kernel='plain' and kernel='auto' do"
WEIGHTLESS = "never has the weights that are asked for; kernel='plain' and kernel='auto' do"
