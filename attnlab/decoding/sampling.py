"""Greedy search and sampling: the loop that both share, one hypothesis per row, one token per step,
until EOS, or another id that ends texts, or a length limit; and how a token is chosen. PAD and BOS
never are.

A sample is drawn behind filters: temperature, then top-k, then top-p (nucleus), then min-p. At
temperature 0 it is greedy search.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.rows import NEVER, largest
from attnlab.decoding.rules import Rules
from attnlab.decoding.steps import Hypotheses, StepFn, among, emittable, pick, put, weights_buffer

Choose = Callable[[jax.Array, jax.Array], jax.Array]
"""`choose(logits [N,V], t) -> tokens [N]`."""


class Run(NamedTuple):
    """The carry of the loop: the step, the last tokens [N], all tokens [N,L], their log-probability
    [N], which rows are done [N].
    """

    t: jax.Array
    last: jax.Array
    tokens: jax.Array
    log_probs: jax.Array
    done: jax.Array
    state: Any
    weights: jax.Array | None


def best_token(logits: jax.Array, t: jax.Array) -> jax.Array:
    """The id [N] of the largest logit, ties to the lowest id; `t` is not used."""
    del t
    return largest(logits, 1)[1][:, 0]


def start_run(
    step: StepFn,
    state: Any,
    memory: Any,
    *,
    rows: int,
    max_length: int,
    alignment: bool = False,
    special: Special = OURS,
) -> Run:
    """Returns the `Run` with which greedy search or sampling of `rows` hypotheses begins: step 0,
    BOS as last token, `max_length` PAD as tokens, log-probability 0, no row done, the model's
    `state`, and a buffer for attention weights if `alignment`, else None.

    Args:
      step, state, memory: the model, see `StepFn`; arrays have leading axis `rows`.
      rows: N.
      max_length: L, the most tokens emitted, EOS counted.
      alignment: whether attention weights are collected.
      special: ids of the target's vocabulary.
    """
    return Run(
        t=jnp.int32(0),
        last=jnp.full(rows, special.bos, jnp.int32),
        tokens=jnp.full((rows, max_length), special.pad, jnp.int32),
        log_probs=jnp.zeros(rows, jnp.float32),
        done=jnp.zeros(rows, bool),
        state=state,
        weights=weights_buffer(step, state, memory, rows, max_length) if alignment else None,
    )


def unroll(
    step: StepFn,
    run: Run,
    memory: Any,
    choose: Choose,
    limits: jax.Array,
    *,
    rules: Rules,
    until: jax.Array | int | None = None,
) -> Run:
    """Continues a run by `step(state, memory, last tokens)` and the tokens that `choose` takes from
    its logits under `rules`, and returns it when every row is done or `until` tokens are written,
    earlier ones counted; `limits` [N], from 1 to L, are the most tokens of each row.
    """
    until = run.tokens.shape[1] if until is None else until

    def advance(run: Run) -> Run:
        """Performs one step: lets `choose` take a token for every row among those that `rules`
        allow (PAD for rows done), adds its log-probability under the model without rules, and marks
        rows that ended or reached their limit.
        """
        raw_logits, state, weights = step(run.state, memory, run.last)
        logits = emittable(raw_logits, rules.special)
        chosen = choose(rules(logits, run.tokens, run.t), run.t)
        token = jnp.where(run.done, rules.special.pad, chosen)
        picked = jnp.take_along_axis(logits, token[:, None], axis=1)[:, 0]
        gain = picked - jax.nn.logsumexp(raw_logits.astype(jnp.float32), axis=1)
        return Run(
            t=run.t + 1,
            last=token,
            tokens=lax.dynamic_update_index_in_dim(run.tokens, token, run.t, 1),
            log_probs=run.log_probs + jnp.where(run.done, 0.0, gain),
            done=run.done | among(token, rules.special.ending) | (run.t + 1 >= limits),
            state=state,
            weights=put(run.weights, weights, run.t),
        )

    return lax.while_loop(lambda run: ~jnp.all(run.done) & (run.t < until), advance, run)


def group(run: Run, rows: int, samples: int, special: Special = OURS) -> Hypotheses:
    """Returns the N = rows*samples hypotheses of a finished run as Hypotheses [rows,samples], those
    of a row in descending order of their scores, log P.
    """
    emitted = run.tokens != special.pad
    shape = (rows, samples, run.tokens.shape[1])
    maps = None
    if run.weights is not None:
        maps = jnp.where(emitted[:, :, None], jnp.swapaxes(run.weights, 0, 1), 0.0).reshape(
            *shape, -1
        )
    log_probs = run.log_probs.reshape(rows, samples)
    lengths = jnp.sum(emitted, axis=1, dtype=jnp.int32).reshape(rows, samples)
    hypotheses = Hypotheses(run.tokens.reshape(shape), log_probs, log_probs, lengths, maps)
    return pick(hypotheses, jnp.argsort(-log_probs, axis=1))


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
