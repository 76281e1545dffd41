"""Feed-forward layers of a Transformer, at each position separately: x [..., d] to [..., d], with F
hidden units.

    relu, gelu, gelu_tanh, silu, squared_relu       act(x W_1 + b_1) W_2 + b_2
    glu, bilinear, reglu, geglu, geglu_tanh, swiglu (act(x W_g) * x W_1) W_2        act: sigmoid, identity, relu, gelu, gelu_tanh, silu
    none                                            0, so that a residual connection leaves x

    gelu(x) = x Phi(x), Phi the normal distribution function;   silu(x) = x sigmoid(x);   squared_relu(x) = relu(x)^2
    gelu_tanh(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), up to 4.7e-4 from gelu

Dropout acts on the F numbers before W_2. By default the first row has biases and the second has
none, as in the papers. With three matrices, F = 8 d / 3 has as many parameters as F = 4 d with two.

Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, equation 2 (relu); D.
Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016 (gelu and its approximation; silu, of
which P. Ramachandran et al., "Searching for Activation Functions", 2017, made swish); D. So et al.,
"Primer", NeurIPS 2021 (squared_relu); N. Shazeer, "GLU Variants Improve Transformer", 2020 (the
second row).
"""

import functools
from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dense, Dropout

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "identity": lambda x: x,
    "sigmoid": jax.nn.sigmoid,
    "relu": nn.relu,
    "squared_relu": lambda x: jnp.square(nn.relu(x)),
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
}


class FeedForward(nn.Module):
    """Base of every feed-forward. Fields with a default are its configuration; the system sets the
    two here.

    Attributes:
      hidden: F.
      dropout: rate on the hidden units (as in the authors' code of the Transformer; the paper does
        not mention it).
    """

    hidden: int
    dropout: float

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., d] to [..., d], each position separately."""
        raise NotImplementedError


class NoFeedForward(FeedForward):
    """0 for every x: a control without the feed-forward layer; no parameters. A block leaves out
    the residual connection and the norm around it too.
    """

    absent: ClassVar[bool] = True

    def __call__(self, x: jax.Array) -> jax.Array:
        """See `FeedForward.__call__`."""
        return jnp.zeros_like(x)


class Plain(FeedForward):
    """act(x W_1 + b_1) W_2 + b_2, the base of the layers with two matrices.

    Attributes:
      bias: whether the two layers have biases, b_1 and b_2.
    """

    bias: bool = True

    activation: ClassVar[str]  # of `ACTIVATIONS`

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """See `FeedForward.__call__`."""
        inner = ACTIVATIONS[self.activation](Dense(self.hidden, self.bias, name="inner")(x))
        return Dense(x.shape[-1], self.bias, name="outer")(Dropout(self.dropout)(inner))


class Relu(Plain):
    """relu(x W_1 + b_1) W_2 + b_2 (Vaswani et al. 2017). The field is that of `Plain`."""

    activation = "relu"


class Gelu(Plain):
    """gelu(x W_1 + b_1) W_2 + b_2, gelu(x) = x Phi(x) (BERT). The field is that of `Plain`."""

    activation = "gelu"


class GeluTanh(Plain):
    """gelu_tanh(x W_1 + b_1) W_2 + b_2 (GPT-2). The field is that of `Plain`."""

    activation = "gelu_tanh"


class Silu(Plain):
    """silu(x W_1 + b_1) W_2 + b_2, silu(x) = x sigmoid(x). The field is that of `Plain`."""

    activation = "silu"


class SquaredRelu(Plain):
    """relu(x W_1 + b_1)^2 W_2 + b_2 (So et al. 2021). The field is that of `Plain`."""

    activation = "squared_relu"


class Gated(FeedForward):
    """(act(x W_g) * x W_1) W_2, the base of the layers with three matrices.

    Attributes:
      bias: whether each of the three products has a bias.
    """

    bias: bool = False

    activation: ClassVar[str]  # of `ACTIVATIONS`

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """See `FeedForward.__call__`."""
        gate = ACTIVATIONS[self.activation](Dense(self.hidden, self.bias, name="gate")(x))
        inner = gate * Dense(self.hidden, self.bias, name="inner")(x)
        return Dense(x.shape[-1], self.bias, name="outer")(Dropout(self.dropout)(inner))


class Glu(Gated):
    """(sigmoid(x W_g) * x W_1) W_2 (Dauphin et al. 2017). The field is that of `Gated`."""

    activation = "sigmoid"


class Bilinear(Gated):
    """(x W_g * x W_1) W_2 (Mnih and Hinton 2007). The field is that of `Gated`."""

    activation = "identity"


class ReGlu(Gated):
    """(relu(x W_g) * x W_1) W_2 (Shazeer 2020). The field is that of `Gated`."""

    activation = "relu"


class GeGlu(Gated):
    """(gelu(x W_g) * x W_1) W_2 (Shazeer 2020). The field is that of `Gated`."""

    activation = "gelu"


class GeGluTanh(Gated):
    """(gelu_tanh(x W_g) * x W_1) W_2 (T5 1.1, Gemma). The field is that of `Gated`."""

    activation = "gelu_tanh"


class SwiGlu(Gated):
    """(silu(x W_g) * x W_1) W_2 (Shazeer 2020; Llama). The field is that of `Gated`."""

    activation = "silu"
