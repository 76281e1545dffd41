"""Mixers of whole texts: every token sees every other, so that there is no reading piece by piece, and
no state. Here are their base, Fourier mixing and the Nystroemformer, each with its formula and its
source; `longformer` is another.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Capabilities, Mixer, no_rule
from attnlab.attention.protocol import head_width
from attnlab.attention.scores.protocol import NEVER
from attnlab.attention.view import EVERYTHING, View
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import joined, split, unbiased, widened

WHOLE = Capabilities(
    roles=frozenset({"self"}),
    directions=frozenset({"bidirectional"}),
    dense=False,
    cache=False,
)
"""The capabilities of a mixer of whole texts; its equations have weights."""
LONGEST = 2**16 - 1  # tokens of Fourier mixing; its square fits 32 bits


class WholeText(Mixer):
    """Base of mixers of whole texts; a subclass implements `mix_text`."""

    capabilities = WHOLE

    def mix_text(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """Computes y [B,T,d] of x [B,T,d]; `real` [B,T] is False at padding, whose y is set to 0
        later.
        """
        raise NotImplementedError

    def begin(self, rows: int, room: int, dtype: Any) -> Any:
        """Raises UserError always, since there is no state to begin with: see `Mixer.begin`.

        Raises:
          UserError: always.
        """
        raise UserError(
            f"{type(self).__name__} mixes whole texts, it cannot read one piece by piece; choose"
            " 'multihead' or another mixer that is causal"
        )

    def mix(
        self, x: jax.Array, view: View = EVERYTHING, state: Any = None
    ) -> tuple[jax.Array, None]:
        """Mixes whole texts x [B,T,d] by `mix_text`; returns a pair of y [B,T,d], 0 at padding
        (where `view.valid` is False), and None, since there is no state; raises UserError for a
        rule or segments. See `Mixer.mix`.

        Raises:
          UserError: the view has a rule, or several texts share a row.
        """
        no_rule(self, view)
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        return jnp.where(real[..., None], self.mix_text(x, real), 0), None


def weights(q: jax.Array, k: jax.Array, mask: jax.Array) -> jax.Array:
    """Computes softmax(q k^T) [...,n,t] float32 of q [...,n,D] and k [...,t,D] over the keys where
    `mask`, broadcastable to that, is True; 0 elsewhere.
    """
    scores = jnp.where(mask, widened(q @ k.swapaxes(-1, -2)), NEVER)
    return jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0)


class Fourier(WholeText):
    """A Fourier transform over tokens and channels (Lee-Thorp et al. 2022); there is nothing to
    configure.

    Fourier mixing (Lee-Thorp et al. 2022): the real part of a Fourier transform over tokens and
    channels, without parameters; a control for what attention is worth.

        y = Re(F_T(F_d(x)))         F_n(x)_k = sum_s x_s exp(-2 pi i k s / n)

    The transform over tokens is that of the n real ones of a row, in their order, so that padding
    is inert; y is 0 there. n differs from row to row, so the transform is written as a convolution
    (Bluestein 1970), k s = (k^2 + s^2 - (k - s)^2) / 2, whose length is that of the batch:

        X_k = w_k sum_s (x_s w_s) / w_{k-s},      w_t = exp(-pi i t^2 / n)

    The entries grow with sqrt(T d), so a norm after it matters; the paper's blocks have one. Every
    token sees every other: there is no causal form. Cost: 5 n log2 n FLOPs for a transform of n
    numbers. Source: J. Lee-Thorp, J. Ainslie, I. Eckstein, S. Ontanon, "FNet: Mixing Tokens with
    Fourier Transforms", NAACL 2022 (arXiv 2105.03824), equation 3. There padding is transformed
    with the text.

    Card: control; Lee-Thorp et al., FNet, NAACL 2022; time T d log T + T d; path 1; steps 1.
    """

    def mix(
        self, x: jax.Array, view: View = EVERYTHING, state: object = None
    ) -> tuple[jax.Array, None]:
        """Computes the real part [B,T,d] of the Fourier transform of x [B,T,d] over channels and
        tokens, with padding in `view` over the real tokens alone; returns it and None, since there
        is no state; raises UserError for a view with a rule or segments, or with padding in too
        long a text. See `WholeText.mix`.
        """
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        if self.is_collecting():
            self.record(wave_matrices(real))
        if view.valid is not None:
            return super().mix(x, view, state)
        no_rule(self, view)
        channels = jnp.fft.fft(widened(x), axis=2)
        return jnp.fft.fft(channels, axis=1).real.astype(x.dtype), None

    def mix_text(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """Computes the real part [B,T,d] of the Fourier transform of x [B,T,d] over channels and
        over the tokens of each row that are no padding (`real` [B,T] bool); raises UserError for
        more than `LONGEST` tokens. See `WholeText.mix_text`.
        """
        if x.shape[1] > LONGEST:
            raise UserError(f"fourier: {x.shape[1]} tokens; at most {LONGEST} can be transformed")
        order = jnp.argsort(~real, axis=1, stable=True)[..., None]
        texts = jnp.take_along_axis(x, order, axis=1)
        transforms = transform_first(jnp.fft.fft(widened(texts), axis=2), real.sum(axis=1)).real
        return jnp.take_along_axis(transforms, jnp.argsort(order, axis=1), axis=1).astype(x.dtype)


def wave_matrices(real: jax.Array) -> jax.Array:
    """Computes the matrices of the transform over the n real tokens of each row, cos(2 pi k s / n)
    and sin(2 pi k s / n), as two heads [B,2,T,T]; 0 at padding.

    With F_d(x) = a + i b, y = cos a + sin b: the transform over channels comes before, as values do.
    """
    n = jnp.maximum(real.sum(axis=1), 1)[:, None, None]
    rank = jnp.maximum(jnp.cumsum(real, axis=1) - 1, 0)
    angles = 2 * jnp.pi / n * (rank[:, :, None] * rank[:, None] % n)
    waves = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    return jnp.where((real[:, :, None] & real[:, None])[:, None], waves, 0)


def transform_first(x: jax.Array, lengths: jax.Array) -> jax.Array:
    """Computes the discrete Fourier transform over the first n tokens of x [B,T,d], n = lengths [B]
    of any size (Bluestein's algorithm), complex [B,T,d]; entries from n on mean nothing.
    """
    tokens = x.shape[1]
    n = jnp.maximum(lengths, 1)[:, None].astype(jnp.uint32)
    index = jnp.arange(tokens, dtype=jnp.uint32)
    angles = (index * index % (2 * n)).astype(x.real.dtype) * (jnp.pi / n.astype(x.real.dtype))
    chirp = jax.lax.complex(jnp.cos(angles), -jnp.sin(angles))[..., None]
    size = 2 ** max(2 * tokens - 1, 1).bit_length()
    chirped = jnp.where(index[:, None] < n[..., None], x * chirp, 0)
    conjugate = jnp.conj(chirp)
    gap = jnp.zeros((len(x), size - max(2 * tokens - 1, 0), 1), conjugate.dtype)
    kernel = jnp.concatenate([conjugate, gap, conjugate[:, :0:-1]], axis=1)
    product = jnp.fft.fft(chirped, size, axis=1) * jnp.fft.fft(kernel, axis=1)
    return chirp * jnp.fft.ifft(product, axis=1)[:, :tokens]


class Nystrom(WholeText):
    """H heads of width D = width / H through landmarks (Xiong et al. 2021).

    Nystroemformer (Xiong et al. 2021): softmax attention through m landmarks.

        Q~, K~  [m,D]    means of m segments of the real tokens' queries and keys      s = 1 / sqrt(D)
        F = softmax(s Q K~^T)  [T,m]      A = softmax(s Q~ K~^T)  [m,m]      B = softmax(s Q~ K^T)  [m,T]
        O_h = F A^+ (B V) + conv(V)                                       y = concat_h(O_h) W_o
        A^+ by  Z <- Z / 4 (13 I - A Z (15 I - A Z (7 I - A Z)))          from Z_0 = A^T / (|A|_1 |A|_inf)

    The rows of F A^+ B sum to 1 once the inverse has converged; entries may be negative. With m =
    T and a converged inverse it is exact attention; six steps, the paper's, are far from converged
    for random queries and keys. `conv` is a sum over neighbouring tokens with one learned number
    for each head and distance. Every landmark mixes all tokens, so there is no causal form, and
    landmarks of queries need all queries at once, so there is none between two sequences that
    decodes. Cost: 8 T m d FLOPs for the looks, and 2 T m d for each of the two means; 8 m^3 H for
    each step of the inverse. Parameters: 4 d^2 + k H. Source: Y. Xiong et al., "Nystroemformer: A
    Nystroem-Based Algorithm for Approximating Self-Attention", AAAI 2021 (arXiv 2102.03902),
    equations 5-15. What differs: token number r of n real ones is in segment floor(r m / n), so
    that lengths need not be multiples of m and padding is inert (the authors' code averages zeros
    of padding in); where n < m some landmarks are left out. |A|_1 is that of each matrix, not the
    largest of all rows and heads of a batch, so that texts do not depend on others beside them.

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
