"""What all convolutional classifiers of images share: the norm, and what becomes of the last feature
map.

    logits = mean over H and W of x, times W, plus b

Axis letters: B batch, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax

from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers import NORMS
from attnlab.layers.dense import Dense
from attnlab.layers.norms import Norm
from attnlab.layers.precision import widened
from attnlab.systems.protocol import ImageClassifier


class Backbone(ImageClassifier, kw_only=True):
    """Base of the convolutional classifiers. Not a system by itself.

    Attributes:
      normalisation: the norm behind convolutions, over channels.
    """

    normalisation: Part = "batch_norm"

    parts = {"normalisation": NORMS}

    @property
    def normaliser(self) -> Callable[..., Norm]:
        """Makes a norm."""
        return made(NORMS, self.normalisation)

    @property
    def over_batch(self) -> bool:
        """See `System.over_batch`."""
        return bool(getattr(kind(self.normaliser), "over_batch", False))

    @nn.nowrap
    def check_size(self, images: jax.Array, name: str, least: int) -> None:
        """`UserError` unless images [B,H,W,C] have at least so many rows and columns of pixels."""
        if min(images.shape[1:3]) < least:
            height, width = images.shape[1:3]
            raise UserError(
                f"system={name} halves images until {least} x {least} pixels are one; these are"
                f" {height} x {width}; take larger images, or fewer stages"
            )

    @nn.nowrap
    def logits(self, x: jax.Array) -> jax.Array:
        """The last feature map [B,H,W,C] to logits; called while the module is compact."""
        mean = widened(x).mean(axis=(1, 2)).astype(x.dtype)
        return Dense(self.classes, name="out")(mean)
