"""Detection as a set of answers: a Transformer between a backbone and N trained queries.

    x_0  = f W + b                       f the map of the backbone, its h w places one after another
    x    = encoder layers: self-attention with q, k = x + p, values x; feed-forward
    y_0  = 0
    y_l  = decoder layers: self-attention with q, k = y + o, values y; attention with q = y + o,
           k = x + p, values x; feed-forward
    of every layer l, of each query:
           classes = N(y_l) W_c + b_c                                 C + 1, the last for no object
           box     = sigmoid(W_3 relu(W_2 relu(W_1 N(y_l))))          row, column, height, width

p are the positions of places, o the queries, both added anew in every layer. A box is given by its
middle and its sides, as shares of the image. Training reads every layer, an answer the last.

Source: N. Carion et al., "End-to-End Object Detection with Transformers", ECCV 2020, section 3.2 and
figure 10. `norm` is "post" in the paper (here N follows the decoder whatever it is), p sines on a
grid with angles in shares of the image (here in places).

Axis letters: B batch, H height, W width, S places of the map, N queries, L decoder layers, C classes,
d model width.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.positions.grid import OnGrid, on_grid
from attnlab.attention.protocol import Attention
from attnlab.config.registry import Part, made
from attnlab.errors import UserError, at_least
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.backbones.protocol import Backbone
from attnlab.layers.block import Block
from attnlab.layers.dense import Dense
from attnlab.layers.norms import apply_norm
from attnlab.systems.protocol import Side, looked
from attnlab.systems.transformers.stack import Stacked
from attnlab.systems.vision.protocol import Detected, Detector, OnBackbone

HIDDEN = 2  # hidden layers of the network of boxes


class Detr(OnBackbone, Stacked, Detector, kw_only=True):
    """DETR (Carion et al. 2020) on any backbone. The fields not named here are those of `Stacked`.

    Attributes:
      encoder_attention, decoder_attention, cross_attention: factories of the mechanisms.
      backbone: what makes the feature map.
      queries: N, how many objects can be found; at least as many as an image has.
      layers: how many layers the encoder has.
      decoder_layers: L, how many layers the decoder has; 0 for as many.

    Card: Carion et al., End-to-End Object Detection with Transformers, ECCV 2020.
    """

    encoder_attention: Callable[..., Attention]
    decoder_attention: Callable[..., Attention]
    cross_attention: Callable[..., Attention]
    backbone: Part = "resnet"
    feed_forward: Part = "relu"
    queries: int = 10
    decoder_layers: int = 0

    parts = {
        **Stacked.parts,
        "encoder_attention": MECHANISMS,
        "decoder_attention": MECHANISMS,
        "cross_attention": MECHANISMS,
        "backbone": BACKBONES,
    }
    needs = {
        "encoder_attention": Need(role="self", padding=False, values=True),
        "decoder_attention": Need(role="self", padding=False, values=True),
        "cross_attention": Need(role="cross", padding=False, values=True),
    }

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`: places of the image, and queries."""
        if name.startswith("encoder"):
            return "image", "image"
        return ("queries", "image") if name.endswith("cross_attention") else ("queries", "queries")

    def setup(self) -> None:
        """Creates the backbone, the learned queries, encoder, decoder, norms and the heads of
        classes and boxes; raises `UserError` for sizes below their minimum.
        """
        super().setup()
        at_least(1, "detr", queries=self.queries)
        at_least(0, "detr", layers=self.layers, decoder_layers=self.decoder_layers)
        self.features: Backbone = made(BACKBONES, self.backbone)(name="backbone")
        self.project = Dense(self.width)
        size = (self.queries, self.width)
        self.objects = self.param("queries", nn.initializers.normal(1.0), size, float)
        mixers = (
            ("self_attention", self.decoder_attention),
            ("cross_attention", self.cross_attention),
        )
        self.encoder = self.blocks((("self_attention", self.encoder_attention),))
        self.decoder = self.blocks(mixers, count=self.decoder_layers or max(self.layers, 1))
        if self.topped:
            self.top_encoder = self.normaliser()
        self.top_decoder = self.normaliser()
        self.of_class = Dense(self.classes + 1)
        self.of_box = [Dense(self.width) for _ in range(HIDDEN)] + [Dense(4)]

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> Detected:
        """Computes a `Detected`, class logits [L,B,N,C+1] and boxes [L,B,N,4] of N learned queries
        after each of L decoder layers, for images [B,H,W,C'], real at `valid` [B]; raises
        `UserError` if positions end before the feature map does. See `Detector.__call__`.
        """
        f = self.features(images, valid)
        rows, columns = f.shape[1:3]
        x = self.project(f.reshape(len(f), rows * columns, -1))
        order = jnp.arange(x.shape[1])
        positions = on_grid(rows, columns) if isinstance(self.scheme, OnGrid) else order
        longest = self.scheme.longest
        if longest is not None and x.shape[1] > longest:
            raise UserError(
                f"detr: a map of {rows} x {columns} places, but positions end at {longest}; set"
                f" system.positions.length={x.shape[1]}, or take sinusoidal_2d"
            )
        p = self.scheme.embed(jnp.zeros((1, *x.shape[1:]), x.dtype), jnp.asarray(positions))
        x = self._run_encoder(x, p, valid)
        o = jnp.asarray(self.objects).astype(x.dtype)[None]
        y = jnp.broadcast_to(jnp.zeros_like(o), (len(x), *o.shape[1:]))
        outputs = []
        for block in self.decoder:
            y = self._run_decoder_layer(block, y, o, x, p, valid)
            outputs.append(apply_norm(self.top_decoder, y, self.norm_mask_of_images(y, valid)))
        states = jnp.stack(outputs)
        boxes = states
        for number, layer in enumerate(self.of_box):
            boxes = layer(boxes)
            boxes = nn.relu(boxes) if number < HIDDEN else nn.sigmoid(boxes)
        return Detected(self.of_class(states), boxes)

    def _run_encoder(self, x: jax.Array, p: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Runs the feature map x [B,S,d] with positions p [1,S,d] through the encoder and its last
        norm, if it has one, to [B,S,d]; `valid` [B]: which images are real, for norms.
        """
        x, norm_mask = self.drop(x), self.norm_mask_of_images(x, valid)
        for block in self.encoder:
            x = block(
                x, lambda x, block=block: _look(block.self_attention, x, p, x, p), valid=norm_mask
            )
        return apply_norm(self.top_encoder, x, norm_mask) if self.topped else x

    def _run_decoder_layer(
        self,
        block: Block,
        y: jax.Array,
        o: jax.Array,
        x: jax.Array,
        p: jax.Array,
        valid: jax.Array | None,
    ) -> jax.Array:
        """Runs y [B,N,d] through one layer of the decoder, `block`, to [B,N,d]: self-attention with
        the learned queries o [1,N,d], attention to the map x [B,S,d] with positions p; `valid` [B]:
        which images are real, for norms.
        """
        return block(
            y,
            lambda y: _look(block.self_attention, y, o, y, o),
            lambda y: _look(block.cross_attention, y, o, x, p),
            valid=self.norm_mask_of_images(y, valid),
        )


def _look(
    attention: Attention, y: jax.Array, o: jax.Array, x: jax.Array, p: jax.Array
) -> jax.Array:
    """What queries y + o find at keys x + p, of values x."""
    return looked(attention, attention.read(y + o, attention.remember_pairs(x + p, x)))
