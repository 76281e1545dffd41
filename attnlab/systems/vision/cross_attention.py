"""A Transformer over a question that looks at an image: the tokens, and one in front of them that
reads out, see each other and the places of a feature map.

    m_l      = f_l W_I + b_I, plus positions of places if asked for                     [L,d]
    m        = encoder blocks over m, self-attention and feed-forward                   image_layers times
    x_0      = s embedding + positions, of the beginning of a text and the question      [1+S,d]
    x        = sub(x, self-attention);  x = sub(x, attention to m);  x = sub(x, feed-forward)    layers times
    logits   = N(x)_0 W + b                                      N in the placements that leave x without one

Source: the decoder block of A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, without the
causal mask, as the cross-modal layers of H. Tan, M. Bansal, "LXMERT: Learning Cross-Modality Encoder
Representations from Transformers", EMNLP 2019, in one direction: words look at the image, the image
not at words. From LXMERT it differs in that, in places of a grid for boxes of objects, and in that
nothing is pre-trained.

Axis letters: B batch, S tokens of the question, L = h w places, d model width, C classes.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention import MECHANISMS
from attnlab.attention.mixer import Mixer
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.grid import OnGrid, on_grid
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.protocol import Attention
from attnlab.attention.view import View
from attnlab.config.registry import Part, holds, made
from attnlab.errors import UserError, at_least
from attnlab.layers.block import Block
from attnlab.layers.by_layer import of_layer
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Embed
from attnlab.layers.norms import apply_norm
from attnlab.mixers import MIXERS
from attnlab.systems.protocol import Side, looked
from attnlab.systems.transformers.stack import Stacked
from attnlab.systems.vision.answering import Viewer, per_question


class Reading(Block):
    """Self-attention of the tokens, attention to the places, feed-forward: x [B,T,d] to [B,T,d].
    The fields are those of `Block`.
    """

    def read(self, x: jax.Array, memory: Any, view: View, valid: jax.Array | None) -> jax.Array:
        """Computes one block on the tokens' states x [B,T,d], to [B,T,d]: self-attention under
        `view`, attention to `memory`, that of the image, and feed-forward; `valid` [B,T]: which
        tokens are real, for norms.
        """
        return self(
            x,
            lambda x: self.self_attention.mix(x, view)[0],
            lambda x: looked(self, self.cross_attention.read(x, memory)),
            valid=valid,
        )


class CrossAttention(Stacked, Viewer, kw_only=True):
    """A Transformer over the question with attention to the image (Vaswani et al. 2017). The fields
    not named here are those of `Stacked`, and `backbone` and `coordinates` of all that see places.

    Attributes:
      question_attention: factory of the self-attention of the tokens.
      cross_attention: factory of the attention of the tokens to the places.
      image_attention: factory of the self-attention of the places, with `image_layers`; its positions
        may be of rows and columns ("rope_2d").
      image_layers: blocks over the places, before a token looks at them.
      image_positions: of places, counted row by row or as rows and columns, added to them.

    Card: Vaswani et al., Attention Is All You Need, NeurIPS 2017; Tan and Bansal 2019.
    """

    question_attention: Callable[..., Mixer]
    cross_attention: Callable[..., Attention]
    image_attention: Callable[..., Mixer]
    image_layers: int = 0
    image_positions: Part = "none"

    parts = {
        **Stacked.parts,
        **Viewer.parts,
        "question_attention": MIXERS,
        "cross_attention": MECHANISMS,
        "image_attention": MIXERS,
        "image_positions": POSITIONS,
    }
    needs = {
        "question_attention": Need(role="self", maps=False, mixes=True),
        "cross_attention": Need(role="cross", padding=False),
        "image_attention": Need(role="self", maps=False, mixes=True, padding=False, places="grid"),
    }

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `VisualAnswerer.between`; "joined" is the beginning of a text and the question."""
        if name.startswith(("image", "backbone")):
            return "image", "image"
        return ("joined", "image") if name.endswith("cross_attention") else ("joined", "joined")

    def setup(self) -> None:
        """Creates embedding, backbone, positions, the layers over image and question and the output
        layer; raises `UserError` for negative layers or positions that act inside attention.
        """
        at_least(0, "cross_attention", image_layers=self.image_layers)
        normal = nn.initializers.normal(self.width**-0.5)
        self.embed = Embed(self.vocabulary, self.word_width, embedding_init=normal)
        super().setup()
        Viewer.setup(self)
        self.of_place = Dense(self.width)
        self.where: PositionScheme = made(POSITIONS, self.image_positions)(name="image_positions")
        if self.where.hooks - {"embedding"}:
            raise UserError(
                f"system.image_positions={type(self.where).__name__} acts inside attention; set it"
                " as the positions of system.image_attention"
            )
        mixers = (("self_attention", self.image_attention),)
        self.image = self.blocks(mixers, count=self.image_layers) if self.image_layers else []
        slots = mixers[0][0], self.question_attention
        self.question = self.blocks((slots, ("cross_attention", self.cross_attention)), Reading)
        if self.topped:
            self.top = self.normaliser()
        self.out = Dense(self.classes)

    def __call__(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Computes the logits [B,C] of answers from images and questions [B,S]: the question's
        tokens pass through layers of self-attention and attention to the image, and its first state
        is classified; raises `UserError` if positions end before the question or the image. See
        `VisualAnswerer.__call__`.

        Raises:
          UserError: questions longer than the positions reach, or more places than that.
        """
        places = self.looked_at(images, questions)
        begin = jnp.full((len(questions), 1), self.bos_id, questions.dtype)
        tokens = jnp.concatenate([begin, questions], axis=1)
        x = self.drop(self.embedded(self.embed(tokens), jnp.arange(tokens.shape[1])))
        view, norm_mask = View(valid=self.real(tokens)), self.norm_mask(tokens)

        def step(block: Reading, number: int, x: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
            return block.read(x, memory, view, norm_mask), None

        memories = [layer.cross_attention.remember(places) for layer in self.question]
        memories = per_question(memories, images, questions)
        x, _ = self.through(self.question, x, step, memories)
        x = apply_norm(self.top, x, norm_mask) if self.topped else x
        return self.out(self.drop(x[:, 0]))

    def looked_at(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Computes the vectors m [I,L,d] of images [I,H,W,C'] that questions attend to: features
        with positions, through the image layers; raises `UserError` if the positions end before L;
        questions [B,S] only tell which images are padding.
        """
        m = self.of_place(self.places(images, questions))
        longest = self.where.longest
        if longest is not None and m.shape[1] > longest:
            raise UserError(
                f"images of {m.shape[1]} places, but system.image_positions end at {longest}; take"
                " smaller images or longer positions"
            )
        height, width, channels = images.shape[1:]
        places = on_grid(*self.grid((height, width, channels)))
        positions = places if isinstance(self.where, OnGrid) else np.arange(m.shape[1])
        m = self.drop(self.where.embed(m, jnp.asarray(positions)))
        real = self.real(questions).reshape(len(images), -1).any(axis=1, keepdims=True)
        norm_mask = jnp.broadcast_to(real, m.shape[:2]) if self.normed_over_batch else None

        def step(block: Block, number: int, m: jax.Array, extra: Any) -> tuple[jax.Array, Any]:
            needs_grid = holds(of_layer(self.image_attention, number), OnGrid)
            view = View(positions=places[None]) if needs_grid else View()
            return block(m, lambda m: block.self_attention.mix(m, view)[0], valid=norm_mask), None

        return self.through(self.image, m, step)[0] if self.image else m
