"""Losses that train alignments, as pure functions: REINFORCE with a moving baseline for sampled ones, and
the doubly stochastic regulariser (`uncovered`).

    l_t = log p(y_t | ...)        R_t = sum_u l_u  ("total", the paper's)   or   R_t = sum_{u >= t} l_u  ("to go")
    loss = -mean over rows of sum_t ( l_t + lambda_r sg(R_t - b_t) log p(s_t) + lambda_e H_t )        b <- 0.9 b + 0.1 R

sg stops gradients, s_t is the sampled location, H_t the entropy of its distribution. The gradient
of the loss is that of Xu et al.: an unbiased estimate of the gradient of -sum_s p(s) log p(y | s)
(lambda_r = 1, lambda_e = 0), for any b that does not depend on the sample. The reward to go is
unbiased too, since a location cannot change earlier words, and it has less variance. Cost: a few
FLOPs for each step, no parameters. Source: K. Xu et al., "Show, Attend and Tell", ICML 2015,
section 4.1. The authors' code uses the mean over time divided by 10 as reward, and lambda_e =
0.002. The baseline here has an entry for each column of the rewards: one for "total", T for "to
go".
"""

from typing import Any

import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab.layers.dense import widened

DECAY = 0.9


@flax.struct.dataclass
class Episode:
    """The result of one batch of sampled sequences, [B,T] each.

    Attributes:
      log_likelihood: log p(y_t | ...), with its gradient.
      log_prob: log p(s_t), summed over everything sampled at step t (see `gathered`).
      entropy: H_t, summed likewise.
      valid: bool, steps that count.
    """

    log_likelihood: jax.Array
    log_prob: jax.Array
    entropy: jax.Array
    valid: jax.Array


def total(episode: Episode) -> jax.Array:
    """The reward of every step is the log-likelihood of the whole sequence, [B,1]."""
    return _mask_steps(episode, episode.log_likelihood).sum(axis=1, keepdims=True)


def to_go(episode: Episode) -> jax.Array:
    """The reward of a step is the log-likelihood from there on, [B,T]."""
    return jnp.cumsum(_mask_steps(episode, episode.log_likelihood)[:, ::-1], axis=1)[:, ::-1]


def surrogate(
    episode: Episode,
    rewards: jax.Array,
    baseline: jax.Array | float,
    reward_weight: jax.Array | float = 1.0,
    entropy_weight: jax.Array | float = 0.0,
) -> jax.Array:
    """Computes the REINFORCE loss of an `Episode`, a scalar to minimise: minus the mean over batch
    rows of the sum over valid steps of log-likelihood + reward_weight (rewards - baseline) log p of
    the samples + entropy_weight entropy.

    Args:
      episode: of this batch.
      rewards: [B,1] or [B,T], `total` or `to_go` of it; held constant.
      baseline: broadcastable to the rewards; held constant.
      reward_weight, entropy_weight: lambda_r and lambda_e.
    """
    advantage = jax.lax.stop_gradient(rewards - baseline)
    objective = (
        episode.log_likelihood
        + reward_weight * advantage * episode.log_prob
        + entropy_weight * episode.entropy
    )
    return -_mask_steps(episode, objective).sum(axis=1).mean()


def followed(
    baseline: jax.Array, rewards: jax.Array, valid: jax.Array, decay: float = DECAY
) -> jax.Array:
    """Returns the moving-average baseline, [1] or [T], after a batch of rewards [B,1] or [B,T],
    decay * baseline + (1 - decay) * mean over the rows that are `valid` (for [B,1]: at any step),
    without gradient; entries of steps that are valid in no row stay unchanged.

    Args:
      baseline: as wide as the rewards.
      rewards: [B,1] or [B,T].
      valid: [B,T] bool.
    """
    counted = valid.any(axis=1, keepdims=True) if rewards.shape[1] == 1 else valid
    rows = counted.sum(axis=0)
    mean = jnp.where(counted, rewards, 0.0).sum(axis=0) / jnp.maximum(rows, 1)
    return jax.lax.stop_gradient(
        jnp.where(rows > 0, decay * baseline + (1.0 - decay) * mean, baseline)
    )


def with_baseline(
    log_prob: jax.Array, rewards: jax.Array, baseline: jax.Array, valid: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Computes two scalar losses, summed over steps and valid rows, the REINFORCE loss of the
    choices with reward R - b_t, and the squared error of the predicted baseline b_t, from log p,
    rewards R and `baseline` [B,T]. Both are to be minimised:

        sum_t -sg(R - b_t) log p(s_t)          sum_t (sg(R) - b_t)^2

    The first has no gradient for b, the second none for s (V. Mnih et al., "Recurrent Models of Visual
    Attention", NIPS 2014, equation 3).

    Args:
      log_prob: [B,T], of the choices.
      rewards: [B,1] or [B,T]; held constant.
      baseline: [B,T], b_t; must not depend on choice t or a later one.
      valid: [B] bool, rows that count.
    """
    advantage = jax.lax.stop_gradient(rewards) - baseline
    choices = -(jax.lax.stop_gradient(advantage) * log_prob).sum(axis=1)
    losses = choices, jnp.square(advantage).sum(axis=1)
    first, second = (jnp.where(valid, row_sums, 0.0).sum() for row_sums in losses)
    return first, second


def gathered(samples: Any) -> tuple[jax.Array, jax.Array]:
    """Sums the collection "samples" of a forward pass, a tree of modules with tuples [B,H,T] named
    "log_prob" and "entropy", over heads and modules, and returns two arrays [B,T]: log p of the
    samples, and entropy.

    Entries are [B,H,T], or [B,H,T,1] where looks of one query were stacked along axis 2 by a scan
    over time.
    """
    flat = flax.traverse_util.flatten_dict(samples)

    def summed(name: str) -> jax.Array:
        looks = [look for path, entries in flat.items() if path[-1] == name for look in entries]
        return jnp.sum(
            jnp.stack([look.reshape(*look.shape[:2], -1).sum(axis=1) for look in looks]), axis=0
        )

    return summed("log_prob"), summed("entropy")


def _mask_steps(episode: Episode, x: jax.Array) -> jax.Array:
    """Zero at steps that do not count."""
    return jnp.where(episode.valid, x, 0.0)


def uncovered(
    weights: jax.Array, steps: jax.Array, valid: jax.Array | None = None, tau: float = 1.0
) -> jax.Array:
    """Computes the doubly stochastic loss of each row, [B]: the squared distance from tau of the
    sum of weights of each location, summed over locations, averaged over heads. Over a sequence the
    weights of every location should sum to about 1 (Xu et al. 2015).

        loss = mean over rows and heads of sum_j (tau - sum_t m_t a_tj)^2,   m_t = 1 at real target steps

    To be added, times lambda, to the *summed* log-likelihood of a sentence. With C steps over L
    locations it cannot fall below (L - C)^2 / L at tau = 1, the value of uniform weights. Cost: 2
    Tq Tk FLOPs. Source: K. Xu et al., "Show, Attend and Tell", ICML 2015, section 4.2.1; the paper
    allows tau >= L / D (D the number of its features) and takes 1. The paper's batches hold captions
    of one length; with padding the sums leave out padded steps and padded locations.

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
