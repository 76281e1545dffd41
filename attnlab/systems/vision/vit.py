"""Vision Transformers: an image as a text of patches, through the encoder of a Transformer.

    p_ij     = patch_ij W + b                            P x P pixels of each, no two overlap
    x_0      = dropout([c ; p_00 ; p_01 ; ...] + positions)           c trained, left out unless asked for
    x        = sub(x, attention);  x = sub(x, feed-forward)           n times, `layers/block.py`
    h        = N(x) in the placements that leave x without a norm, else x
    map      h of the patches on their grid [B,H/P,W/P,d]             the backbone
    logits   (h of c, or the mean over patches) W + b                 the system

Positions are numbers in reading order, c first, or with a scheme on a grid (`sinusoidal_2d` here,
`rope_2d` in attention) row and column, c at (0, 0). Any mixer that sees both ways may be `attention`;
with `visibility` causal, one that reads in order.

Source: A. Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at
Scale", ICLR 2021, equations 1 to 4; the mean and sines on a grid as in L. Beyer, X. Zhai, A.
Kolesnikov, "Better plain ViT baselines for ImageNet-1k", 2022, where c has no position (here the
sines of (0, 0), a constant that c takes up). W of the patches starts N(0, 1 / inputs), cut, c at
zero, positions N(0, 0.02^2), as in the authors' code. The head is one layer, as for fine-tuning, and
starts Glorot uniform (zero there); the tanh layer of pretraining is left out.

Axis letters: B batch, H height, W width, C' channels of images, P patch, h and w rows and columns of
the grid, T tokens, d model width, C classes.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.needs import Need
from attnlab.attention.positions.grid import OnGrid, on_grid
from attnlab.attention.view import View
from attnlab.attention.visibility.rule import Everything
from attnlab.config.registry import Part, holds, made
from attnlab.errors import UserError
from attnlab.layers import INITIALIZERS
from attnlab.layers.backbones.protocol import Backbone
from attnlab.layers.by_layer import of_layer
from attnlab.layers.dense import Dense, widened
from attnlab.layers.images import Patches
from attnlab.layers.initial import Initializer
from attnlab.systems.transformers.stack import Ruled, rule_of
from attnlab.systems.vision.protocol import ImageClassifier


class VisionTransformer(Ruled, Backbone, kw_only=True):
    """The encoder of ViT (Dosovitskiy et al. 2021): images to the states of their patches. The
    fields not named here are those of `Ruled`.

    Attributes:
      patch: P, pixels of a side of a patch; divides the sides of images.
      class_token: whether a trained vector c stands before the patches, whose state is that of the
          image.
      visibility: who sees whom, in reading order.
    """

    feed_forward: Part = "gelu"
    patch: int = 16
    class_token: bool = True

    needs = {"attention": Need(role="self", padding=False, maps=False, mixes=True, places="grid")}

    def setup(self) -> None:
        """Creates the layers, the projection of patches and the class token if there is one."""
        super().setup()
        self.patches = Patches(self.word_width, self.patch)
        if self.class_token:
            first = (1, self.word_width)
            self.first = self.param("class_token", nn.initializers.zeros, first, float)

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes the states of the patches of images [B,H,W,C'], of which `valid` [B] are real,
        as a feature map [B,h,w,d]; raises `UserError` if it is a part of a system and the field
        `initial` is not "own". See `Backbone.__call__`.

        Raises:
          UserError: `Stacked.initial`, which acts on whole systems, in a part of one.
        """
        if self.path and type(made(INITIALIZERS, self.initial)()) is not Initializer:
            raise UserError(
                "vit: as a part of a system it starts as its layers say; leave initial=own"
            )
        x, (rows, columns) = self.states(images, valid)
        return x[:, -rows * columns :].reshape(len(x), rows, columns, self.width)

    def states(
        self, images: jax.Array, valid: jax.Array | None = None
    ) -> tuple[jax.Array, tuple[int, int]]:
        """Computes the states h [B,T,d] of images [B,H,W,C'], the class token's first (if any),
        then those of patches row by row; returns them and (h, w), the rows and columns of patches;
        raises `UserError` if patches, positions or rules do not fit.

        Raises:
          UserError: patches that do not divide the images, positions that end before, rules or
            attention that have no use for rows and columns.
        """
        patches = self.patches(images)
        grid = patches.shape[1], patches.shape[2]
        x = patches.reshape(len(patches), -1, patches.shape[-1])
        places = on_grid(*grid)
        if self.class_token:
            first = jnp.asarray(self.first).astype(x.dtype)
            x = jnp.concatenate([jnp.broadcast_to(first, (len(x), *first.shape)), x], axis=1)
            places = np.concatenate([np.zeros(1, np.int32), places])
        self._check_length(x.shape[1])
        in_order = np.arange(x.shape[1], dtype=np.int32)
        positions = places if isinstance(self.scheme, OnGrid) else in_order
        norm_mask = self.norm_mask_of_images(x, valid)
        x = self.drop(self.embedded(x, jnp.asarray(positions)))
        view = functools.partial(self._view, places=places)
        return self.through_layers(x, view, norm_mask)[0], grid

    @nn.nowrap
    def _view(self, layer: int, places: np.ndarray) -> View:
        """Returns the `View` of the layer number `layer`: its visibility rule, and the grid
        positions `places` [T] of the tokens if its attention uses them; raises `UserError` for both
        together.
        """
        rule = rule_of(self.visibility, layer)
        if not holds(of_layer(self.attention, layer), OnGrid):
            return View(rule)
        if not isinstance(rule, Everything):
            raise UserError(
                "system.visibility: rules are about the reading order, and positions of attention"
                " about rows and columns; choose 'full', or other positions"
            )
        return View(rule, positions=places[None])

    def _check_length(self, tokens: int) -> None:
        """Raises `UserError` if the positions end before this number of tokens."""
        longest = self.scheme.longest
        if longest is not None and tokens > longest:
            raise UserError(
                f"vit: {tokens} tokens (patches{' and a class token' * self.class_token}), but"
                f" positions end at {longest}; set system.positions.length={tokens}, or take"
                " sinusoidal_2d"
            )


class ViT(VisionTransformer, ImageClassifier, kw_only=True):
    """Vision Transformer (Dosovitskiy et al. 2021): a class of the class token, or of the mean over
    patches. The fields are those of the backbone `vit`.

    Card: Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021.
    """

    def setup(self) -> None:
        super().setup()
        self.out = Dense(self.classes)

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """See `ImageClassifier.__call__`."""
        x, _ = self.states(images, valid)
        read = x[:, 0] if self.class_token else widened(x).mean(axis=1).astype(x.dtype)
        return self.out(read)
