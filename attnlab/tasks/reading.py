"""How a language model reads a text piece by piece: what it knows before, and what it makes of every
token of a piece.

Axis letters: B batch, T length of a piece, V vocabulary.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import LOSSES
from attnlab.decoding.rows import largest
from attnlab.errors import UserError
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import check_offered, looks_of, offered_losses
from attnlab.tasks.models import refuse_terms, watched_pass
from attnlab.tasks.protocol import Batch, Params, Rngs, Smoothing, Sums, Tree
from attnlab.tasks.tokens import cross_entropy

_LOGITS = 2**26  # numbers of logits that are there at a time when texts are scored: 256 MiB


def state_before(system: LanguageModel, params: Params, rows: int) -> Tree:
    """Makes the first state of `rows` rows, all zeros. Nothing in it is ever read, for every row of
    a first batch is fresh; `params` may be shapes.
    """
    shapes = jax.eval_shape(
        lambda tree: system.apply({"params": tree}, rows, 0, method="start"), params
    )
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def of_tokens(
    system: LanguageModel,
    params: Params,
    batch: Batch,
    remembered: Tree,
    *,
    smoothing: Smoothing = 0.0,
    rngs: Rngs | None = None,
    at_once: int = 0,
    losses: Sequence[str] = (),
) -> tuple[Sums, Tree]:
    """Runs a language model on a batch and returns two things: a dict of arrays [B,T], such as
    "loss" and "correct", in training with statistics of norms, and its next state (or None).

    Args:
      system: its padding is that of the batch.
      params: its parameters.
      batch: "source" and "target" [B,T]; with `remembered` "fresh" [B], 1 where a text begins; and
        "recalled" [B,T] where it is known what can be recalled. With "segments" [B,T] rows hold
        several texts.
      remembered: the state that the batch before has left; None if every text begins anew.
      smoothing: of labels.
      rngs: random streams.
      at_once: tokens of a row whose logits are there at a time, computed again for the gradient, so
        that they take B at_once V numbers and not B T V; 0 for all. For systems that are `in_two`.
      losses: names of losses that attention hands out, to be returned too, summed over all looks.

    Returns:
      "loss", "tokens", "correct" and, where it is known, "asked" and "recalled", arrays [B,T] that
      are 0 at padding, in training also what `models.watched_pass` gives; and the state, None
      without `remembered`.
    """
    apply = functools.partial(system.apply, {"params": params}, rngs=rngs)
    source, target = jnp.asarray(batch["source"]), jnp.asarray(batch["target"])
    outputs: Tree
    next_state: Tree = None
    statistics: Sums = {}
    collected: Mapping[str, Tree] = {}
    watched = [LOSSES] if losses else []
    if remembered is None:
        several = [jnp.asarray(batch["segments"])] if "segments" in batch else []
        method = "hidden_states" if at_once else "__call__"
        read = functools.partial(apply, source, *several, method=method)
        if rngs is None and not losses:
            outputs = read()
        else:
            outputs, collected, statistics = watched_pass(system, watched, read)
    else:
        state = jax.tree.map(
            functools.partial(_fresh_or, jnp.asarray(batch["fresh"]) != 0),
            apply(len(source), 0, method="start"),
            remembered,
        )
        read = functools.partial(apply, state, source, method="read")
        if losses:
            (outputs, next_state), collected = read(mutable=watched)
        else:
            outputs, next_state = read()
    head: Any = None
    if at_once and remembered is None:
        head = functools.partial(system.apply, {"params": params}, method="logits")
    by_token = judged(system, outputs, batch, smoothing, head, at_once) | statistics
    real = system.real(target)
    return by_token | {name: _attention_loss(collected, name, real) for name in losses}, next_state


def judged(
    system: LanguageModel,
    outputs: jax.Array,
    batch: Batch,
    smoothing: Smoothing,
    head: Callable[[jax.Array], jax.Array] | None = None,
    at_once: int = 0,
) -> Sums:
    """Returns "loss", "tokens", "correct" and, where it is known, "asked" and "recalled" of each
    token, [B,T], from logits [B,T,V]; or from x [B,T,d] with a `head` that computes the logits of
    `at_once` tokens of a row at a time.
    """
    target = jnp.asarray(batch["target"])
    real = system.real(target)
    if head is None:
        nats, hits = losses_and_hits(outputs, target, smoothing)
    else:
        nats, hits = _in_pieces(head, outputs, target, smoothing, at_once)
    nats, correct = jnp.where(real, nats, 0.0), hits & real
    by_token = {"loss": nats, "tokens": real, "correct": correct}
    if "recalled" in batch:
        recallable = jnp.asarray(batch["recalled"]) != 0
        by_token |= {"asked": recallable, "recalled": correct & recallable}
    return by_token


class RowsApart:
    """Part of the task of language modelling: rows alone, each read from nothing, for whoever asks
    about single examples.

    Attributes:
      system: the model.
    """

    system: LanguageModel

    def apply(self, params: Params, batch: Batch, **options: Tree) -> Tree:
        """Computes the logits [B,T,V] of a batch, texts that share a row apart; see `Task.apply`."""
        texts = [jnp.asarray(batch[name]) for name in ("source", "segments") if name in batch]
        return self.system.apply({"params": params}, *texts, **options)

    def summed(self, outputs: Tree, batch: Batch, smoothing: Smoothing) -> Sums:
        """Returns the sums over logits [B,T,V]; see `Task.summed`."""
        return summed(judged(self.system, outputs, batch, smoothing))

    def split_batches(self, split: str) -> Iterator[tuple[np.ndarray, Any]]:
        """Yields for each batch of a split the numbers of its rows (texts, windows or pieces of the
        stream; -1 for padding), and the batch; see `Task.split_batches`.
        """
        first = 0
        for batch in self._in_turn(split):  # type: ignore[attr-defined]
            real = (batch["target"] != self.system.pad_id).any(axis=1)
            yield np.where(real, first + np.cumsum(real) - 1, -1), batch
            first += int(real.sum())


def room_for_logits(system: LanguageModel, rows: int, width: int) -> int:
    """Returns `at_once` of `of_tokens` for rows of `width`: the tokens whose logits have room; 0 if
    all have.
    """
    at_once = max(16, _LOGITS // (rows * system.vocabulary)) if system.in_two else 0
    return at_once if at_once < width else 0


def losses_and_hits(
    logits: jax.Array, target: jax.Array, smoothing: Smoothing
) -> tuple[jax.Array, jax.Array]:
    """Returns the loss of each token, and whether the most probable id is right, [B,t] each, from
    logits [B,t,V] and target [B,t].
    """
    logits = logits.astype(jnp.float32)
    losses = cross_entropy(logits, target, smoothing)
    # argmax, in a tenth of the time
    guessed = largest(logits.reshape(-1, logits.shape[-1]), 1)[1].reshape(target.shape)
    return losses, guessed == target


def _in_pieces(
    head: Callable[[jax.Array], jax.Array],
    x: jax.Array,
    target: jax.Array,
    smoothing: Smoothing,
    at_once: int,
) -> tuple[jax.Array, jax.Array]:
    """Returns the loss of each token, and whether the most probable id is right, [B,T] each, from
    the logits `head(x)` of x [B,T,d], computed for `at_once` tokens of a row at a time to save
    memory.
    """
    rows, length = target.shape
    pieces = -(-length // at_once)
    room = pieces * at_once - length

    def cut(array: jax.Array) -> jax.Array:
        filled = jnp.pad(array, ((0, 0), (0, room), *[(0, 0)] * (array.ndim - 2)))
        return filled.reshape(rows, pieces, at_once, *array.shape[2:]).swapaxes(0, 1)

    @jax.checkpoint
    def score_piece(piece: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return losses_and_hits(head(piece[0]), piece[1], smoothing)

    judgements = jax.lax.map(score_piece, (cut(x), cut(target)))
    losses, hits = (part.swapaxes(0, 1).reshape(rows, -1)[:, :length] for part in judgements)
    return losses, hits


def check_packs(config: schemas.LanguageModelling, system: LanguageModel, params: Tree) -> None:
    """Raises `UserError` unless the system, with parameters of the shapes `params`, can read rows
    of several texts (packed) and keep the texts apart.

    Raises:
      UserError: it does not.
    """
    if not system.packs:
        raise UserError(
            f"config.batch.texts=packed: config.system={config.system.name} cannot keep the texts of"
            " a row apart; take in_turn, joined or apart, or the system decoder"
        )
    rows = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
    jax.eval_shape(system.apply, {"params": params}, rows, rows)


def check_pieces(system: LanguageModel, at_once: int) -> None:
    """Raises `UserError` where logits are to be computed in pieces and the system cannot give its
    hidden states.

    Raises:
      UserError: `at_once` is above 0, and the system has no hidden states.
    """
    if at_once and not system.in_two:
        raise UserError(
            f"config.training.logits_at_once={at_once}: {type(system).__name__} does not say what"
            " stands before its logits; set it to 0, or take the system decoder"
        )


def summed(sums: Sums) -> Sums:
    """The sums of `of_tokens` over all tokens; statistics of the batch stay."""
    return {name: array if name == "statistics" else array.sum() for name, array in sums.items()}


def _attention_loss(collected: Mapping[str, Tree], name: str, real: jax.Array) -> jax.Array:
    """Returns the loss `name` that attention has left in the collections `collected` at every token
    [B,T], summed over all looks; 0 at what is not real.
    """
    looks = [look[name] for look in looks_of(collected) if name in look]
    total = sum((loss.reshape(real.shape) for loss in looks), jnp.zeros(real.shape))
    return jnp.where(real, total, 0.0)


def penalised(sums: Sums, weights: Mapping[str, float]) -> tuple[jax.Array, Sums]:
    """Returns two things: the "loss" of `sums` plus each penalty in `sums` times its weight, and a
    dict of the other sums, with the plain loss as "cross_entropy" if there are weights.
    """
    remaining = {name: value for name, value in sums.items() if name != "loss"}
    if not weights:
        return sums["loss"], remaining
    added = sum(weight * sums[name] for name, weight in weights.items())
    return sums["loss"] + added, {"cross_entropy": sums["loss"], **remaining}


def penalties(config: schemas.Settings, shapes: Mapping[str, Tree]) -> dict[str, float]:
    """Returns the weights of the losses that attention hands out, by name, without those that are
    None; raises `UserError` for attention that samples, a loss without a weight or a weight without
    a loss; `shapes` is what `shapes_of` gives.

    Raises:
      UserError: attention samples, which is not trained here; a loss without a weight; a weight
        without a loss.
    """
    refuse_terms(config, {name: tree for name, tree in shapes.items() if name != LOSSES})
    weights, offered = config.loss_weights, offered_losses(shapes)
    for name in offered:
        if weights.get(name, 0.0) == 0.0:
            raise UserError(
                f"system={config.system.name}: its attention hands out the loss {name!r}; set"
                f" config.auxiliary.{name} to its weight, or to None to train without it"
            )
    check_offered(weights, offered)
    chosen = {name: weights[name] for name in offered}
    return {name: weight for name, weight in chosen.items() if weight is not None}


def _fresh_or(fresh: jax.Array, start: jax.Array, remembered: jax.Array) -> jax.Array:
    """Rows [B,...] of `start` where a text begins, what is remembered elsewhere, in the precision
    of `start`.
    """
    return jnp.where(
        fresh.reshape(-1, *[1] * (start.ndim - 1)), start, remembered.astype(start.dtype)
    )
