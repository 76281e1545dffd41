"""Bottom-up and top-down attention for questions: regions of an image, weighted by the question, and
an answer from the product of both.

    gt(x)    = tanh(x W + b) * sigmoid(x W' + b')                       or relu(x W + b)
    q        = the last state of a GRU over the question
    concat   J_l = gt_a([v_l ; q])          product  J_l = relu(v_l W_v + b_v) * relu(q W_q + b_q)
    a        = softmax over l of w_a . J_l;  v = sum over l of a_l v_l         any registered mechanism
    logits   = gt_o(gt_q(q) * gt_v(v)) W_o + b_o

Source: P. Anderson et al., "Bottom-Up and Top-Down Attention for Image Captioning and Visual
Question Answering", CVPR 2018, section 3.3; D. Teney, P. Anderson, X. He, A. van den Hengel, "Tips and
Tricks for Visual Question Answering", CVPR 2018, with norms of regions. "product" and "relu" are those
of the best known implementation (github.com/hengyuan-hu/bottom-up-attention-vqa), without its weight
norms. Regions are the places of the backbone, not boxes of a detector; the loss is that of the task,
cross-entropy of one answer, not a sigmoid for each.

Axis letters: B batch, L places, D width of a place, H state width, J hidden units, C classes.
"""

from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.config.registry import Part
from attnlab.layers.dense import Dense, widened
from attnlab.systems.protocol import looked
from attnlab.systems.vision.answering import Answerer, per_question

_LEAST = 1e-6  # the square of the least norm that is divided by


class Nonlinear(nn.Module):
    """gt(x), or relu(x W + b): x [...,n] to [...,features].

    Attributes:
      features: of the result.
      activation: which of them.
    """

    features: int
    activation: Literal["gated_tanh", "relu"]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes gt(x), or relu(x W + b), [...,features] of x [...,n]."""
        y = Dense(self.features, name="of_value")(x)
        if self.activation == "relu":
            return jax.nn.relu(y)
        return jnp.tanh(y) * jax.nn.sigmoid(Dense(self.features, name="of_gate")(x))


class BottomUp(Answerer, kw_only=True):
    """Question-conditioned attention over regions (Anderson et al. 2018).

    Attributes:
      attention: factory of the mechanism; called with the width of a place, with J as keys, the
        places as values and w_a as its query.
      hidden: J, the width of the layers that join places and question.
      activation: the nonlinear layers: "gated_tanh" (gt, the paper's) or "relu".
      joint: how a place and the question make a key.
      normalised: whether the features of a place are divided by their norm.

    Card: Anderson et al., Bottom-Up and Top-Down Attention, CVPR 2018.
    """

    attention: Callable[..., Attention]
    cell: Part = "gru"
    hidden: int = 64
    activation: Literal["gated_tanh", "relu"] = "gated_tanh"
    joint: Literal["concat", "product"] = "concat"
    normalised: bool = True

    parts = {**Answerer.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross", padding=False, values=True)}

    @nn.compact
    def __call__(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Computes the logits [B,C] of answers to questions [B,S] about images: attention over
        image regions with keys that join region and question, then layers on the elementwise
        product of question and attended image. See `VisualAnswerer.__call__`.
        """
        places, asks = self.places(images, questions), self.read(questions).last
        if self.normalised:
            squares = jnp.square(widened(places)).sum(axis=-1, keepdims=True)
            places = (places * jax.lax.rsqrt(jnp.maximum(squares, _LEAST))).astype(places.dtype)
        keys = self._keys(places, asks)
        places = per_question(places, images, questions)
        query = self.param("query", nn.initializers.normal(self.hidden**-0.5), (self.hidden,))
        queries = jnp.broadcast_to(query, (len(keys), 1, self.hidden)).astype(keys.dtype)
        look = self.attention(width=places.shape[-1], name="attention")
        context = looked(self, look.read(queries, look.remember_pairs(keys, places)))[:, 0]
        joint = self._layer("of_question")(asks) * self._layer("of_image")(context)
        return Dense(self.classes, name="out")(self.drop(self._layer("hidden_layer")(joint)))

    @nn.nowrap
    def _keys(self, places: jax.Array, asks: jax.Array) -> jax.Array:
        """Computes the attention's keys [B,L,J] of image regions `places` [I,L,D] and question
        vectors `asks` [B,H]: the elementwise product of a ReLU layer of each, or a layer over both
        side by side.
        """
        if self.joint == "product":
            units = [
                jax.nn.relu(Dense(self.hidden, name=f"joint_{name}")(x))
                for name, x in (("place", places), ("question", asks[:, None]))
            ]
            return per_question(units[0], places, asks) * units[1]
        places = per_question(places, places, asks)
        repeated = jnp.broadcast_to(asks[:, None], (*places.shape[:2], asks.shape[-1]))
        return self._layer("joint_layer")(jnp.concatenate([places, repeated], axis=-1))

    @nn.nowrap
    def _layer(self, name: str) -> Nonlinear:
        return Nonlinear(self.hidden, self.activation, name=name)
