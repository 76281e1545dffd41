"""Hard alignments: one key for each query, sampled or the best.

    hard                one_hot(s_i), s_i ~ Categorical(softmax(e_i))              no gradient: train with `reinforce`
    straight_through    one_hot(argmax e_i)                                        gradient of softmax(e_i)
    gumbel              one_hot(argmax(e_i + g_i)), g_ij ~ Gumbel(0, 1)            gradient of softmax((e_i + g_i) / tau)

argmax(e + g) is a draw from softmax(e). Sampling needs the random stream "sample"; without it the
best key is taken (g = 0), as at test time. Cost: 6 to 10 FLOPs for each pair, without drawing and
what goes to "samples"; no parameters. Source: K. Xu et al., "Show, Attend and Tell: Neural Image
Caption Generation with Visual Attention", ICML 2015, section 4.1; Y. Bengio, N. Leonard, A.
Courville, "Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
Computation", 2013; E. Jang, S. Gu, B. Poole, "Categorical Reparameterization with Gumbel-Softmax",
ICLR 2017, section 2.2.
"""

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, SAMPLES, Alignment, log_softmax, softmax
from attnlab.attention.view import View
from attnlab.errors import UserError
from attnlab.layers.dense import inner_dtype, widened


class Hard(Alignment):
    """One sampled key; while the collection "samples" is mutable, log p(s_i) and the entropy of
    softmax(e_i), [B,H,Tq] each, go there.

    Attributes:
      soft: probability with which a row of the batch takes, for one look, the expectation
        softmax(e_i) in place of a sample (0.5 in the paper); log p is 0 there, since nothing was
        sampled.

    Card: hard; Xu et al., Show, Attend and Tell, ICML 2015; time T^2.
    """

    soft: float = 0.0

    def setup(self) -> None:
        if not 0.0 <= self.soft <= 1.0:
            raise UserError(f"alignment hard: soft={self.soft}, must be a probability, from 0 to 1")

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Returns one-hot weights [B,H,Tq,Tk] of a key sampled from the masked softmax of the
        scores (of the best key without the random stream "sample"), and sows its log probability
        and the entropy; when sampling, a batch row gets the softmax itself with probability `soft`.
        See `Alignment.__call__`; a sample is a constant, an expectation has the gradient of
        softmax.
        """
        scores = widened(scores)
        weights, logs = softmax(scores, mask), log_softmax(scores, mask)
        sampled = jnp.ones((scores.shape[0], 1, 1, 1), bool)
        noisy = scores
        if self.has_rng("sample"):
            noisy = scores + jax.random.gumbel(self.make_rng("sample"), scores.shape, scores.dtype)
            sampled = jax.random.bernoulli(self.make_rng("sample"), 1.0 - self.soft, sampled.shape)
        chosen = best(jax.lax.stop_gradient(noisy), mask)
        if not self.is_initializing():
            self.sow(SAMPLES, "log_prob", jnp.where(sampled, chosen * logs, 0.0).sum(axis=-1))
            self.sow(SAMPLES, "entropy", -(weights * logs).sum(axis=-1))
        return jnp.where(sampled, chosen, weights)


class StraightThrough(Alignment):
    """The best key forward, softmax backward.

    Card: hard; Bengio et al., Gradients Through Stochastic Neurons, 2013; time T^2.
    """

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return straight(scores, mask)


class Gumbel(Alignment):
    """A sampled key forward, a softmax of the noisy scores backward.

    Attributes:
      tau: temperature of the softmax; small values are closer to one-hot, with larger gradients.

    Card: hard; Jang et al., Gumbel-Softmax, ICLR 2017; time T^2.
    """

    tau: float = 1.0

    def setup(self) -> None:
        if not self.tau > 0.0:
            raise UserError(f"alignment gumbel: tau={self.tau}, must be above 0, as 1.0 is")

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Returns one-hot weights [B,H,Tq,Tk] of the largest allowed score after Gumbel noise
        (added only if the random stream "sample" is given), with the gradient of softmax(noisy
        scores / tau). See `Alignment.__call__`.
        """
        scores = widened(scores)
        noise: Any = 0.0
        if self.has_rng("sample"):
            noise = jax.random.gumbel(self.make_rng("sample"), scores.shape, scores.dtype)
        return straight(scores + noise, mask, self.tau)


def straight(scores: jax.Array, mask: jax.Array | None, tau: jax.Array | float = 1.0) -> jax.Array:
    """Computes `best(scores, mask)`, with the gradient of the masked softmax of scores / tau:
    [...,Tk] float32.
    """
    weights = softmax(widened(scores) / tau, mask)
    # the bracket is exactly 0: masked entries stay so
    return best(scores, mask) + (weights - jax.lax.stop_gradient(weights))


def best(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Returns a one-hot array, shaped like the scores [...,Tk] and float32 (float64 for float64
    scores), with 1 at the first of the largest scores that the boolean mask allows (None: all), and
    zeros in a row where nothing is allowed.
    """
    if not scores.shape[-1]:
        return widened(scores)
    allowed = jnp.ones((), bool) if mask is None else mask
    key = jnp.where(allowed, widened(scores), LOW).argmax(axis=-1)
    return jnp.where(allowed, jax.nn.one_hot(key, scores.shape[-1], dtype=inner_dtype(scores)), 0.0)
