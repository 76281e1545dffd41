"""Nystroemformer (Xiong et al. 2021): softmax attention through m landmarks.

    Q~, K~  [m,D]    means of m segments of the real tokens' queries and keys      s = 1 / sqrt(D)
    F = softmax(s Q K~^T)  [T,m]      A = softmax(s Q~ K~^T)  [m,m]      B = softmax(s Q~ K^T)  [m,T]
    O_h = F A^+ (B V) + conv(V)                                       y = concat_h(O_h) W_o
    A^+ by  Z <- Z / 4 (13 I - A Z (15 I - A Z (7 I - A Z)))          from Z_0 = A^T / (|A|_1 |A|_inf)

The rows of F A^+ B sum to 1 once the inverse has converged; entries may be negative. With m = T and
a converged inverse it is exact attention; six steps, the paper's, are far from converged for random
queries and keys. `conv` is a sum over neighbouring tokens with one learned number for each head and
distance. Every landmark mixes all tokens, so there is no causal form, and landmarks of queries need
all queries at once, so there is none between two sequences that decodes. Cost: 8 T m d FLOPs for
the looks, and 2 T m d for each of the two means; 8 m^3 H for each step of the inverse. Parameters:
4 d^2 + k H. Source: Y. Xiong et al., "Nystroemformer: A Nystroem-Based Algorithm for Approximating
Self-Attention", AAAI 2021 (arXiv 2102.03902), equations 5-15. What differs: token number r of n real
ones is in segment floor(r m / n), so that lengths need not be multiples of m and padding is inert
(the authors' code averages zeros of padding in); where n < m some landmarks are left out. |A|_1 is
that of each matrix, not the largest of all rows and heads of a batch, so that texts do not depend
on others beside them.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.protocol import head_width
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import joined, split, unbiased, widened
from attnlab.mixers.whole import WHOLE, WholeText, weights


class Nystrom(WholeText):
    """H heads of width D = width / H through landmarks (Xiong et al. 2021).

    Attributes:
      heads: H; must divide the width.
      landmarks: m.
      steps: of the iteration for A^+.
      taps: k, odd, tokens that `conv` sums over; 0 for no `conv`.

    Card: low-rank; Xiong et al., Nystroemformer, AAAI 2021; time T m d + T d^2 + H m^3; path 1;
    steps 1.
    """

    heads: int = 4
    landmarks: int = 64
    steps: int = 6
    taps: int = 33

    capabilities = dataclasses.replace(WHOLE, maps="effective")

    def setup(self) -> None:
        """Checks heads, `landmarks`, `steps` and `taps` (raises UserError if they do not fit), and
        creates the projections and, unless `taps` is 0, the filter of neighbours.
        """
        head_width("nystrom", self.width, self.heads)
        at_least(1, "nystrom", landmarks=self.landmarks, steps=self.steps)
        if self.taps and (self.taps < 0 or self.taps % 2 == 0):
            raise UserError(
                f"nystrom: taps={self.taps} must be odd, as many on each side of a token; take"
                f" {abs(self.taps) + 1}, or 0 for none"
            )
        self.w_query, self.w_key, self.w_value, self.out = unbiased(4, self.width)
        if self.taps:
            normal = nn.initializers.normal(self.taps**-0.5)
            self.near = self.param("near", normal, (self.heads, self.taps))

    def mix_text(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """Computes Nystroem-approximated softmax attention of whole texts x [B,T,d], real at `real`
        [B,T], to [B,T,d], through the means of segments of queries and keys (landmarks), plus,
        unless `taps` is 0, a learned sum of neighbouring values. See `WholeText.mix_text`.
        """
        size = self.width // self.heads
        q, k, v = (
            split(project(x), self.heads) for project in (self.w_query, self.w_key, self.w_value)
        )
        mean, filled = segments(real, self.landmarks)
        mean = mean[:, None].astype(x.dtype)
        q, q_mean, k_mean = q * size**-0.5, mean @ q * size**-0.5, mean @ k
        columns, rows = filled[:, None, None, :], filled[:, None, :, None]
        to_landmarks = weights(q, k_mean, columns)
        a = jnp.where(rows & columns, weights(q_mean, k_mean, columns), jnp.eye(self.landmarks))
        from_landmarks = jnp.where(rows, weights(q_mean, k, real[:, None, None, :]), 0)
        inverted = inverse(a, self.steps)

        def summed(v: jax.Array, _: None) -> tuple[jax.Array, None]:
            v = jnp.where(real[:, None, :, None], v, 0)
            context = (to_landmarks @ (inverted @ (from_landmarks @ widened(v)))).astype(x.dtype)
            return (context + neighbours(v, self.near) if self.taps else context), None

        return self.out(joined(self.sum_values(summed, v)[0]))


def segments(real: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """Divides the real tokens [B,T] of each row into m = `number` segments of nearly equal size,
    and returns two arrays: the matrix [B,m,T] that computes their means, and which segments hold a
    token, bool [B,m].
    """
    kind = widened(jnp.zeros(())).dtype
    count = jnp.maximum(real.sum(axis=1, keepdims=True), 1)
    rank = jnp.cumsum(real, axis=1, dtype=jnp.int32) - 1
    segment = rank * number // count
    inside = (segment[:, None] == jnp.arange(number)[:, None]) & real[:, None]
    sizes = inside.sum(axis=2)
    return inside / jnp.maximum(sizes, 1)[..., None].astype(kind), sizes > 0


def inverse(a: jax.Array, steps: int) -> jax.Array:
    """Computes the pseudo-inverse of matrices a [...,m,m] of non-negative numbers approximately, by
    `steps` iterations.
    """
    identity = jnp.eye(a.shape[-1], dtype=a.dtype)
    norms = (a.sum(axis=axis).max(axis=-1)[..., None, None] for axis in (-1, -2))
    z = a.swapaxes(-1, -2) / (next(norms) * next(norms))
    for _ in range(steps):
        az = a @ z
        z = 0.25 * z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az)))
    return z


def neighbours(v: jax.Array, near: jax.Array) -> jax.Array:
    """Computes for each token of v [B,H,T,D] the sum of the k values around it with weights `near`
    [H,k]; zeros beyond the ends.
    """
    batch, heads, length, size = v.shape
    kernel = jnp.repeat(near, size, axis=0)[:, None].astype(v.dtype)
    channels = v.swapaxes(2, 3).reshape(batch, heads * size, length)
    summed = jax.lax.conv_general_dilated(
        channels, kernel, (1,), "SAME", feature_group_count=heads * size
    )
    return summed.reshape(batch, heads, size, length).swapaxes(2, 3)
