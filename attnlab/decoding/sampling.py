"""Sampling: temperature, then top-k, then top-p (nucleus), then min-p, then a draw."""

import jax
import jax.numpy as jnp

from attnlab.decoding.greedy import Choose, best_token
from attnlab.decoding.hypotheses import Hypotheses
from attnlab.decoding.rows import NEVER, largest
from attnlab.decoding.steps import pick


def sort_by_score(hypotheses: Hypotheses) -> Hypotheses:
    """Returns the hypotheses [B,K] of every sentence in descending order of their scores."""
    return pick(hypotheses, jnp.argsort(-hypotheses.scores, axis=1))


def sampler(
    keys: jax.Array,
    n: int = 1,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Choose:
    """Returns a function of logits [B*n,V] and step that draws an id for each of `n` samples of B
    sentences (`keys` [B]) from the softmax of what `filter_logits` leaves by temperature, top_k,
    top_p and min_p; at temperature 0 it takes the most probable.

    Args:
      keys: [B], one for each sentence, so that its samples do not depend on the rest of the batch.
      temperature: 0 is greedy search.
      top_k: keep the k most probable tokens; 0 keeps all.
      top_p: keep the smallest set of most probable tokens that holds this probability; 1 keeps all.
      min_p: keep the tokens that have at least this share of the probability of the most probable
        one; 0 keeps all.
    """
    if temperature == 0:
        return best_token
    fold_sample = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    keys = jax.vmap(fold_sample, in_axes=(0, None))(keys, jnp.arange(n)).reshape(len(keys) * n)

    def draw(logits: jax.Array, t: jax.Array) -> jax.Array:
        step_keys = jax.vmap(lambda key: jax.random.fold_in(key, t))(keys)
        logits = filter_logits(logits, temperature, top_k, top_p, min_p)
        return jax.vmap(jax.random.categorical)(step_keys, logits).astype(jnp.int32)

    return draw


def filter_logits(
    logits: jax.Array, temperature: float, top_k: int, top_p: float, min_p: float = 0.0
) -> jax.Array:
    """Returns logits [N,V] to draw from: divided by `temperature` > 0, then made impossible all but
    the `top_k`, all but the nucleus of `top_p`, and all that is less than `min_p` times as probable
    as the most probable token.
    """
    return keep_likely(keep_nucleus(keep_largest(logits / temperature, top_k), top_p), min_p)


def keep_largest(logits: jax.Array, k: int) -> jax.Array:
    """Sets all logits but those at least as large as the k-th largest of their row to -inf; ties
    keep all; k = 0 or k >= V keeps the row.
    """
    if k == 0 or k >= logits.shape[1]:
        return logits
    return jnp.where(logits >= largest(logits, k)[0][:, -1:], logits, NEVER)


def keep_nucleus(logits: jax.Array, p: float) -> jax.Array:
    """Sets all logits [N,V] to -inf but those of the smallest set of most probable tokens of each
    row whose probability reaches `p` (Holtzman et al., 2020).

    A token stays if the probability of all before it in descending order is < p, so the first
    always does; ties go to the lowest id; p = 1 keeps the row.
    """
    if p >= 1.0:
        return logits
    probabilities = jax.nn.softmax(logits, axis=1)
    order = jnp.argsort(-probabilities, axis=1)
    descending = jnp.take_along_axis(probabilities, order, axis=1)
    keep = jnp.cumsum(descending, axis=1) - descending < p
    return jnp.where(
        jnp.put_along_axis(jnp.zeros_like(keep), order, keep, axis=1, inplace=False), logits, NEVER
    )


def keep_likely(logits: jax.Array, share: float) -> jax.Array:
    """Sets the logits of tokens with less than `share` of the probability of the most probable one
    of their row to -inf (min-p, Nguyen et al., 2024); share = 0 keeps the row.
    """
    if share == 0.0:
        return logits
    least = logits.max(axis=1, keepdims=True) + jnp.log(share)
    return jnp.where(logits >= least, logits, NEVER)
