"""The loop that greedy search and sampling share: one hypothesis per row, one token per step, until
EOS, or another id that ends texts, or a length limit. PAD and BOS are never chosen.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.hypotheses import Hypotheses, StepFn
from attnlab.decoding.rows import largest
from attnlab.decoding.rules import Rules
from attnlab.decoding.steps import among, emittable, put, weights_buffer

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
    """Returns the N = rows*samples hypotheses of a finished run as Hypotheses [rows,samples], in the
    order of the rows, with log P as score.
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
    return Hypotheses(
        tokens=run.tokens.reshape(shape),
        scores=log_probs,
        log_probs=log_probs,
        lengths=lengths,
        alignment=maps,
    )
