"""Sparsemax and alpha-entmax: weights that are exactly 0 for keys with low scores.

    a_i = argmax over distributions p of  p . e_i + S_alpha(p)            S_alpha: Tsallis entropy
        = max((alpha - 1) e_i - tau_i, 0)^(1 / (alpha - 1)),   tau_i such that they sum to 1

alpha -> 1 is softmax, alpha = 2 sparsemax. The threshold is found by sorting for alpha = 2 and
alpha = 1.5, by bisection for any other alpha > 1. One derivative serves all of them (`_derivative`): it
needs the weights only, so it does not depend on ties or sorting.

With x = -(alpha - 1) log a on the support, the derivative in alpha of Correia et al. (proposition
1) divides small differences by (alpha - 1)^2. Collected by powers it is, with g(x) = (exp(x) - 1 -
x) / x^2, r = g(x) (log a)^2 and sums weighted by a over the keys,

    d a_j / d alpha = a_j (E[r] (1 + x_j) - r_j (1 + E[x])) / E[exp(x)],

the same number, exact also as alpha -> 1. In the same spirit bisection works on theta = (tau + 1) /
(alpha - 1).

Cost for each pair: sorting O(log Tk) steps, bisection 32 x 6 FLOPs. Parameters: none; H for the
learned alpha. Source: A. Martins, R. Astudillo, "From Softmax to Sparsemax", ICML 2016, algorithm
1; B. Peters, V. Niculae, A. Martins, "Sparse Sequence-to-Sequence Models", ACL 2019, algorithms 1
and 2; G. Correia, V. Niculae, A. Martins, "Adaptively Sparse Transformers", EMNLP 2019, section 3.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from attnlab.attention.alignments.protocol import LOW, Alignment, full_mask
from attnlab.attention.view import View
from attnlab.errors import UserError
from attnlab.layers.dense import widened

# of an interval of width log Tk at most: past the resolution of float32; twice as many in float64
HALVINGS = 32
LEAST = 1e-6  # alpha - 1 is not taken below; there entmax and softmax are one to float32

Solver = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(depth [..., Tk], excess, keys allowed [..., 1]) to weights: depth is (alpha - 1) (e - max e), at
least -2; excess is alpha - 1.
"""


class Sparsemax(Alignment):
    """The Euclidean projection of the scores onto the distributions, a_i = max(e_i - tau_i, 0); no
    parameters.

    Card: sparse; Martins, Astudillo, From Softmax to Sparsemax, ICML 2016; time T^2 log T.
    """

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return entmax(scores, mask, 1.0, sorted_linear)


class Entmax(Alignment):
    """a_i = max((alpha - 1) e_i - tau_i, 0)^(1 / (alpha - 1)); no parameters.

    Attributes:
      alpha: above 1 (softmax), 2 is sparsemax; 1.5 is computed by sorting, any other by bisection.
        Above 2 the slope of a weight near 0 is unbounded, and so is the effect of rounding there.

    Card: sparse; Peters et al., Sparse Sequence-to-Sequence Models, ACL 2019; time T^2 log T.
    """

    alpha: float = 1.5

    def setup(self) -> None:
        if not self.alpha > 1.0:
            raise UserError(
                f"alignment entmax: alpha={self.alpha}, must be above 1; at 1 it is 'softmax'"
            )

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return entmax(
            scores, mask, self.alpha - 1.0, sorted_square if self.alpha == 1.5 else bisected
        )


class LearnedEntmax(Alignment):
    """Entmax with an alpha in (1, 2) for each head, alpha_h = 1 + sigmoid(w_h), w_h learned.

    Attributes:
      alpha: the start value for all heads.

    Card: sparse; Correia et al., Adaptively Sparse Transformers, EMNLP 2019; time T^2.
    """

    alpha: float = 1.5

    def setup(self) -> None:
        """Checks that the start value `alpha` lies between 1 and 2; raises UserError if not."""
        if not 1.0 < self.alpha < 2.0:
            raise UserError(
                f"alignment learned_entmax: alpha={self.alpha} to start from, must lie between 1"
                " and 2, as 1.5 does"
            )

    @nn.compact
    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        start = math.log((self.alpha - 1.0) / (2.0 - self.alpha))
        logit = self.param("logit", nn.initializers.constant(start), (scores.shape[1],))
        return entmax(scores, mask, jax.nn.sigmoid(widened(logit))[:, None, None], bisected)


def sorted_linear(depth: jax.Array, excess: jax.Array, count: jax.Array) -> jax.Array:
    """Computes sparsemax weights max(depth - tau, 0) of each row of `depth` [...,Tk], the scores
    less the row's largest, with the tau, computed by sorting, that makes the row sum to 1; `excess`
    and `count` are not used. The support is the longest prefix of the sorted keys on which 1 + k
    u_k > u_1 + ... + u_k.
    """
    u = -jnp.sort(-depth, axis=-1)
    k = jnp.arange(1, u.shape[-1] + 1)
    inside = 1.0 + k * u > jnp.cumsum(u, axis=-1)
    tau = (jnp.where(inside, u, 0.0).sum(axis=-1, keepdims=True) - 1.0) / inside.sum(
        axis=-1, keepdims=True
    )
    return jnp.maximum(depth - tau, 0.0)


def sorted_square(depth: jax.Array, excess: jax.Array, count: jax.Array) -> jax.Array:
    """Computes 1.5-entmax weights max(depth - tau, 0)^2 of each row of `depth` [...,Tk], half of
    the scores less the row's largest, with the tau, computed by sorting, that makes the row sum to
    1; `excess` and `count` are not used. With tau_k = M_k - sqrt((1 - S_k) / k), M_k mean and S_k
    spread of the k best, it is the last tau_k <= u_k.
    """
    u = -jnp.sort(-depth, axis=-1)
    k = jnp.arange(1, u.shape[-1] + 1)
    mean = jnp.cumsum(u, axis=-1) / k
    spread = jnp.cumsum(u * u, axis=-1) - k * mean**2
    size = (mean - jnp.sqrt(jnp.maximum((1.0 - spread) / k, 0.0)) <= u).sum(axis=-1, keepdims=True)
    inside = k <= size
    # once the support is known mean and spread are taken again: the running sums above lose digits
    # by cancellation
    mean = jnp.where(inside, u, 0.0).sum(axis=-1, keepdims=True) / size
    spread = jnp.where(inside, (u - mean) ** 2, 0.0).sum(axis=-1, keepdims=True)
    tau = mean - jnp.sqrt(jnp.maximum((1.0 - spread) / size, 0.0))
    return jnp.maximum(depth - tau, 0.0) ** 2


def bisected(depth: jax.Array, excess: jax.Array, count: jax.Array) -> jax.Array:
    """Computes alpha-entmax weights [...,Tk], each row divided by its sum, by bisection of the
    threshold, from `excess` = alpha - 1 > 0, `depth` = excess (score - largest of the row) and
    `count` [...,1], the number of allowed keys.
    """

    def weights(theta: jax.Array) -> jax.Array:
        return jnp.exp(jnp.log1p(jnp.maximum(depth - excess * theta, -1.0)) / excess)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Keeps the half of the interval in which the weights sum to 1."""
        low, high = ends
        middle = (low + high) / 2
        heavy = weights(middle).sum(axis=-1, keepdims=True) > 1.0
        return jnp.where(heavy, middle, low), jnp.where(heavy, high, middle)

    # there the best key alone weighs 1; at the other end equal keys would sum to 1
    low = jnp.zeros((*depth.shape[:-1], 1), depth.dtype)
    width = -jnp.expm1(-excess * jnp.log(jnp.maximum(count, 1).astype(depth.dtype))) / excess
    low, high = jax.lax.fori_loop(
        0, HALVINGS if depth.dtype != jnp.float64 else 2 * HALVINGS, halve, (low, low + width)
    )
    unnormalised = weights((low + high) / 2)
    total = unnormalised.sum(axis=-1, keepdims=True)
    return unnormalised / jnp.where(total == 0.0, 1.0, total)


def entmax(
    scores: jax.Array, mask: jax.Array | None, excess: jax.Array | float, solve: Solver = bisected
) -> jax.Array:
    """Computes alpha-entmax weights [...,Tk] float32 of scores over the last axis with the function
    `solve`, alpha = 1 + `excess`; they are 0 where the mask is False (None allows all), and
    differentiable in scores and excess.

    Args:
      scores: [..., Tk].
      mask: boolean, broadcastable to the scores; True may be seen. None allows all.
      excess: alpha - 1, broadcastable to [..., 1].
      solve: how the weights are found; the solver must be the one for this alpha.

    Returns:
      Weights [..., Tk] float32: exactly 0 where masked; a row with nothing allowed is all zeros,
        with zero gradients.
    """
    scores = widened(scores)
    if not scores.shape[-1]:
        return scores
    allowed = jnp.broadcast_to(full_mask(mask, scores.shape[-1]), scores.shape)
    return _entmax(solve, scores, allowed, jnp.maximum(jnp.asarray(excess, scores.dtype), LEAST))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _entmax(solve: Solver, scores: jax.Array, allowed: jax.Array, excess: jax.Array) -> jax.Array:
    """Computes alpha-entmax weights [...,Tk] of scores [...,Tk] with the function `solve`, `excess`
    = alpha - 1 [...,1], and 0 where the bool array `allowed` [...,Tk] is False. Their derivative is
    `_derivative`.
    """
    below = scores - jnp.where(allowed, scores, LOW).max(axis=-1, keepdims=True)
    # a key below -1 gets weight 0 anyway
    depth = jnp.where(allowed, jnp.maximum(excess * below, -2.0), -2.0)
    return jnp.where(allowed, solve(depth, excess, allowed.sum(axis=-1, keepdims=True)), 0.0)


def _derivative(solve: Solver, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Computes, as the JVP rule of `_entmax`, the pair of the weights [...,Tk] and their tangents
    from `primals` and `tangents`, each the three of (scores, allowed, excess); a `SymbolicZero` in
    place of a tangent adds nothing. For the scores: s (de - sum(s de) / sum(s)) with s = a^(2 -
    alpha) on the support.
    """
    scores, allowed, excess = primals
    weights = _entmax(solve, scores, allowed, excess)
    logs = jnp.log(jnp.where(weights > 0.0, weights, 1.0))
    change = jnp.zeros_like(weights)
    if not isinstance(tangents[0], SymbolicZero):
        # finite: float32 knows no a^(alpha - 1) in (0, 5e-8)
        slope = jnp.where(weights > 0.0, jnp.exp((1.0 - excess) * logs), 0.0)
        total = slope.sum(axis=-1, keepdims=True)
        share = slope / jnp.where(total == 0.0, 1.0, total)
        change = change + slope * (tangents[0] - (share * tangents[0]).sum(axis=-1, keepdims=True))
    if not isinstance(tangents[2], SymbolicZero):
        change = change + _in_alpha(weights, logs, excess) * tangents[2]
    return weights, change


_entmax.defjvp(_derivative, symbolic_zeros=True)


def _in_alpha(weights: jax.Array, logs: jax.Array, excess: jax.Array) -> jax.Array:
    """Computes the derivative [...,Tk] of entmax weights with respect to alpha from the weights
    [...,Tk], their logarithms `logs` and `excess` = alpha - 1; derivative and logarithms are 0
    where the weight is 0. The formula is at the head of the file.
    """
    x = -excess * logs
    # near 0 the difference exp(x) - 1 - x loses precision: use the series
    near = jnp.minimum(x, 0.5)
    series = jnp.polyval(
        jnp.array([1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2], near.dtype), near
    )
    far = jnp.maximum(x, 0.5)
    r = jnp.where(x < 0.5, series, (jnp.expm1(far) - far) / far**2) * logs**2

    def mean(y: jax.Array) -> jax.Array:
        return (weights * y).sum(axis=-1, keepdims=True)

    return weights * (mean(r) * (1.0 + x) - r * (1.0 + mean(x))) / (1.0 + mean(jnp.expm1(x)))
