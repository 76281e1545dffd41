"""Products of normalised queries and keys: scores stay bounded even if the projections grow.

    qk_norm       e_ij = g (q_i / |q_i|) . (k_j / |k_j|)                        Henry et al. 2020
    qk_layernorm  e_ij = LN_q(q_i) . LN_k(k_j) / sqrt(D)                        Dehghani et al. 2023
    qk_rmsnorm    e_ij = RMS_q(q_i) . RMS_k(k_j) / sqrt(D)                      Qwen3
    qk_rmsnorm_plus_one                                                         Gemma 3: s = 1 + w, w from 0

    LN(x) = s (x - mean(x)) / sqrt(var(x) + epsilon)        RMS(x) = s x / sqrt(mean(x^2) + epsilon)        over the D of a head

g is a learned number, s a learned scale of each channel [D] (one for queries, one for keys) that
starts at 1, without bias; all are shared by the heads. |e| <= |g|, and |e| <= sqrt(D) max|s_q|
max|s_k|. Statistics in float32. Queries and keys are normalised before a position scheme rotates
them, since a scale of channels does not commute with a rotation. A memory keeps the normalised key.
Cost: 2 D FLOPs for each pair, 3 D, 7 D and 4 D for each query and key. Parameters: 1; 2 D. Source:
A. Henry, P. R. Dachapally, S. Pawar, Y. Chen, "Query-Key Normalization for Transformers", Findings
of EMNLP 2020 (arXiv 2010.04245): no 1/sqrt(D), g starts at log2(n^2 - n), n the 97.5th percentile
of the lengths of the training sequences; M. Dehghani et al., "Scaling Vision Transformers to 22
Billion Parameters", ICML 2023; the technical reports of Qwen3 and Gemma 3, 2025. Gemma's
1 + w is the same function until weights decay, and its files hold w. Another function is the norm of
OLMo 2, whose statistics run over all heads together.
"""

import functools
import math
from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax

from attnlab.attention.scores.protocol import Dot, ScaledDot, above_zero, same_width
from attnlab.attention.scores.similarities import unit
from attnlab.errors import at_least
from attnlab.layers.norms import RMSNorm, RMSNormPlusOne


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
