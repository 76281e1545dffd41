"""What the parts of a system are good for: what it costs to switch each off, how the loss changes
with each, which can be left out together, and which carry what a corrupted input has destroyed.

    ablation     z of a layer or head becomes
      zero         0: the head's rows of the output projection are left out
      mean         its mean over all examples and real positions
      resample     that of another example of the batch, at the same position; where that example is
                   shorter, its positions begin again
      uniform      what it is with weights 1 / n on the n keys that a query may see
    importance   I_h = mean over x of | dL(x) / dg_h | at g_h = 1, for a factor g_h on the head and
                 the loss L(x) of an example for each target; absolute before the mean
    patching     (m(corrupted, with a part of the clean pass) - m(corrupted)) / (m(clean) - m(corrupted))
                 for m the log-probability of the targets, or its difference to that of others

Real are the positions that the loss depends on; padding is none. All ablations of a batch are one
compiled program with the part that is changed as an argument, and so are all patches.

Sources: P. Michel, O. Levy, G. Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019,
equation 2 (importance); K. Meng, D. Bau, A. Andonian, Y. Belinkov, "Locating and Editing Factual
Associations in GPT", NeurIPS 2022 (patching).

Axis letters: B examples of a batch, N of all batches, H heads, T tokens, D width.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.analysis import passes
from attnlab.analysis.passes import Batch, Batches, Passes
from attnlab.attention.interventions import Change, Place
from attnlab.errors import UserError, nearest

ABLATIONS = ("zero", "mean", "resample", "uniform")
Gates = dict[str, np.ndarray]
"""By the name of the place, a factor for each head [H]."""


class Cost(NamedTuple):
    """The cost of one ablation.

    Attributes:
      place: the name of the place.
      layer: the number of its mixing layer.
      head: its number; None for the whole layer.
      kind: one of `ABLATIONS`.
      cost: the measure with the change less the measure without; NaN where the values of the place
        are needed and it is stepwise, or no batch has two examples.
      interval: of the cost over 2000 test sets drawn from the same examples, the middle 95 %.
      examples: how many they are.
    """

    place: str
    layer: int
    head: int | None
    kind: str
    cost: float
    interval: tuple[float, float]
    examples: int


def ablation_table(
    model: Passes, batches: Batches, measure: str = "loss", kinds: Sequence[str] = ABLATIONS
) -> list[Cost]:
    """Returns a list with a `Cost`, the change of a measure with its bootstrap interval, for each
    mixing layer and each head and each way of `kinds` to ablate it; raises `UserError` for an
    unknown kind or measure, or without examples.

    Args:
      model: task and parameters.
      batches: as `task.split_batches(split)` gives them.
      measure: the loss, or another of `task.ratios`.
      kinds: of `ABLATIONS`.

    Raises:
      UserError: an unknown kind or measure, or no example.
    """
    for kind in set(kinds) - set(ABLATIONS):
        raise UserError(f"ablation {kind!r}; {nearest(kind, ABLATIONS)}")
    examples = passes.filled(batches)
    rows = [
        (place, head, kind)
        for place in model.places(examples[0][1], ("heads", "layer", "weights"))
        for head in range(-(place.kind != "heads"), 0 if place.kind == "layer" else place.heads)
        for kind in kinds
        if (kind == "uniform") == (place.kind == "weights")
    ]
    of_values = _terms_without(model, examples, [x for x in rows if x[2] != "uniform"], measure)
    of_weights = _terms_without(model, examples, [x for x in rows if x[2] == "uniform"], measure)
    has_other = np.concatenate([np.full(count, count > 1) for count, _ in examples])
    costs = []
    for place, head, kind in rows:
        before, after = next(of_weights if kind == "uniform" else of_values)
        valid = has_other if kind == "resample" else np.ones_like(has_other)
        valid = valid & (kind in ("zero", "uniform") or not place.stepwise)
        part = place.name, place.layer, None if head < 0 else head, kind
        pairs = np.stack([before[valid], after[valid]]).astype(np.float64)
        costs.append(Cost(*part, *_difference(pairs), int(valid.sum())))
    return costs


def _terms_without(
    model: Passes,
    examples: Sequence[tuple[int, Batch]],
    ablations: Sequence[tuple[Place, int, str]],
    measure: str,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields for each ablation, a place, its head (-1 for all) and one of `ABLATIONS`, a pair of
    arrays [N,2], the two terms of the measure of each example in the unchanged pass and in the
    ablated one. One program runs all of them, with the places of all; so weights and values, whose
    changes cost much, have programs of their own.
    """
    if not ablations:
        return
    places, kinds = list(dict.fromkeys(x[0] for x in ablations)), {x[2] for x in ablations}
    rows = [(places.index(place), head, ABLATIONS.index(kind)) for place, head, kind in ablations]
    means = mean_values(model, examples) if "mean" in kinds else {}
    prepare = _others if "resample" in kinds else lambda *_: {}

    def changes(choice: jax.Array, others: Any) -> dict[str, Change]:
        every = {}
        for name, part in passes.chosen_part(places, choice[:2]).items():
            if "uniform" in kinds:
                every[name] = Change(1 - part, uniform=part)
                continue
            mean = jnp.where(choice[2] == 1, means.get(name, 0.0), 0.0)
            other = jnp.where(choice[2] == 2, others.get(name, 0.0), mean)
            every[name] = Change(1 - part, part * other)
        return every

    metric = passes.terms_of(model.task, measure)
    choices = np.array([(-2, 0, 0), *rows])
    before, *after = model.under(examples, choices, changes, metric, prepare)
    yield from ((before, terms) for terms in after)


def _difference(pairs: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Returns the change of a ratio of sums from a first to a second system, and its 95 % paired
    bootstrap interval (NaN without examples), given both terms of the ratio for each system and
    example in `pairs` [2,N,2].
    """
    count = pairs.shape[1]
    if not count:
        return np.nan, (np.nan, np.nan)
    sums = _resamples(count) @ pairs  # [2,1+resamples,2]
    with np.errstate(divide="ignore", invalid="ignore"):
        before, after = sums[..., 0] / sums[..., 1]
    low, high = np.nanquantile((after - before)[1:], [0.025, 0.975])
    return float(after[0] - before[0]), (float(low), float(high))


@functools.lru_cache(maxsize=2)
def _resamples(count: int) -> np.ndarray:
    """Returns how often each of `count` examples stands in a test set, [1+2000,count] float64: once
    in the actual one, the first row, and as drawn with replacement in the others.
    """
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), 2000)
    return np.concatenate([np.ones((1, count)), draws])


@jax.jit
def _real_values(model: Passes, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Returns by place (heads and layers of a pass) the values [B,H,T,D] and a mask [B,T] of the
    real positions, those on which the result of an example depends; all positions are real where it
    depends on none.
    """
    slopes = model.gradients(batch, ("heads", "layer"))
    real = {name: passes.real_positions(slope) for name, (_, slope) in slopes.items()}
    return {
        name: (value, real[name] | ~real[name].any(axis=1, keepdims=True))
        for name, (value, _) in slopes.items()
    }


def _others(model: Passes, batch: Batch) -> dict[str, jax.Array]:
    """Returns by place (heads and layers of a pass) for every row of a batch the values [B,H,T,D]
    of the next row, whose real positions are repeated in turn to fill all T positions.
    """
    others = {}
    for name, (value, real) in _real_values(model, batch).items():
        order = jnp.argsort(~real, axis=1, stable=True)
        turn = jnp.arange(real.shape[1]) % real.sum(axis=1, keepdims=True)
        again = jnp.take_along_axis(order, turn, axis=1)[:, None, :, None]
        others[name] = jnp.roll(jnp.take_along_axis(value, again, axis=2), -1, axis=0)
    return others


def mean_values(model: Passes, examples: Sequence[tuple[int, Batch]]) -> dict[str, Any]:
    """Returns by place (heads and layers of a pass) the mean value [H,1,D] over all real positions
    of all examples, pairs of a number of rows that count and a batch.
    """
    sums: dict[str, Any] = {}
    for count, batch in examples:
        for name, (value, real) in _real_values(model, batch).items():
            total, number = sums.get(name, (0.0, 0))
            some, at = value[:count], real[:count, None, :, None]
            sums[name] = total + (some * at).sum(axis=(0, 2))[:, None], number + at.sum()
    return {name: total / number for name, (total, number) in sums.items()}


@jax.jit
def _slopes(model: Passes, batch: Batch, gates: Gates) -> Any:
    """Returns by place the gradient [B,H] of the loss per target of each example with respect to
    `gates` [H], the factors by which the values of heads are multiplied.
    """

    def of_row(row: Batch) -> Any:
        def loss(gates: Gates) -> jax.Array:
            changes = {name: Change(gate) for name, gate in gates.items()}
            return model.judge(row, changes, passes.loss_per_target)[0]  # type: ignore[no-any-return]

        return jax.grad(loss)(gates)

    return jax.vmap(of_row)(batch)


def head_gates(model: Passes, batches: Batches) -> Gates:
    """Returns gates of 1 for all heads of a system; UserError if it has none."""
    places = model.places(passes.filled(batches)[0][1], ("heads",))
    if not places:
        raise UserError(f"{type(model.task.system).__name__} has no layer with heads")
    return {place.name: np.ones(place.heads, np.float32) for place in places}


def head_importance(
    model: Passes, batches: Batches, normalised: bool = True, gates: Gates | None = None
) -> dict[str, np.ndarray]:
    """Returns by name of the place the importance [H] of the heads of every mixing layer, the mean
    over examples of |dL / dg| at the gates g of heads (`gates`, by default 1), divided by its L2
    norm over the layer if `normalised`.

    Args:
      model: task and parameters.
      batches: as `task.split_batches(split)` gives them.
      normalised: divide by the L2 norm over the heads of a layer, as Michel et al. do.
      gates: where the slope is taken; all 1 by default.
    """
    batches = list(batches)
    gates = gates or head_gates(model, batches)
    parts = [(n, _slopes(model, batch, gates)) for n, batch in passes.filled(batches)]
    means = {
        name: np.concatenate([np.abs(part[name][:n]) for n, part in parts]).mean(axis=0)
        for name in gates
    }
    norms = {name: max(np.linalg.norm(x), 1e-30) if normalised else 1 for name, x in means.items()}
    return {name: mean / norms[name] for name, mean in means.items()}


def prune_heads(
    model: Passes, batches: Batches, measure: str = "loss", at_once: int = 1, again: bool = False
) -> tuple[list[tuple[str, int]], list[float]]:
    """Switches off heads, `at_once` at a time and the least important first, until none is left,
    and returns two lists: the heads (place, head) in this order, and the measure after each step,
    first with all heads; `again` estimates importance at every step.

    Args:
      model: task and parameters.
      batches: as `task.split_batches(split)` gives them.
      measure: the loss, or another of `task.ratios`.
      at_once: heads from one point of the curve to the next.
      again: estimate the importance of the heads that are left at every point; else all are removed
        in the order of importance in the whole system, as Michel et al. do.

    Returns:
      (place, head) of all heads in the order of their removal, and the measure with all heads,
      without the first `at_once`, and so on.
    """
    batches = list(batches)
    gates = head_gates(model, batches)
    points, order = [gates], list[tuple[str, int]]()
    while left := [(name, head) for name in gates for head in np.flatnonzero(gates[name])]:
        if again or not order:
            scores = head_importance(model, batches, gates=gates)
        least = sorted(left, key=lambda head: scores[head[0]][head[1]])[:at_once]
        gates = {name: gate.copy() for name, gate in gates.items()}
        for name, head in least:
            gates[name][head] = 0.0
        order += [(name, int(head)) for name, head in least]
        points.append(gates)

    def changes(gates: Any, _: Any) -> dict[str, Change]:
        return {name: Change(gate) for name, gate in gates.items()}

    choices = {name: np.stack([point[name] for point in points]) for name in gates}
    metric = passes.terms_of(model.task, measure)
    terms = model.under(passes.filled(batches), choices, changes, metric).sum(1, dtype=np.float64)
    return order, (terms[:, 0] / terms[:, 1]).tolist()


def patch(
    model: Passes,
    clean: Batch,
    corrupted: Batch,
    kinds: Sequence[str] = ("heads",),
    positions: Sequence[int | None] = (None,),
    other: Mapping[str, Any] | None = None,
) -> dict[tuple[str, int | None, int | None], np.ndarray]:
    """Returns by (place, head, position) the share [B] of the difference in log-probability of the
    targets (less that of the targets in `other`, if given) between a clean and a corrupted input
    that comes back when this part of the clean pass replaces that of the corrupted pass.

    Args:
      model: task and parameters.
      clean: a batch.
      corrupted: the columns that differ, of the same shapes.
      kinds: of places: "heads" (each head), "layer", "embedding".
      positions: each is patched alone; None for all at once.
      other: columns with other targets, in place of those of the batch: m is then the
        log-probability of the targets less that of these.

    Returns:
      By (name of the place, head, position), None for all, the share of the difference that comes
      back, [B]: 1 all of it, 0 nothing; NaN where the two inputs do not differ in m.

    Raises:
      UserError: shapes that differ, or no place of these kinds that is not stepwise.
    """
    for name, column in corrupted.items():
        shape = np.shape(clean[name]) if name in clean else None
        if np.shape(column) != shape:
            shapes = f"{np.shape(column)} in the corrupted batch and {shape} in the clean one"
            raise UserError(f"patch: {name!r} is {shapes}; both need the same length")
    places = [place for place in model.places(clean, kinds) if not place.stepwise]
    if not places:
        raise UserError(f"patch: {type(model.task.system).__name__} has no {' or '.join(kinds)}")
    parts = [
        (n, head, position)
        for n, place in enumerate(places)
        for head in (range(place.heads) if place.kind == "heads" else (None,))
        for position in positions
    ]
    choices = [tuple(-1 if number is None else number for number in part) for part in parts]
    values, rows = model.values(clean), len(next(iter(clean.values())))

    def changes(choice: jax.Array, values: Any) -> dict[str, Change]:
        masks = passes.chosen_part(places, choice)
        return {name: Change(1 - mask, mask * values[name]) for name, mask in masks.items()}

    def run(batch: Batch, choices: Any) -> Any:
        options = np.array(choices), changes, passes.log_probability, lambda *_: values
        judged = [
            model.under([(rows, {**batch, **targets})], *options).astype(np.float64)
            for targets in ({}, *([other] if other else []))
        ]
        return judged[0] - judged[1] if other else judged[0]

    nothing = (-2, 0, 0)
    whole, patched = run(clean, [nothing])[0], run({**clean, **corrupted}, [nothing, *choices])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (patched[1:] - patched[0]) / (whole - patched[0])
    shares[~np.isfinite(shares)] = np.nan
    names = [(places[n].name, head, position) for n, head, position in parts]
    return dict(zip(names, shares, strict=True))
