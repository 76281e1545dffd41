"""`jax.nn.dot_product_attention` as a kernel: XLA's own softmax attention, and cuDNN's fused one.

Both take inner products, a plain softmax and values as wide as keys; other looks are refused. A
query that sees nothing gets zeros here, with zero gradients; JAX leaves this case open. Cost: "xla"
that of plain, with the same memory; "cudnn" never keeps the scores, but reads the mask as an array of
their size, unless there is none or it is the causal one (`maskless`). Source: jax.nn.dot_product_attention of JAX; its arrays are
[B,T,H,D], scores are softmaxed in float32.
"""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Softmax
from attnlab.attention.kernels import ROWLESS
from attnlab.attention.kernels.plain import AttentionInputs, detected
from attnlab.attention.visibility.rule import Causal
from attnlab.layers.dense import Dropout, inner_dtype

EXACT = "kernel='plain' and kernel='blockwise' do"


class Xla:
    """Any mask and any score bias; no dropout."""

    implementation: Literal["xla", "cudnn"] = "xla"
    weighs = False

    def misfit(self, alignment: Any) -> str | None:
        """Why it cannot compute a class of alignments; None if it can."""
        return None if alignment is Softmax else f"has no alignment but softmax; {EXACT}"

    def refuses(self, inputs: AttentionInputs) -> str | None:
        """Returns None if `jax.nn.dot_product_attention` can compute the attention `inputs`,
        else a message (text) why not and what to choose.
        """
        if inputs.between is not None:
            return ROWLESS
        arrays = (jax.tree.leaves(inputs.queries)[0], inputs.keys, inputs.values)
        if not inputs.product or len({x.shape[-1] for x in arrays}) > 1:
            return f"takes inner products of queries and keys as wide as values only; {EXACT}"
        if inputs.relative is not None:
            return f"adds nothing to values, as this position scheme asks; {EXACT}"
        if (
            inner_dtype(*jax.tree.leaves((inputs.queries, inputs.keys, inputs.values)))
            == jnp.float64
        ):
            return f"softmaxes in float32, which is not enough for float64; {EXACT}"
        if not isinstance(inputs.drop, Dropout) or inputs.drop.active:
            return f"cannot drop weights; {EXACT}, or set dropout=0"
        return self.misfit(type(inputs.align))

    def __call__(self, inputs: AttentionInputs) -> jax.Array:
        """Computes the context [B,H,Tq,Dv] of the attention `inputs` by
        `jax.nn.dot_product_attention`; 0 for queries that may see no key.
        """
        query, key, value = (
            x.swapaxes(1, 2)
            for x in (jax.tree.leaves(inputs.queries)[0], inputs.keys, inputs.values)
        )
        bias = inputs.bias(inputs.queries, inputs.view.i, inputs.view.j) if inputs.bias else None
        causal = inputs.view.maskless and isinstance(inputs.view.rule, Causal)
        allowed = None if causal else inputs.view.allowed()
        shape = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
        options = {"scale": 1.0, "implementation": self.implementation}
        context_of = partial(jax.nn.dot_product_attention, query, key, value, bias, **options)
        if allowed is None:
            return context_of(mask=None, is_causal=causal).swapaxes(1, 2)
        seeing = allowed.any(axis=-1, keepdims=True)
        # a softmax over nothing is no number, nor is its gradient: such a query sees all here
        context = context_of(mask=jnp.broadcast_to(allowed | ~seeing, shape)).swapaxes(1, 2)
        return jnp.where(seeing, context, 0)


class Cudnn(Xla):
    """On NVIDIA GPUs, in bfloat16 or float16; no bias, no dropout."""

    implementation = "cudnn"

    def refuses(self, inputs: AttentionInputs) -> str | None:
        """See `Xla.refuses`; and what cuDNN lacks besides."""
        if not detected():
            return f"needs an NVIDIA GPU, and JAX finds no cuDNN here; {EXACT}"
        return self.lacks(inputs)

    def lacks(self, inputs: AttentionInputs) -> str | None:
        """Returns None if cuDNN could compute the attention `inputs` (by their type, bias,
        width and lengths; whether there is a suitable GPU is not checked here), else a message
        (text) why not and what to choose.
        """
        if inputs.values.dtype not in (jnp.bfloat16, jnp.float16):
            return (
                f"computes in bfloat16 or float16, not {inputs.values.dtype}; {EXACT}, or set"
                " training.compute='bfloat16'"
            )
        if inputs.bias is not None:
            return (
                f"adds no bias to scores here, for its gradient is limited to some shapes; {EXACT}"
            )
        if inputs.values.shape[-1] > 128 or inputs.values.shape[-1] % 8:
            return (
                "wants heads of a width divisible by 8 and at most 128, not"
                f" {inputs.values.shape[-1]}; {EXACT}"
            )
        if any(length % 2 for length in inputs.view.size):
            return f"is differentiated by JAX for even numbers of queries and keys alone; {EXACT}"
        return super().refuses(inputs)
