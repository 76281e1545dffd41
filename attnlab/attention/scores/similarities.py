"""Scores by how alike query and key are: the cosine of their angle, products after a norm of each, and
minus their distance.

    qk_norm       e_ij = g (q_i / |q_i|) . (k_j / |k_j|)                        Henry et al. 2020
    qk_layernorm  e_ij = LN_q(q_i) . LN_k(k_j) / sqrt(D)                        Dehghani et al. 2023
    qk_rmsnorm    e_ij = RMS_q(q_i) . RMS_k(k_j) / sqrt(D)                      Qwen3
    qk_rmsnorm_plus_one                                                         Gemma 3: s = 1 + w, w from 0

    LN(x) = s (x - mean(x)) / sqrt(var(x) + epsilon)        RMS(x) = s x / sqrt(mean(x^2) + epsilon)        over the D of a head

The classes of the others have their formula, cost and source. Of these four, products of normalised
queries and keys, scores stay bounded even if the projections grow. g is a learned number, s a learned
scale of each channel [D] (one for queries, one for keys) that starts at 1, without bias; all are shared
by the heads. |e| <= |g|, and |e| <= sqrt(D) max|s_q|
max|s_k|. Statistics in float32. Queries and keys are normalised before a position scheme rotates
them, since a scale of channels does not commute with a rotation. A memory keeps the normalised key.
Cost: 2 D FLOPs for each pair, 3 D, 7 D and 4 D for each query and key. Parameters: 1; 2 D. Source:
A. Henry, P. R. Dachapally, S. Pawar, Y. Chen, "Query-Key Normalization for Transformers", Findings
of EMNLP 2020 (arXiv 2010.04245): no 1/sqrt(D), g starts at log2(n^2 - n), n the 97.5th percentile
of the lengths of the training sequences; M. Dehghani et al., "Scaling Vision Transformers to 22
Billion Parameters", ICML 2023; the technical reports of Qwen3 and Gemma 3, 2025. Gemma's
1 + w is the same function until weights decay, and its files hold w. Another function is the norm of
OLMo 2, whose statistics run over all heads together.

Axis letters: see `protocol`.
"""

import functools
import math
from collections.abc import Callable
from typing import ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import Dot, ScaledDot, Score, above_zero, same_width
from attnlab.errors import at_least
from attnlab.layers.dense import Dense, widened
from attnlab.layers.norms import RMSNorm, RMSNormPlusOne


class Positive(nn.Module):
    """softplus(raw), one number; raw starts so that softplus(raw) = `start`.

    Attributes:
      start: the value at the start, above 0.
    """

    start: float

    @nn.compact
    def __call__(self, shift: jax.Array | float = 0.0) -> jax.Array:
        """softplus(raw + shift), float32: [1], or the shape of a shift [...,1]."""
        inverse = self.start + math.log(-math.expm1(-self.start))
        raw = self.param("raw", nn.initializers.constant(inverse), (1,))
        return jax.nn.softplus(widened(raw) + shift)


class Cosine(Dot):
    """e_ij = beta q_i . k_j / (|q_i| |k_j|); both sides equally wide.

        e_ij = beta q_i . k_j / (|q_i| |k_j|),  beta > 0

    Under a softmax a larger beta makes attention sharper; the score stays within [-beta, beta]. |x|
    is computed as sqrt(max(x . x, epsilon^2)), so a zero vector has similarity 0 and a finite
    gradient. Cost: 2 D FLOPs for each pair, 3 D for each query and key. Parameters: none, 1, or D +
    1 (`strength`). Source: A. Graves, G. Wayne, I. Danihelka, "Neural Turing Machines", 2014 (arXiv
    1410.5401), section 3.3.1, equations 5 and 6. There the controller emits beta at each step,
    which is `strength="emitted"`, beta_i = softplus(q_i w + b), the query standing for the
    controller's state; with "learned" it is one number for all queries, softplus(b), with "fixed" a
    constant.

    Attributes:
      beta: the strength, or its start value if it is not fixed ("emitted": the value for a query of
        zeros).
      strength: "learned" (one number), "emitted" (from each query) or "fixed".
      epsilon: norms are at least this.

    Card: similarity; Graves et al., Neural Turing Machines, 2014; time T^2 D; state T D.
    """

    beta: float = 5.0
    strength: Literal["learned", "emitted", "fixed"] = "learned"
    epsilon: float = 1e-6

    def setup(self) -> None:
        """Checks that `beta` and `epsilon` are above 0 (raises UserError if not), and creates the
        parameters of the strength, none if it is "fixed".
        """
        above_zero("cosine", "beta", self.beta)
        above_zero("cosine", "epsilon", self.epsilon)
        if self.strength != "fixed":
            self.positive = Positive(self.beta)
        if self.strength == "emitted":
            self.emit = Dense(1, use_bias=False)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`: beta q / |q|."""
        same_width("cosine", q.shape[-1], key_width)
        return (unit(q, self.epsilon) * self.sharpness(q)).astype(q.dtype)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`: k / |k|."""
        return unit(k, self.epsilon).astype(k.dtype)

    def sharpness(self, q: jax.Array) -> jax.Array | float:
        """Returns beta for queries [B,H,Tq,D], float32: the number `beta` if the field `strength`
        is "fixed", a learned array [1] if "learned", or [B,H,Tq,1] computed from each query if
        "emitted".
        """
        if self.strength == "fixed":
            return self.beta
        return self.positive(widened(self.emit(q)) if self.strength == "emitted" else 0.0)


def unit(x: jax.Array, epsilon: float) -> jax.Array:
    """x [...,D] / sqrt(max(x . x, epsilon^2)) in float32: length 1, and at the zero vector zero
    with a finite gradient.
    """
    x = widened(x)
    return x / jnp.sqrt(jnp.maximum((x * x).sum(axis=-1, keepdims=True), epsilon**2))


class QKNorm(Dot):
    """e_ij = g (q_i / |q_i|) . (k_j / |k_j|); both sides equally wide.

    Attributes:
      length: n, the 97.5th percentile of the lengths of the training sequences; g starts at
        log2(n^2 - n).
      epsilon: norms are at least this.

    Card: normalised product; Henry et al., Query-Key Normalization, Findings of EMNLP 2020;
    time T^2 D; state T D.
    """

    length: int = 64
    epsilon: float = 1e-6

    def setup(self) -> None:
        at_least(2, "score qk_norm", length=self.length)
        above_zero("qk_norm", "epsilon", self.epsilon)
        start = math.log2(self.length**2 - self.length)
        self.g = self.param("g", nn.initializers.constant(start), (1,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`: g q / |q|."""
        same_width("qk_norm", q.shape[-1], key_width)
        return (unit(q, self.epsilon) * self.g).astype(q.dtype)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`: k / |k|."""
        return unit(k, self.epsilon).astype(k.dtype)


class NormedProduct(ScaledDot):
    """Base of the inner products of normed queries and keys, norm_q(q_i) . norm_k(k_j) / sqrt(D); a
    subclass says which norm in `norm`, and what messages call it in `called`.

    Attributes:
      epsilon: of both norms.
    """

    epsilon: float = 1e-6

    called: ClassVar[str]
    norm: ClassVar[Callable[..., nn.Module]]

    def setup(self) -> None:
        """Checks that `epsilon` is above 0 (raises UserError if not), and creates a norm for
        queries and one for keys.
        """
        above_zero(self.called, "epsilon", self.epsilon)
        self.query_norm, self.key_norm = (type(self).norm(epsilon=self.epsilon) for _ in range(2))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`: norm_q(q)."""
        same_width(self.called, q.shape[-1], key_width)
        return self.query_norm(q).astype(q.dtype)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`: norm_k(k)."""
        return self.key_norm(k).astype(k.dtype)


class QKLayerNorm(NormedProduct):
    """e_ij = LN_q(q_i) . LN_k(k_j) / sqrt(D), with scales and without biases; both sides equally
    wide.

    Attributes:
      epsilon: added to the variances.

    Card: normalised product; Dehghani et al., Scaling Vision Transformers, ICML 2023; time T^2 D;
    state T D.
    """

    called = "qk_layernorm"
    norm = staticmethod(
        functools.partial(nn.LayerNorm, use_bias=False, use_fast_variance=False, param_dtype=float)
    )


class QKRMSNorm(NormedProduct):
    """e_ij = RMS_q(q_i) . RMS_k(k_j) / sqrt(D), with scales; both sides equally wide.

    Attributes:
      epsilon: added to the mean squares.

    Card: normalised product; technical reports of Qwen3 and Gemma 3, 2025; time T^2 D; state T D.
    """

    called = "qk_rmsnorm"
    norm = RMSNorm


class QKRMSNormPlusOne(QKRMSNorm):
    """As qk_rmsnorm with s = 1 + w, w from 0 (Gemma 3). The fields are those of `QKRMSNorm`.

    Card: normalised product; technical report of Gemma 3, 2025; time T^2 D; state T D.
    """

    norm = RMSNormPlusOne


class Euclidean(Score):
    """e_ij = -|q_i - k_j|; both sides equally wide. Where query and key are equal, the gradient is 0.

        e_ij = -|q_i - k_j|

    Differences are computed in float32 and then squared: |q|^2 + |k|^2 - 2 q . k would be a matrix
    product, but it loses precision if query and key are close. Cost: 3 D FLOPs for each pair, no
    matrix product. Parameters: none. Source: G. Brauwers, F. Frasincar, "A General Survey on
    Attention Mechanisms in Deep Learning", IEEE TKDE 2023 (scores by similarity).

    Card: distance; Brauwers, Frasincar, General Survey on Attention Mechanisms, IEEE TKDE 2023;
    time T^2 D; state T D.
    """

    rotary = True

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width("euclidean", q.shape[-1], key_width)
        return q

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """Computes the negative distances -|q_i - k_j|, float32 [B,H,Tq,Tk], of queries q and keys
        k, with gradient 0 where they are equal; positions j are not used. See `Score.pairs`.
        """
        square = squared_distance(q, k)
        distinct = square > 0.0
        return -jnp.where(distinct, jnp.sqrt(jnp.where(distinct, square, 1.0)), 0.0)


class Gaussian(Score):
    """e_ij = -|q_i - k_j|^2 / (2 tau); both sides equally wide.

        e_ij = -|q_i - k_j|^2 / (2 tau),  tau > 0

    The logarithm of a Gaussian kernel (RBF). A softmax over it gives kernel regression, weights
    exp(-|q - k|^2 / (2 tau)) over their sum. As |q|^2 is the same for a whole row it also equals a
    softmax over (q . k - |k|^2 / 2) / tau, and, where all keys are equally long, attention with dot
    products. Cost: 3 D FLOPs for each pair, as `Euclidean`. Parameters: none; 1 for a learned tau.
    Source: E. A. Nadaraya, "On Estimating Regression", 1964, and G. S. Watson, "Smooth Regression
    Analysis", 1964 (kernel regression).

    Attributes:
      tau: the variance of the kernel, or its start value if it is learned.
      spread: whether tau is "learned" (as softplus of a number) or "fixed".

    Card: distance; Nadaraya, On Estimating Regression, 1964; Watson, Smooth Regression Analysis,
    1964; time T^2 D; state T D.
    """

    tau: float = 1.0
    spread: Literal["learned", "fixed"] = "learned"

    rotary = True

    def setup(self) -> None:
        above_zero("gaussian", "tau", self.tau)
        if self.spread == "learned":
            self.positive = Positive(self.tau)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width("gaussian", q.shape[-1], key_width)
        return q

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """Computes -|q_i - k_j|^2 / (2 tau), float32 [B,H,Tq,Tk], of queries q and keys k, with tau
        fixed or learned as the field `spread` says; positions j are not used. See `Score.pairs`.
        """
        return squared_distance(q, k) / (
            -2.0 * (self.tau if self.spread == "fixed" else self.positive())
        )


def squared_distance(q: jax.Array, k: jax.Array) -> jax.Array:
    """|q - k|^2 for q [B,H,Tq,D] and k [B,H,Tk,D]: [B,H,Tq,Tk], float32."""
    difference = widened(q)[:, :, :, None, :] - widened(k)[:, :, None, :, :]
    return (difference * difference).sum(axis=-1)
