"""Performer (Choromanski et al. 2021): softmax attention by positive random features (FAVOR+).

    x' = x / D^(1/4)       phi(x) = M^(-1/2) exp(W x' - |x'|^2 / 2)       W [M,D], rows w ~ N(0, I)
    E[phi(q)^T phi(k)] = exp(q . k / sqrt(D)),     so y_i = phi(q_i)^T S / phi(q_i)^T z  (`kernelised`) is softmax attention as M grows

Rows of W are orthogonal in blocks of D, of the lengths of Gaussian vectors, which lowers the
variance. With `map="relu"`, phi(x) = relu(W x') + 10^-3, as in the paper's generalised attention:
no estimate of a softmax. W is a constant of `seed`, the same for all heads and layers; with `redraw`
it comes from the random stream "dropout" while that is given, so it is another one in every step of
training and the constant one elsewhere. Cost: 4 T d M FLOPs for the features, 4 T d M for the sums,
without a rule. State: M (D + 1) H numbers. Parameters: 4 d^2. Source: K. Choromanski et al.,
"Rethinking Attention with Performers", ICLR 2021 (arXiv 2009.14794), lemma 1, theorem 2 and section
2.4. What differs: their code adds 10^-4 to every feature and takes the largest exponent over the
whole sequence, by which the causal form sees the future; here nothing is added, and the largest
exponent is that of the keys so far. They redraw every 1000 steps.
"""

import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import at_least
from attnlab.mixers.kernelised import Kernelised

ADDED = 1e-3  # to the features by relu


class Performer(Kernelised):
    """H heads of width D = width / H by M random features (Choromanski et al. 2021).

    Attributes:
      features: M; 0 for D ln D, rounded up.
      map: "positive" (an estimate of softmax) or "relu".
      orthogonal: whether rows of W are orthogonal in blocks.
      redraw: whether W is drawn anew in every step of training.
      seed: of W.

    Card: features; Choromanski et al., Rethinking Attention with Performers, ICLR 2021;
    time T d M + T d^2; state d M; path 1; steps T / C.
    """

    features: int = 0
    map: Literal["positive", "relu"] = "positive"
    orthogonal: bool = True
    redraw: bool = False
    seed: int = 0

    def setup(self) -> None:
        at_least(0, "performer", features=self.features)
        super().setup()
        self.turns = self.draw_directions()

    @nn.nowrap
    def count(self) -> int:
        """See `Kernelised.count`."""
        return self.features or max(1, math.ceil(self.size * math.log(self.size)))

    def draw_directions(self) -> jax.Array:
        """Draws the random directions W [M,D] of the features: from the seed, or in training anew
        in every step where `redraw` is set.
        """
        if self.redraw and self.has_rng("dropout"):
            return directions(self.make_rng("dropout"), self.count(), self.size, self.orthogonal)
        with jax.ensure_compile_time_eval():
            key = jax.random.key(self.seed)
            return directions(key, self.count(), self.size, self.orthogonal)

    def of_query(self, q: jax.Array) -> jax.Array:
        """See `Kernelised.of_query`."""
        return self.random_features(q)[0]

    def of_key(self, k: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """See `Kernelised.of_key`."""
        return self.random_features(k)

    def random_features(self, x: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """Computes the random features phi [B,H,T,M] of x [B,H,T,D]; under the map "positive"
        divided by their largest, whose logarithm [B,H,T] is also returned (None under "relu").
        """
        x = x * self.size**-0.25
        projected = x @ self.turns.T
        if self.map == "relu":
            return jax.nn.relu(projected) + ADDED, None
        exponents = projected - 0.5 * (x * x).sum(axis=-1, keepdims=True)
        top = jax.lax.stop_gradient(exponents.max(axis=-1))
        return jnp.exp(exponents - top[..., None]), top


def directions(key: jax.Array, number: int, size: int, orthogonal: bool) -> jax.Array:
    """Draws a matrix W [M,D] of standard normal rows, M = `number`, D = `size`; if `orthogonal`,
    the rows of each block of D are made orthogonal, with lengths as if they were not.

    The signs of a QR decomposition depend on its input: without the correction every first row
    would have a negative first entry, and the features a bias.
    """
    first, second = jax.random.split(key)
    rows = jax.random.normal(first, (-(-number // size), size, size), jnp.float32)
    if orthogonal:
        lengths = jnp.linalg.norm(jax.random.normal(second, rows.shape, jnp.float32), axis=-1)
        q, r = jnp.linalg.qr(rows)
        orthonormal = q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
        rows = orthonormal.swapaxes(-1, -2) * lengths[..., None]
    return rows.reshape(-1, size)[:number]
