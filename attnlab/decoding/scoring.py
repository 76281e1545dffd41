"""Scores of finished hypotheses: the length and coverage penalties of GNMT (Wu et al. 2016, section
7).

A finished hypothesis Y of a source X scores log P(Y|X) / lp(Y) + cp(X; Y).
"""

import jax
import jax.numpy as jnp

# otherwise a source position without attention would have an infinite penalty
LEAST_COVERAGE = 1e-6


def length_penalty(length: jax.Array | int, alpha: float, offset: int = 5) -> jax.Array:
    """lp(Y) = ((k + |Y|) / (k + 1))^alpha, where |Y| counts the EOS: 1 for one token, and 1 always
    with alpha 0. The offset k is 5 in GNMT, 0 in `transformers`.
    """
    return ((offset + jnp.asarray(length, jnp.float32)) / (offset + 1.0)) ** alpha


def coverage_penalty(coverage: jax.Array, source_mask: jax.Array, beta: float) -> jax.Array:
    """cp(X; Y) = beta * sum over real source positions i of log min(sum_j p_ij, 1), never above 0.

    Args:
      coverage: [..., S], the attention p_ij that position i received, summed over the target steps
        j (EOS too).
      source_mask: [..., S] bool, True at real positions; padding does not count.
      beta: its weight; 0 switches the penalty off.

    Returns:
      [...] float32. The inner sum is clamped at 1e-6.
    """
    return beta * jnp.sum(
        jnp.where(source_mask, jnp.log(jnp.clip(coverage, LEAST_COVERAGE, 1.0)), 0.0), axis=-1
    )
