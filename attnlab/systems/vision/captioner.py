"""What the systems that write a text for an image share: the backbone, and its feature map as the
places that the decoder looks at.

    a = flattened(backbone(image)) + positions        [B,L,D], L = h w places row by row

The positions are none unless told otherwise: what convolutions know of places comes from the edges
of the image. In place of an image there may be regions, L vectors [B,L,D] that something else has
made of it; then there is no backbone and there are no positions, and a vector of zeros is padding.

Axis letters: B batch, H and W height and width of the image, h and w those of the feature map, L
places, D channels of the feature map, T target length, V vocabulary.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.backbones.protocol import Backbone
from attnlab.systems.protocol import Writer
from attnlab.systems.vision.protocol import OnBackbone


class Captioner(OnBackbone, Writer, kw_only=True):
    """Base of the systems that write a text for an image. Not a system by itself.

    Attributes:
      backbone: makes the feature map.
      image_positions: of its places, counted row by row; of those that act on embeddings.
    """

    backbone: Part = "cnn"
    image_positions: Part = "none"

    parts = {"backbone": BACKBONES, "image_positions": POSITIONS}
    source_side = "image"
    map_sides = ("target", "image")

    def setup(self) -> None:
        """Creates the backbone and the positions of the feature map; raises `UserError` for
        positions that act inside attention.
        """
        super().setup()
        self.network: Backbone = made(BACKBONES, self.backbone)(name="backbone")
        self.image_scheme = made(POSITIONS, self.image_positions)(name="image_positions")
        if self.image_scheme.hooks - {"embedding"}:
            raise UserError(
                f"system.image_positions={type(self.image_scheme).__name__} acts inside attention;"
                " choose 'sinusoidal', 'learned' or 'none'"
            )

    def feature_map(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes the backbone's feature map [B,h,w,D] of images [B,H,W,C'], normalised, without
        recording its attention maps, losses or samples; `valid` [B]: which rows are images, None
        for all.

        Attention inside the backbone leaves nothing aside: its places are others in every layer.
        """
        silent = nn.map_variables(
            lambda network, *read: network(*read), [MAPS, LOSSES, SAMPLES], mutable=False
        )
        x: jax.Array = silent(self.network, images, valid)
        return x

    def annotations(
        self, images: jax.Array, valid: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Computes the vectors [B,L,D] that the decoder attends to (a feature map with positions,
        or given regions) and which are real, [B,L]; raises `UserError` if positions end before L.

        Args:
          images: [B,H,W,C'], normalised; or regions [B,L,D], zeros where there is none.
          valid: [B] bool, which rows are images and not padding; None for all.

        Raises:
          UserError: more places than there are positions.
        """
        if images.ndim == 3:
            return images, (images != 0).any(axis=-1)
        x = self.feature_map(images, valid)
        rows, height, width, channels = x.shape
        longest, places = self.image_scheme.longest, height * width
        if longest is not None and places > longest:
            raise UserError(
                f"system.image_positions end at {longest}, but the feature map has {height} x"
                f" {width} = {places} places; set system.image_positions.length={places}"
            )
        flat = x.reshape(rows, places, channels)
        flat = self.image_scheme.embed(flat, jnp.arange(places))
        return flat, jnp.ones((rows, places), bool)

    def encode(self, source: jax.Array, valid: jax.Array | None = None) -> Any:
        """See `Writer.encode`; the arguments are those of `annotations`."""
        raise NotImplementedError

    def __call__(
        self, source: jax.Array, target_in: jax.Array, valid: jax.Array | None = None
    ) -> jax.Array:
        """`decode(encode(source, valid), target_in)`: logits [B,T,V]."""
        return self.decode(self.encode(source, valid), target_in)


def check_channels(a: jax.Array, features: int) -> None:
    """Raises `UserError` unless the vectors [B,L,D] that are attended to have D = `features`
    channels, as the config says.
    """
    if a.shape[-1] != features:
        raise UserError(
            f"system.features={features}, but what is looked at has {a.shape[-1]} channels; set"
            f" system.features={a.shape[-1]}"
        )
