"""The doubly stochastic regulariser: over a sequence the weights of every location should sum to
about 1 (Xu et al. 2015).

    loss = mean over rows and heads of sum_j (tau - sum_t m_t a_tj)^2,   m_t = 1 at real target steps

To be added, times lambda, to the *summed* log-likelihood of a sentence. With C steps over L
locations it cannot fall below (L - C)^2 / L at tau = 1, the value of uniform weights. Cost: 2 Tq Tk
FLOPs. Source: K. Xu et al., "Show, Attend and Tell", ICML 2015, section 4.2.1; the paper allows tau
>= L / D (D the number of its features) and takes 1. The paper's batches hold captions of one
length; with padding the sums leave out padded steps and padded locations.
"""

import jax
import jax.numpy as jnp

from attnlab.layers.precision import widened


def uncovered(
    weights: jax.Array, steps: jax.Array, valid: jax.Array | None = None, tau: float = 1.0
) -> jax.Array:
    """Computes the loss of each row, [B]: the squared distance from tau of the sum of weights of
    each location, summed over locations, averaged over heads.

    Args:
      weights: [B,H,Tq,Tk], of a whole sequence.
      steps: [B,Tq] bool, target steps that count.
      valid: [B,Tk] bool, real locations; None means all are.
      tau: the target of the sum of weights of each location.
    """
    covered = jnp.where(steps[:, None, :, None], widened(weights), 0.0).sum(axis=2)  # [B,H,Tk]
    missing = (tau - covered) ** 2
    counted = missing if valid is None else jnp.where(valid[:, None], missing, 0.0)
    return counted.sum(axis=-1).mean(axis=1)
