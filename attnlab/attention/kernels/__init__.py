"""Kernels: ways to compute exact attention; none changes the result beyond rounding. A new one is
one file and one line here.

A kernel is a class without arguments. `kernel(inputs)` is the context of `AttentionInputs`; `refuses(inputs)`
says why the kernel cannot compute it and what to choose, or None; `misfit(alignment)` says the same
about a class of alignments, before anything runs; `weighs` is True if the kernel can return the
weights. Mechanisms call `plain.attend`.
"""

from typing import TYPE_CHECKING, Literal

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.kernels.plain import Plain

KERNELS: "Table[type[Plain]]" = Table(
    "kernel",
    {
        "auto": "attnlab.attention.kernels.plain:Auto",
        "plain": "attnlab.attention.kernels.plain:Plain",
        "blockwise": "attnlab.attention.kernels.blockwise:Blockwise",
        "gathered": "attnlab.attention.kernels.gathered:Gathered",
        "xla": "attnlab.attention.kernels.fused:Xla",
        "cudnn": "attnlab.attention.kernels.fused:Cudnn",
    },
)
KernelName = Literal["auto", "plain", "blockwise", "gathered", "xla", "cudnn"]
BACKWARDS = ("auto", "plain")  # kernels for looks that depend on earlier looks or on whole rows
BACKWARDLESS = "never has looks that depend on earlier looks; kernel='plain' and kernel='auto' do"
ROWLESS = "never has the whole rows of scores that are changed here; kernel='plain' and 'auto' do"
WEIGHTLESS = "never has the weights that are asked for; kernel='plain' and kernel='auto' do"
