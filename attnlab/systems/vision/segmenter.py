"""Networks that give every pixel of an image a class: a backbone, and its map interpolated to pixels.

    f      = backbone(image)                                     [B,h,w,C]
    y      = up(f W_1 + b_1)                                     d channels at H x W pixels
    x      = relu(N(conv 3x3 [y ; image]))                       d channels
    logits = x W_2 + b_2                                         with width d = 0: up(f W_2 + b_2)

`up` is bilinear (`layers.images.enlarged`). Source: J. Long, E. Shelhamer, T. Darrell, "Fully
Convolutional Networks for Semantic Segmentation", CVPR 2015, whose kernels for `up` start bilinear
and are trained, and which adds the logits of earlier maps where the image itself stands here.

Axis letters: B batch, H height, W width, h and w those of the feature map, C channels of it.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, kind, made
from attnlab.errors import at_least
from attnlab.layers import NORMS
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.dense import Dense
from attnlab.layers.images import Convolution, enlarged, normed
from attnlab.systems.vision.protocol import OnBackbone, PixelClassifier


class Segmenter(OnBackbone, PixelClassifier):
    """Fully convolutional segmentation (Long et al. 2015) on any backbone.

    Attributes:
      backbone: what makes the feature map; gates and non-local blocks are its own fields.
      width: d, channels at the pixels; 0 for logits of the feature map, interpolated.
      normalisation: the norm at the pixels.

    Card: Long et al., Fully Convolutional Networks for Segmentation, CVPR 2015.
    """

    backbone: Part = "resnet"
    width: int = 16
    normalisation: Part = "batch_norm"

    parts = {"backbone": BACKBONES, "normalisation": NORMS}

    @property
    def over_batch(self) -> bool:
        """See `System.over_batch`."""
        norm = kind(made(NORMS, self.normalisation))
        refined = self.width > 0 and bool(getattr(norm, "over_batch", False))
        return refined or super().over_batch

    @nn.compact
    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes the logits [B,H,W,C] of all pixels of images [B,H,W,C'] from the enlarged
        feature map, refined with the image itself unless the field `width` is 0; `valid` [B]: which
        images are real, for norms; raises `UserError` for a negative width. See
        `PixelClassifier.__call__`.
        """
        at_least(0, "segmenter", width=self.width)
        height, width = images.shape[1:3]
        features = made(BACKBONES, self.backbone)(name="backbone")(images, valid)
        out = Dense(self.classes, name="out")
        if not self.width:
            return enlarged(out(features), height, width)
        y = enlarged(Dense(self.width, name="coarse")(features), height, width)
        x = Convolution(self.width, name="fine")(jnp.concatenate([y, images.astype(y.dtype)], -1))
        norm = made(NORMS, self.normalisation)(name="normalisation")
        return out(nn.relu(normed(norm, x, valid)))
