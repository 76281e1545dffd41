"""Residual networks (He et al. 2016), as for CIFAR and as for ImageNet.

    stem       cifar      x = relu(N(conv 3x3, w))
               imagenet   x = pool(relu(N(conv 7x7 / 2, w)))                the largest of 3 x 3, / 2
    block      post       y = relu(G(N(conv(... relu(N(conv x))))) + short(x))     G: gate, none unless told
               pre        y = G(conv(relu(N(... conv(relu(N x)))))) + short(x)     otherwise
    branch     basic      conv 3x3 / s, f;   conv 3x3, f
               bottleneck conv 1x1, f;   conv 3x3, f;   conv 1x1, 4 f       s in the first or in the second
    short      pad          x at every s-th pixel, and zeros for the further channels       (option A)
               project      N(conv 1x1 / s, f) where the shapes differ, else x              (B)
               project_all  N(conv 1x1 / s, f) everywhere                                   (C)
    last       with pre, relu(N x)

Stage i has f = w 2^i channels and, but for the first, s = 2 in its first block. For CIFAR there are
three stages of n blocks: 6 n + 2 layers (basic) or 9 n + 2 (bottleneck). For ImageNet there are four,
as in table 1 of the paper: 18 and 34 layers (basic), 50, 101 and 152 (bottleneck). With pre, the
first norm and relu of the first block are those of the stem, and a projection reads what they give
and has no norm, as in the authors' code.

Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016;
the same, "Identity Mappings in Deep Residual Networks", ECCV 2016 (pre). Zeros pad images evenly on
all sides.

Axis letters: B batch, H height, W width, C channels, w width of the first stage, f channels, s
stride.
"""

import math
from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import UserError, at_least
from attnlab.layers.backbones.protocol import Convolutional
from attnlab.layers.gates.protocol import Gate
from attnlab.layers.images import Convolution, normed, pooled
from attnlab.layers.norms import Norm

Kind = Literal["basic", "bottleneck"]
Shortcut = Literal["pad", "project", "project_all"]
LARGE: dict[int, tuple[Kind, tuple[int, ...]]] = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}
"""Depth to the blocks of each stage, for ImageNet."""
DEEPEST = 2000  # layers; the papers have up to 1,202
PER_BLOCK = {"basic": 2, "bottleneck": 3}  # layers
WIDER = 4  # times f, what a bottleneck gives


class Block(nn.Module):
    """x [B,H,W,C] to [B,H/s,W/s,f']: a branch of convolutions and a shortcut around it.

    Attributes:
      layers: channels, kernel and stride of each convolution.
      norm: makes a norm.
      shortcut: see `ResNet`; None for no sum.
      pre: whether norms come before convolutions.
      activated: with pre, whether x has gone through norm and relu already.
      gate: makes the gate; None for none.
      after: whether it stands behind the block.
    """

    layers: tuple[tuple[int, int, int], ...]
    norm: Callable[..., Norm]
    shortcut: Shortcut | None
    pre: bool = False
    activated: bool = False
    gate: Callable[..., Gate] | None = None
    after: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes one residual block on x [B,H,W,C], to [B,ceil(H/s),ceil(W/s),f] with total
        stride s: convolutions with norms and ReLU, the gate if any, plus the shortcut if any;
        `valid` [B]: which images are real, for norms.
        """
        y = start = x
        for number, (features, kernel, stride) in enumerate(self.layers):
            if self.pre and not (self.activated and number == 0):
                y = nn.relu(self._normed(f"normalisation_{number}", y, valid))
            if number == 0:
                start = y
            y = Convolution(features, kernel, stride, name=f"convolution_{number}")(y)
            if not self.pre:
                y = self._normed(f"normalisation_{number}", y, valid)
                y = nn.relu(y) if number < len(self.layers) - 1 else y
        gate = None if self.gate is None else self.gate(name="gate")
        y = gate(y, valid) if gate is not None and not self.after else y
        if self.shortcut is not None:
            y = y + self._short(x, start, valid)
        y = y if self.pre else nn.relu(y)
        return gate(y, valid) if gate is not None and self.after else y

    @nn.nowrap
    def _normed(self, name: str, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        return normed(self.norm(name=name), x, valid)

    @nn.nowrap
    def _short(self, x: jax.Array, start: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes the shortcut that is added to the output of the block's convolutions: x itself,
        x strided and padded with zero channels, or a 1x1 convolution of `start`, the input of the
        first convolution; `valid` [B]: which images are real, for its norm.
        """
        features, stride = self.layers[-1][0], math.prod(layer[2] for layer in self.layers)
        unchanged = features == x.shape[-1] and stride == 1
        if unchanged and self.shortcut != "project_all":
            return x
        if self.shortcut == "pad":
            strided = x[:, ::stride, ::stride]
            return jnp.pad(strided, ((0, 0), (0, 0), (0, 0), (0, features - x.shape[-1])))
        y: jax.Array = Convolution(features, 1, stride, name="projection")(start)
        return y if self.pre else self._normed("projection_normalisation", y, valid)


class ResNet(Convolutional):
    """Residual networks (He et al. 2016), with norms before or behind convolutions.

    Attributes:
      stem: what the first layers are, and which depths there are.
      depth: layers with weights on the way from image to logits; see above.
      block: what a branch is made of.
      order: whether norm and relu come behind convolutions ("post") or before them ("pre").
      width: w, the channels of the first stage; each further one has twice as many.
      shortcut: what is added where shapes differ.
      residual: whether anything is added; without, the network is the plain one of the paper.
      strided: which convolution of a bottleneck has the stride: "first", as in the paper, or
        "second", as in most code since.
    """

    stem: Literal["cifar", "imagenet"] = "cifar"
    depth: int = 20
    block: Kind = "basic"
    order: Literal["post", "pre"] = "post"
    width: int = 16
    shortcut: Shortcut = "pad"
    residual: bool = True
    strided: Literal["first", "second"] = "first"

    @property
    def stages(self) -> tuple[int, ...]:
        """Returns a tuple with the number of blocks of each stage for the fields `depth`, `stem`
        and `block`; raises `UserError` for a depth that no such network has.

        Raises:
          UserError: no such depth.
        """
        if self.stem == "imagenet":
            kind, stages = LARGE.get(self.depth, ("", ()))
            if kind != self.block:
                deep = ", ".join(str(depth) for depth, row in LARGE.items() if row[0] == self.block)
                raise UserError(
                    f"resnet: depth={self.depth}: with stem=imagenet and"
                    f" block={self.block} expected one of: {deep}"
                )
            return stages
        of_stage = 3 * PER_BLOCK[self.block]
        blocks, remainder = divmod(self.depth - 2, of_stage)
        if self.depth > DEEPEST:
            raise UserError(f"resnet: depth={self.depth}: expected at most {DEEPEST}")
        if remainder or blocks < 1:
            near = of_stage * max(1, round((self.depth - 2) / of_stage)) + 2
            raise UserError(
                f"resnet: depth={self.depth}: with stem=cifar and block={self.block}"
                f" expected {of_stage} n + 2, such as {near}"
            )
        return (blocks,) * 3

    @nn.compact
    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes feature maps [B,h,w,C] of images [B,H,W,C'] by the stem, all residual blocks and
        (if norms come first) a last norm with ReLU; `valid` [B]: which images are real, for norms;
        raises `UserError` for invalid fields or too small images. See `Backbone.__call__`.
        """
        at_least(1, "resnet", width=self.width)
        large, stages = self.stem == "imagenet", self.stages
        self.check_size(images, "resnet", 32 if large else 4)
        pre = self.order == "pre"
        x = Convolution(self.width, *((7, 2) if large else (3, 1)), name="stem")(images)
        x = nn.relu(normed(self.normaliser(name="stem_normalisation"), x, valid))
        x = pooled(x, 3, 2) if large else x
        for stage, blocks in enumerate(stages):
            gate = self.gate_of(stage, len(stages))
            for number in range(blocks):
                x = Block(
                    self._layers(self.width * 2**stage, 2 if stage and not number else 1),
                    self.normaliser,
                    self.shortcut if self.residual else None,
                    pre,
                    activated=stage == number == 0,
                    gate=gate if self.often == "every" or number == blocks - 1 else None,
                    after=self.place == "after",
                    name=f"stage_{stage}_block_{number}",
                )(x, valid)
        if pre:
            x = nn.relu(normed(self.normaliser(name="normalisation"), x, valid))
        return x

    @nn.nowrap
    def _layers(self, features: int, stride: int) -> tuple[tuple[int, int, int], ...]:
        """Returns a tuple with (channels, kernel, stride) of each convolution of a block of
        `features` f: two in a "basic" block, three in a "bottleneck", the last with 4 f channels;
        one of them has `stride`, the others 1.
        """
        if self.block == "basic":
            return (features, 3, stride), (features, 3, 1)
        first, second = (stride, 1) if self.strided == "first" else (1, stride)
        return (features, 1, first), (features, 3, second), (WIDER * features, 1, 1)
