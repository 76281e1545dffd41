"""How a language model reads a text piece by piece: what it knows before, and what it makes of every
token of a piece.

Axis letters: B batch, T length of a piece, V vocabulary.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from attnlab.decoding.steps import largest
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks.models import watched_pass
from attnlab.tasks.protocol import Batch, Params, Rngs, Smoothing, Sums, Tree
from attnlab.tasks.tokens import cross_entropy


def state_before(system: LanguageModel, params: Params, rows: int) -> Tree:
    """A state of so many rows, all zeros. Nothing in it is ever read, for every row of a first
    batch is fresh; `params` may be shapes.
    """
    shapes = jax.eval_shape(
        lambda one: system.apply({"params": one}, rows, 0, method="start"), params
    )
    return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)


def of_tokens(
    system: LanguageModel,
    params: Params,
    batch: Batch,
    remembered: Tree,
    *,
    smoothing: Smoothing = 0.0,
    rngs: Rngs | None = None,
) -> tuple[Sums, Tree]:
    """What a model makes of every token of a batch, and its state afterwards.

    Args:
      system: its padding is that of the batch.
      params: its parameters.
      batch: "source" and "target" [B,T]; with `remembered` "fresh" [B], 1 where a text begins; and
        "recalled" [B,T] where it is known what can be recalled. With "segments" [B,T] rows hold
        several texts.
      remembered: the state that the batch before has left; None if every text begins anew.
      smoothing: of labels.
      rngs: random streams.

    Returns:
      "loss", "tokens", "correct" and, where it is known, "asked" and "recalled", arrays [B,T] that
      are 0 at padding, in training also what `models.watched_pass` gives; and the state, None
      without `remembered`.
    """
    apply = functools.partial(system.apply, {"params": params}, rngs=rngs)
    source, target = jnp.asarray(batch["source"]), jnp.asarray(batch["target"])
    logits: Tree
    after: Tree = None
    seen: Sums = {}
    if remembered is None:
        several = [jnp.asarray(batch["segments"])] if "segments" in batch else []
        read = functools.partial(apply, source, *several)
        if rngs is None:
            logits = read()
        else:
            logits, _, seen = watched_pass(system, (), read)
    else:
        state = jax.tree.map(
            functools.partial(_fresh_or, jnp.asarray(batch["fresh"]) != 0),
            apply(len(source), 0, method="start"),
            remembered,
        )
        logits, after = apply(state, source, method="read")
    real, logits = system.real(target), logits.astype(jnp.float32)
    losses = jnp.where(real, cross_entropy(logits, target, smoothing), 0.0)
    guessed = largest(logits.reshape(-1, logits.shape[-1]), 1)[1].reshape(
        target.shape
    )  # argmax, in a tenth of the time
    correct = (guessed == target) & real
    each = {"loss": losses, "tokens": real, "correct": correct, **seen}
    if "recalled" in batch:
        asked = jnp.asarray(batch["recalled"]) != 0
        each |= {"asked": asked, "recalled": correct & asked}
    return each, after


def summed(each: Sums) -> Sums:
    """The sums of `of_tokens` over all tokens; statistics of the batch stay."""
    return {name: one if name == "statistics" else one.sum() for name, one in each.items()}


def _fresh_or(fresh: jax.Array, start: jax.Array, remembered: jax.Array) -> jax.Array:
    """Rows [B,...] of `start` where a text begins, what is remembered elsewhere, in the precision
    of `start`.
    """
    return jnp.where(
        fresh.reshape(-1, *[1] * (start.ndim - 1)), start, remembered.astype(start.dtype)
    )
