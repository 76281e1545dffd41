"""The layer of a Transformer: mixers and a feed-forward, each inside a residual connection.

    placement     y, for a function f                          source
    post          N(x + drop(f(x)))                            Vaswani et al. 2017; BERT, BART
    pre           x + drop(f(N(x)))                            Xiong et al. 2020; GPT-2, T5, Llama
    sandwich      x + drop(N'(f(N(x))))                        Ding et al. 2021; Gemma 2
    res_post      x + drop(N(f(x)))                            Liu et al. 2022 (Swin 2); OLMo 2
    parallel      x + drop(f(N(x))) + drop(g(N(x))) + ...      Wang and Komatsuzaki 2021 (GPT-J); one norm, all functions at once
    rezero        x + a drop(f(x))                             Bachlechner et al. 2021; a one number from 0, no norm
    none          drop(f(N(x)))                                no residual, to see what it is good for

A function that is "none" (its class says `absent`) is left out with its residual connection and its
norm.

N, N' are norms of the table `NORMS`. A stack of layers whose placement is in `TOPPED` has one more
norm on top, since its output is not normalised otherwise.

Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017; R. Xiong et al., "On Layer
Normalization in the Transformer Architecture", ICML 2020; M. Ding et al., "CogView", NeurIPS 2021;
Z. Liu et al., "Swin Transformer V2", CVPR 2022; B. Wang, A. Komatsuzaki, "GPT-J-6B", 2021; T.
Bachlechner et al., "ReZero is All You Need", UAI 2021.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import flax.linen as nn
import jax

from attnlab.config.registry import behind
from attnlab.layers.dense import Dropout
from attnlab.layers.feedforward import FeedForward
from attnlab.layers.norms import Norm, apply_norm

Placement = Literal["post", "pre", "sandwich", "res_post", "parallel", "rezero", "none"]
TOPPED = frozenset({"pre", "sandwich", "res_post", "parallel", "none"})
Function = Callable[[jax.Array], jax.Array]


class Residual(nn.Module):
    """Residual connection, dropout and norm around any function of x [B,T,d].

    Attributes:
      placement: see the top of this file; here "parallel" leaves the norm to the block.
      norm: factory of the norm.
      dropout: rate on the function's output.
    """

    placement: Placement
    norm: Callable[..., Norm]
    dropout: float

    def setup(self) -> None:
        """Creates the norms that the placement uses, for "rezero" a learned scale (from 0), and
        dropout.
        """
        if self.placement not in ("rezero", "parallel"):
            self.scale = self.norm(name="normalisation")
        if self.placement == "sandwich":
            self.scale_out = self.norm(name="normalisation_out")
        if self.placement == "rezero":
            self.strength = self.param("strength", nn.initializers.zeros, (), float)
        self.drop = Dropout(self.dropout)

    def __call__(
        self, x: jax.Array, function: Function, valid: jax.Array | None = None
    ) -> jax.Array:
        """Computes [B,T,d] from x [B,T,d] by `function` (x to y of the same shape) with norm,
        dropout and residual connection in the order that `placement` says (no connection for
        "none", no norm for "rezero" and "parallel"); `valid` [B,T]: which tokens are real, for
        norms that need it.
        """
        match self.placement:
            case "post":
                return apply_norm(self.scale, x + self.drop(function(x)), valid)
            case "pre":
                return x + self.drop(function(apply_norm(self.scale, x, valid)))
            case "sandwich":
                inner = function(apply_norm(self.scale, x, valid))
                return x + self.drop(apply_norm(self.scale_out, inner, valid))
            case "res_post":
                return x + self.drop(apply_norm(self.scale, function(x), valid))
            case "rezero":
                return x + self.strength.astype(x.dtype) * self.drop(function(x))
            case "none":
                return self.drop(function(apply_norm(self.scale, x, valid)))
        return x + self.drop(function(x))


class Block(nn.Module):
    """Mixers one after another, then a feed-forward, each inside a residual connection: x [B,T,d]
    to [B,T,d].

    The block owns the mixers but not their signatures: its caller passes one function for each,
    `block(x, lambda x: block.self_attention(x, x, ...))`.

    Attributes:
      width: d.
      mixers: name and factory of every mixer, in order; a factory is called with the width.
      feed_forward_factory: makes the feed-forward.
      norm: makes a norm.
      placement: see the top of this file.
      dropout: rate on the output of every function.
    """

    width: int
    mixers: tuple[tuple[str, Callable[..., Any]], ...]
    feed_forward_factory: Callable[[], FeedForward]
    norm: Callable[..., Norm]
    placement: Placement
    dropout: float

    def setup(self) -> None:
        """Creates the mixers, the feed-forward and a `Residual` around each that is not "none"; for
        "parallel" also the one norm that all share.
        """
        for name, factory in self.mixers:
            setattr(self, name, factory(width=self.width))
        self.feed_forward = self.feed_forward_factory()
        for name in self.present_residuals():
            setattr(self, name, Residual(self.placement, self.norm, self.dropout))
        if self.placement == "parallel" and self.present_residuals():
            self.shared_norm = self.norm(name="normalisation")

    @nn.nowrap
    def around(self) -> list[str]:
        """Returns the names of all residual connections, in order, also of those left out."""
        names = [name for name, _ in self.mixers] + ["feed_forward"]
        return [f"around_{name.removesuffix('_attention')}" for name in names]

    @nn.nowrap
    def present_residuals(self) -> list[str]:
        """Returns the names of the residual connections around the mixers and the feed-forward,
        without those around "none".
        """
        factories: list[Any] = [factory for _, factory in self.mixers]
        factories.append(self.feed_forward_factory)
        return [
            name
            for name, factory in zip(self.around(), factories, strict=True)
            if not getattr(behind(factory), "absent", False)
        ]

    def __call__(self, x: jax.Array, *calls: Function, valid: jax.Array | None = None) -> jax.Array:
        """Computes one block on x [B,T,d], to [B,T,d]: `calls`, a function (x to y of the same
        shape) for each mixer, and the feed-forward layer, each with its residual connection, in
        turn or, for "parallel", side by side, skipping parts that are "none"; `valid` [B,T]: which
        tokens are real, for norms that need it.
        """
        present = self.present_residuals()
        applied: Iterable[Function] = (*calls, self.feed_forward)
        named = zip(self.around(), applied, strict=True)
        functions = [(name, function) for name, function in named if name in present]
        if self.placement != "parallel":
            for name, function in functions:
                x = getattr(self, name)(x, function, valid)
            return x
        if not functions:
            return x
        normed, total = apply_norm(self.shared_norm, x, valid), x
        for name, function in functions:
            total = total + getattr(self, name).drop(function(normed))
        return total
