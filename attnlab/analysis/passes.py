"""Passes of a trained system with changes at its places, example by example: what ablation, patching
and attribution are made of.

    model = Passes(run.task, run.params)
    model.places(batch)                      what can be changed: names, layers, heads, kinds
    model.values(batch)                      what a pass computes at each place
    model.gradients(batch, ("weights",))     and what the result owes to it

A batch is a mapping of arrays with a row for each of its examples; "batches" are pairs of the rows'
numbers (-1 for padding) and a batch, as `Task.split_batches` gives them. Every row is computed as a
batch of its own (`jax.vmap`), so the changes and gradients of two examples never meet.

Axis letters: B examples of a batch, N of all batches, C choices, H heads, T tokens, D width.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.interventions import KINDS, Change, Pass, Place, intervene
from attnlab.errors import UserError, nearest

Batch = Mapping[str, Any]
Batches = Iterable[tuple[np.ndarray, Batch]]
Metric = Callable[[Any, Batch], Any]
"""`metric(model, row)`: what a pass over a batch of one example is judged by; a tree of arrays."""


@flax.struct.dataclass
class Passes:
    """A task with the parameters of its system, as an argument of compiled programs.

    Attributes:
      task: an `attnlab.tasks.base.Task`.
      params: the parameters.
    """

    task: Any = flax.struct.field(pytree_node=False)
    params: Any

    def sums(self, row: Batch) -> Any:
        """Returns the sums of a batch, without smoothing and dropout."""
        return self.task.sums(self.params, row)

    def judge(
        self, row: Batch, changes: Mapping[str, Change], metric: Metric, weights: bool = False
    ) -> tuple[Any, Pass]:
        """Runs a pass over one example, and returns its metric and the pass.

        Args:
          row: the arrays of the example, without the axis B.
          changes: by the name of the place, of arrays [H], [H,T] or [H,T,D].
          metric: what is computed of the pass.
          weights: whether attention weights are places, see `intervene`.
        """
        alone = {name: jnp.asarray(x)[None] for name, x in row.items()}
        changes = jax.tree.map(lambda x: jnp.asarray(x)[None], dict(changes))
        with intervene(changes, weights) as seen:
            return metric(self, alone), seen

    def places(self, batch: Batch, kinds: Sequence[str] = KINDS) -> list[Place]:
        """Returns the places (points of a pass where values can be read and changed) of the given
        `kinds` for a batch, in the order of the pass, with shapes of one example, [1,...]; only
        shapes are computed.
        """
        places: list[Place] = []

        def passing(row: Batch) -> None:
            places[:] = self.judge(row, {}, log_probability, True)[1].places.values()

        jax.eval_shape(passing, {name: x[0] for name, x in batch.items()})
        return [place for place in places if place.kind in kinds]

    @functools.partial(jax.jit, static_argnames="weights")
    def values(self, batch: Batch, weights: bool = False) -> dict[str, jax.Array]:
        """Runs the system on a batch and returns by name the values [B,H,T,D] at all places that
        are not inside a loop over time; with `weights` also attention weights and what
        `Pass.values` lists beside them.
        """

        def of_row(row: Batch) -> Any:
            values = self.judge(row, {}, log_probability, weights)[1].values
            return {name: value[0] for name, value in values.items()}

        return jax.vmap(of_row)(dict(batch))  # type: ignore[no-any-return]

    @functools.partial(jax.jit, static_argnames="kinds")
    def gradients(self, batch: Batch, kinds: tuple[str, ...], scale: Any = 1.0) -> Any:
        """Returns by place the pair of its value and the gradient of the log-probability of an
        example's targets with respect to it, [B,H,T,D] each, for places of `kinds` outside loops
        over time; `scale` multiplies their values in the pass.

        Args:
          batch: examples.
          kinds: of the places.
          scale: the values of these places times this, in the pass where the slope is taken.
        """
        places = [place for place in self.places(batch, kinds) if not place.stepwise]
        zeros = {place.name: jnp.zeros(place.shape[1:]) for place in places}

        def of_row(row: Batch) -> Any:
            def judged(shifts: Any) -> tuple[jax.Array, Any]:
                changes = {name: Change(scale, shift) for name, shift in shifts.items()}
                number, seen = self.judge(row, changes, log_probability)
                return number, {name: seen.values[name][0] for name in shifts}

            slopes, values = jax.grad(judged, has_aux=True)(zeros)
            return {name: (values[name], slopes[name]) for name in zeros}

        return jax.vmap(of_row)(dict(batch))

    def under(
        self,
        batches: Sequence[tuple[int, Batch]],
        choices: Any,
        changes: Callable[[Any, Any], Mapping[str, Change]],
        metric: Metric,
        prepare: Callable[[Any, Batch], Any] = lambda model, batch: {},
        finish: Callable[[Any, Any, Any], Any] = lambda choice, here, number: number,
    ) -> Any:
        """Returns a metric of N examples under each of C changes of the pass, arrays [C,N,...];
        `changes` makes them from a choice in `choices` [C,...] and what `prepare` gives of the row,
        `finish` computes what is returned.

        Args:
          batches: see `filled`.
          choices: a tree of arrays [C,...], in which the changes differ.
          changes: of (choice, what is prepared for a row), the changes of that row.
          metric: what is computed of each pass.
          prepare: of (model, batch), a tree of arrays [B,...], computed once for all choices.
          finish: of (choice, what is prepared for a row, its metric), what is returned of it.
        """

        @jax.jit
        def program(model: Passes, batch: Batch, choices: Any) -> Any:
            prepared = prepare(model, batch)

            def judged(choice: Any) -> Any:
                def of_row(row: Batch, here: Any) -> Any:
                    number = model.judge(row, changes(choice, here), metric)[0]
                    return finish(choice, here, number)

                return jax.vmap(of_row)(batch, prepared)

            return jax.lax.map(judged, choices)

        judged = [(n, jax.device_get(program(self, batch, choices))) for n, batch in batches]
        parts = [jax.tree.map(lambda x, n=n: x[:, :n], part) for n, part in judged]
        return jax.tree.map(lambda *of_batches: np.concatenate(of_batches, axis=1), *parts)


def loss_per_target(model: Passes, row: Batch) -> jax.Array:
    """Computes the loss of an example divided by its number of targets (0 if it has none)."""
    return model.sums(row)["loss"] / jnp.maximum(model.task.weight(row), 1)  # type: ignore[no-any-return]


def log_probability(model: Passes, row: Batch) -> jax.Array:
    """Computes log p of the targets of an example: minus its summed loss."""
    return -model.sums(row)["loss"]  # type: ignore[no-any-return]


def terms_of(task: Any, measure: str) -> Metric:
    """Returns a metric, a function of model and row, that gives two numbers [2] of an example; sums
    of the two over examples, divided, are the measure of the task; raises `UserError` if the
    measure is no such ratio.
    """
    if measure not in task.ratios:
        raise UserError(f"measure {measure!r} is no ratio of sums; {nearest(measure, task.ratios)}")
    above, below = task.ratios[measure]

    def terms(model: Passes, row: Batch) -> jax.Array:
        sums = model.sums(row)
        count = task.weight(row) if measure == "loss" else sums.get(below, 1.0)
        return jnp.stack([jnp.asarray(x, jnp.float32) for x in (sums[above], count)])

    return terms


def filled(batches: Batches) -> list[tuple[int, Batch]]:
    """Returns for each batch, given with its row numbers (-1 for padding), the number of its real
    rows, and the batch with these first and again in place of padding; raises `UserError` if there
    is no real row.
    """
    pairs = [(np.flatnonzero(numbers >= 0), batch) for numbers, batch in batches]
    result: list[tuple[int, Batch]] = [
        (len(rows), {name: x[np.resize(rows, len(x))] for name, x in batch.items()})
        for rows, batch in pairs
        if len(rows)
    ]
    if not result:
        raise UserError("analysis: there are no examples")
    return result


def chosen_part(places: Iterable[Place], choice: Any) -> dict[str, jax.Array]:
    """Returns by place a mask [H,1,1], or [H,T,1] if `choice` has three numbers, that is 1 at the
    place, head and position that the numbers of `choice` select (-1 for all heads or positions) and
    0 elsewhere.

    Args:
      places: those of one pass.
      choice: the number of the place among them, of the head, of the position; -1 for all.
    """
    masks = {}
    for number, place in enumerate(places):
        head, token = jnp.arange(place.heads)[:, None, None], jnp.arange(place.shape[2])[:, None]
        mask = (choice[0] == number) & ((choice[1] == -1) | (choice[1] == head))
        if len(choice) > 2:
            mask &= (choice[2] == -1) | (choice[2] == token)
        masks[place.name] = mask.astype(jnp.float32)
    return masks


def real_positions(slope: Any) -> Any:
    """Returns which positions [B,T] a result depends on, given its slope [B,H,T,D] at a place; it
    never depends on padding.
    """
    return (slope != 0).any(axis=(1, 3))
