"""What systems that answer questions about images share: the places of a feature map, a recurrent
reader of the question; and the control without attention.

    f_l      = backbone(image) at place l, and if asked for (x_l, y_l) in [-1, 1]       [L,D], L = h w
    q        = the last state of an LSTM over the embeddings of the question            [H]
    mean     v = mean over l of f_l          flat    v = the f_l side by side
    logits   = W_2 relu(W_1 [v ; q])

Source: A. Santoro et al., "A simple neural network module for relational reasoning", NeurIPS 2017,
whose baseline "CNN+MLP" is flat, over an LSTM where the question is words; with the mean it is the
bag of image features of M. Ren, R. Kiros, R. Zemel, "Exploring Models and Data for Image Question
Answering", NeurIPS 2015. One hidden layer, of a size of its own.

Axis letters: B batch, H state width, h and w rows and columns of places, L = h w, D width of a
place, S tokens of the question, C classes.
"""

from typing import Any, Literal, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.config.registry import Part, made
from attnlab.layers import CELLS
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.backbones.protocol import Backbone
from attnlab.layers.dense import Dropout, widened
from attnlab.layers.initial import Embed, Initial
from attnlab.layers.readers import Read, Verdict
from attnlab.systems.protocol import Side
from attnlab.systems.vision.protocol import OnBackbone, VisualAnswerer

Tree = TypeVar("Tree")


class Viewer(OnBackbone, VisualAnswerer, kw_only=True):
    """Base of the systems that see an image as the places of a feature map. Not a system by itself.

    Attributes:
      backbone: makes the feature map.
      coordinates: whether each place also has its column and its row, from -1 to 1.
    """

    backbone: Part = "cnn"
    coordinates: bool = True

    parts = {"backbone": BACKBONES}

    def setup(self) -> None:
        self.see: Backbone = made(BACKBONES, self.backbone)(name="backbone")

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `VisualAnswerer.between`; a backbone that looks is one of an image at itself."""
        return ("image", "image") if name.startswith("backbone") else super().between(name)

    def places(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Computes the feature map of images [I,H,W,C'] as L vectors [I,L,D], row by row, with
        their coordinates appended if `coordinates`; images whose questions ([B,S], B / I an image)
        are all padding count as padding in norms.
        """
        valid = self.real(questions).reshape(len(images), -1).any(axis=1)
        features = self.see(images, valid)
        rows, height, width, channels = features.shape
        flat = features.reshape(rows, height * width, channels)
        if not self.coordinates:
            return flat
        coordinates = jnp.asarray(grid_coordinates(height, width), flat.dtype)
        where = jnp.broadcast_to(coordinates, (rows, *coordinates.shape))
        return jnp.concatenate([flat, where], axis=-1)


def per_question(tree: Tree, images: jax.Array, questions: jax.Array) -> Tree:
    """Repeats arrays [I,...] of I images, a `tree` of them, as [B,...], one for each of B
    questions, see `VisualAnswerer.__call__`; what has no axis is left alone.
    """
    times = len(questions) // len(images)
    if times == 1:
        return tree
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, times, axis=0) if leaf.ndim else leaf, tree)


class Answerer(Viewer, kw_only=True):
    """Base of the viewers that read the question with a recurrent layer. Not a system by itself.

    Attributes:
      embedding: the width of the embeddings of words of the question.
      width: H, the width of the state of the layer that reads the question.
      cell: the recurrent layer: "lstm", "gru" or "tanh".
      dropout: rate on the embeddings, and inside the layers before the output.
    """

    embedding: int = 64
    width: int = 64
    cell: Part = "lstm"
    dropout: float = 0.0

    parts = {**Viewer.parts, "cell": CELLS}

    def setup(self) -> None:
        """Creates the backbone, the embedding and the recurrent layer that reads questions, and
        dropout.
        """
        super().setup()
        normal = nn.initializers.normal(self.word_width**-0.5)
        self.embed = Embed(self.vocabulary, self.word_width, embedding_init=normal)
        self.reader: Any = made(CELLS, self.cell)(width=self.width, initial=Initial())
        self.drop = Dropout(self.dropout)

    @property
    def word_width(self) -> int:
        """The width of the embeddings."""
        return self.embedding

    def read(self, questions: jax.Array) -> Read:
        """Questions [B,S] to states [B,S,H] and the last one [B,H]."""
        return self.states(self.drop(self.embed(questions)), self.real(questions))

    def states(self, x: jax.Array, valid: jax.Array) -> Read:
        """Vectors [B,S,E] of words to the states of the recurrent layer."""
        states, end = self.reader(x, valid)
        return Read(states, valid, end.h)


class CNNAndLSTM(Answerer, kw_only=True):
    """The control without attention: an image as the mean of its places, or as all of them side by
    side, beside the last state of the question, and a hidden layer (Santoro et al. 2017).

    Attributes:
      pooling: what becomes of the places of the image: "mean", or "flat": all side by side, each
          with weights of its own.
      hidden: units of the hidden layer before the output.

    Card: Santoro et al., the baseline of Relation Networks, NeurIPS 2017.
    """

    pooling: Literal["mean", "flat"] = "mean"
    hidden: int = 128

    def setup(self) -> None:
        super().setup()
        self.verdict = Verdict(self.hidden, self.classes, self.dropout)

    def __call__(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """See `VisualAnswerer.__call__`."""
        vectors = self._pooled(self.places(images, questions))
        vectors = per_question(vectors, images, questions)
        return self.verdict(jnp.concatenate([vectors, self.read(questions).last], axis=-1))

    def _pooled(self, places: jax.Array) -> jax.Array:
        """Places [B,L,D] to a vector of the image, [B,D] or [B,L D]."""
        if self.pooling == "mean":
            return widened(places).mean(axis=1).astype(places.dtype)
        return places.reshape(len(places), -1)


def grid_coordinates(height: int, width: int) -> np.ndarray:
    """Column and row of every place, row by row, the first -1 and the last 1; 0 where there is only
    one: [L,2].
    """
    y, x = (np.linspace(-1, 1, size) if size > 1 else np.zeros(1) for size in (height, width))
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
