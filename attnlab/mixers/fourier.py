"""Fourier mixing (Lee-Thorp et al. 2022): the real part of a Fourier transform over tokens and
channels, without parameters; a control for what attention is worth.

    y = Re(F_T(F_d(x)))         F_n(x)_k = sum_s x_s exp(-2 pi i k s / n)

The transform over tokens is that of the n real ones of a row, in their order, so that padding is
inert; y is 0 there. n differs from row to row, so the transform is written as a convolution
(Bluestein 1970), k s = (k^2 + s^2 - (k - s)^2) / 2, whose length is that of the batch:

    X_k = w_k sum_s (x_s w_s) / w_{k-s},      w_t = exp(-pi i t^2 / n)

The entries grow with sqrt(T d), so a norm after it matters; the paper's blocks have one. Every
token sees every other: there is no causal form. Cost: 5 n log2 n FLOPs for a transform of n
numbers. Source: J. Lee-Thorp, J. Ainslie, I. Eckstein, S. Ontanon, "FNet: Mixing Tokens with
Fourier Transforms", NAACL 2022 (arXiv 2105.03824), equation 3. There padding is transformed with
the text.
"""

import jax
import jax.numpy as jnp

from attnlab.attention.mixer import no_rule
from attnlab.attention.view import EVERYTHING, View
from attnlab.errors import UserError
from attnlab.layers.dense import widened
from attnlab.mixers.whole import WholeText

LONGEST = 2**16 - 1  # its square fits 32 bits


class Fourier(WholeText):
    """A Fourier transform over tokens and channels (Lee-Thorp et al. 2022); there is nothing to
    configure.

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
