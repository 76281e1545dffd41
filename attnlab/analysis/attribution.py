"""What an answer owes to each token and each weight, and whether the weights explain it.

    gradient x weights        A_ij dF/dA_ij
    relevance                 R_0 = I,  R_l = R_{l-1} + mean_h relu(A_l dF/dA_l) R_{l-1}
    integrated gradients      sum_d e_td  integral_0^1 dF/de_td (a e) da
    gradient by distance      mean over t of || d loss_t / d e_{t-k} || over k
    agreement                 Kendall's tau between the weights that a token gets and || dF/de_t ||
    effect                    total variation distance of the answers when the weights of a layer are
                              made uniform, or permuted among the keys that a query may see
    adversarial weights       a' >= 0 with V^T a' = V^T a and sum a' = sum a, as far from a as the
                              linear program "minimise a . a'" gets

F is the log-probability of the targets of an example, e the vectors of its tokens. Integrated
gradients are complete: over all tokens they sum to F(e) - F(0), apart from the error of the
quadrature, which is handed out. Adversarial weights keep the context of a head, so the answer (the
paper searches by gradient descent for weights that nearly keep the answer). n keys whose values have
rank r leave n - r - 1 directions at most, so short texts with wide heads have none.

Sources: H. Chefer, S. Gur, L. Wolf, "Generic Attention-model Explainability", ICCV 2021, equations
5 and 6 (relevance); M. Sundararajan, A. Taly, Q. Yan, "Axiomatic Attribution for Deep Networks",
ICML 2017; S. Jain, B. C. Wallace, "Attention is not Explanation", NAACL 2019 (agreement, effect);
S. Wiegreffe, Y. Pinter, "Attention is not not Explanation", EMNLP 2019 (adversarial weights).

Axis letters: B examples of a batch, N of all batches, H heads, T tokens (Tq queries, Tk keys), D
width, K distances.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.analysis import passes
from attnlab.analysis.passes import Batch, Batches, Passes
from attnlab.attention.interventions import Change, intervene
from attnlab.errors import UserError

Arrays = dict[str, np.ndarray]
_SAME = 1e-6  # of the largest number: a context that differs by less is the same


def gradient_times_weights(model: Passes, batch: Batch) -> Arrays:
    """Computes weights times the gradient of F with respect to them, [B,H,Tq,Tk] by place, for the
    mechanisms whose weights can be changed.
    """
    slopes = model.gradients(dict(batch), ("weights",))
    return {name: np.asarray(weights * slope) for name, (weights, slope) in slopes.items()}


def relevance(products: Sequence[np.ndarray]) -> np.ndarray:
    """Computes the relevance R [B,T,T] of each token for each output of a stack of self-attention,
    from the results of `gradient_times_weights` of its layers, [B,H,T,T] each, the first first.
    """
    total = np.broadcast_to(np.eye(products[0].shape[-1]), products[0][:, 0].shape)
    for product in products:
        total = total + np.maximum(product, 0).mean(axis=1) @ total
    return total


def integrated_gradients(model: Passes, batch: Batch, nodes: int = 32) -> tuple[Arrays, np.ndarray]:
    """Returns a pair: by name of the embedding the attributions [B,T] of tokens, integrated
    gradients of the log-probability of the targets from zero vectors to the embeddings, and one
    array with their error [B] for each example; `nodes` are points of the integral.

    Args:
      model: task and parameters.
      batch: examples.
      nodes: of the Gauss-Legendre quadrature over a.

    Returns:
      By embedding, the attributions [B,T] of its tokens; and for each example [B], what they miss
      of F(e) - F(0).
    """
    points, parts = np.polynomial.legendre.leggauss(nodes)
    totals: Arrays = {}
    for point, part in zip((points + 1) / 2, parts / 2, strict=True):
        for name, (value, slope) in model.gradients(dict(batch), ("embedding",), point).items():
            owed = part * np.asarray(value * slope, np.float64).sum(axis=(1, 3))
            totals[name] = totals.get(name, 0) + owed

    def changes(factor: Any, _: Any) -> dict[str, Change]:
        return {name: Change(factor) for name in totals}

    pair = len(next(iter(batch.values()))), dict(batch)
    ends = model.under([pair], np.array([0.0, 1.0]), changes, passes.log_probability)
    return totals, ends[1] - ends[0] - sum(x.sum(axis=1) for x in totals.values())


def gradient_by_distance(model: Passes, batches: Batches) -> Arrays:
    """Returns by name of the embedding an array [K], the mean norm of the gradient of a token's
    loss with respect to the token k positions before it, for k from 0, NaN where there is none;
    raises `UserError` for outputs without an axis of tokens.

    The loss must be a sum over output tokens (language models, taggers, writers); those without a
    loss are left out.

    Returns:
      By embedding [K], the mean norm of d loss_t / d e_{t-k} over t, for k = 0 ... K - 1; NaN at a
      distance that does not occur.

    Raises:
      UserError: outputs without an axis of tokens, or no embedding outside a loop over time.
    """
    sums: Arrays = {}
    counts: Arrays = {}
    for _, batch in passes.filled(batches):
        every, real = _norms(model, batch)
        for name, norm in every.items():
            queries, keys = norm.shape[0], norm.shape[2]
            pairs = np.asarray(real.T)[..., None] & np.tri(queries, keys, dtype=bool)[:, None]
            pairs &= np.asarray(norm).any(axis=0)  # no gradient from any t: padding
            t, _, j = np.nonzero(pairs)
            for totals, terms in ((sums, np.asarray(norm)[pairs]), (counts, np.ones(len(t)))):
                new, old = np.bincount(t - j, terms, queries), totals.get(name, np.zeros(0))
                long, short = sorted((new, old), key=len, reverse=True)
                totals[name] = long + np.pad(short, (0, len(long) - len(short)))
    with np.errstate(invalid="ignore"):
        return {name: total / counts[name] for name, total in sums.items()}


@jax.jit
def _norms(model: Passes, batch: Batch) -> tuple[dict[str, jax.Array], jax.Array]:
    """Returns a pair: by name of the embedding the norm [Tq,B,Tk] of the gradient of the loss at
    output t with respect to embedded token j, and a mask [B,Tq] of the outputs that have a loss;
    raises `UserError` if there are no such outputs or embeddings.
    """
    places = [place for place in model.places(batch, ("embedding",)) if not place.stepwise]
    rows = len(next(iter(batch.values())))
    zeros = {place.name: jnp.zeros((rows, *place.shape[1:])) for place in places}

    def outputs(shifts: Any) -> Any:
        with intervene({name: Change(shift=shift) for name, shift in shifts.items()}):
            return model.task.apply(model.params, batch)

    logits, pull = jax.vjp(outputs, zeros)
    if not places or getattr(logits, "ndim", 0) < 3:
        raise UserError(f"{type(model.task.system).__name__} has no outputs for embedded tokens")
    slope = jax.grad(lambda x: model.task.summed(x, batch, 0.0)["loss"])(logits)
    at = jnp.arange(slope.shape[1])

    def norms(t: jax.Array) -> Any:
        (slopes,) = pull(jnp.where((at == t).reshape(-1, *[1] * (slope.ndim - 2)), slope, 0))
        return {name: jnp.linalg.norm(x, axis=(1, 3)) for name, x in slopes.items()}

    return jax.lax.map(norms, at), (slope != 0).any(axis=tuple(range(2, slope.ndim)))


def weight_agreement(model: Passes, batch: Batch, embedding: str) -> Arrays:
    """Returns by name of the attention weights the Kendall rank correlation [B,H] of the attention
    that tokens receive with the norm of the gradient of log p of the targets at their `embedding`,
    over tokens where it is not 0; only weights with a key for each of its tokens; NaN with nothing
    to rank.

    Args:
      model: task and parameters.
      batch: examples.
      embedding: the name of the place whose tokens are the keys.
    """
    from scipy.stats import kendalltau

    every = jax.device_get(model.gradients(dict(batch), ("weights", "embedding")))
    norms = np.linalg.norm(every[embedding][1][:, 0], axis=-1)
    result = {}
    for name, (weights, slope) in every.items():
        if name.endswith("weights") and weights.shape[-1] == norms.shape[1]:
            received = np.einsum("bhqk,bq->bhk", weights, passes.real_positions(slope))
            taus = [
                kendalltau(head[norm > 0], norm[norm > 0]).statistic
                for heads, norm in zip(received, norms, strict=True)
                for head in heads
            ]
            result[name] = np.array(taus).reshape(weights.shape[:2])
    return result


def weight_effects(
    model: Passes, batches: Batches, permutations: int = 10, seed: int = 0
) -> dict[tuple[str, str], np.ndarray]:
    """Returns by (place, "uniform" or "permuted") the distance [N], from 0 to 1, by which the
    answer to each example moves when all attention weights of a layer are made so (median of
    `permutations`, others for each example); raises `UserError` without such layers.

    Args:
      model: task, whose outputs are logits over their last axis, and parameters.
      batches: as `task.split_batches(split)` gives them.
      permutations: how many are drawn for each layer.
      seed: of the draws.

    Returns:
      By (place, "uniform") and (place, "permuted") distances [N] of the answers of each example, 0
      (the same) to 1: the mean over the outputs that have a loss, the median over permutations.

    Raises:
      UserError: where no layer computes weights at once for all queries.
    """
    examples = passes.filled(batches)
    places = [x for x in model.places(examples[0][1], ("weights",)) if not x.stepwise]
    if not places:
        raise UserError("no layer computes weights as an array outside a loop over time")
    choices = np.array(
        [(n, permutation) for n in range(len(places)) for permutation in range(permutations + 1)]
    )

    def prepare(model: Passes, batch: Batch) -> Any:
        def answer(row: Batch) -> Any:
            return model.judge(row, {}, _answer)[0]

        keys = jax.vmap(functools.partial(_key, seed))(batch)
        return model.values(batch, weights=True), jax.vmap(answer)(batch), keys

    def changes(choice: jax.Array, here: Any) -> dict[str, Change]:
        every = {}
        for n, (name, part) in enumerate(passes.chosen_part(places, (choice[0], -1)).items()):
            key = jax.random.fold_in(here[2], choice[1] * len(places) + n)
            seen = here[0][name.replace("weights", "uniform")] > 0
            drawn = (choice[0] == n) & (choice[1] > 0)  # only then: drawing takes long
            shuffled = jax.lax.cond(drawn, permuted, lambda x, *_: 0 * x, here[0][name], seen, key)
            every[name] = Change(1 - part, part * shuffled, part * (choice[1] == 0))
        return every

    def distance(choice: Any, here: Any, answer: Any) -> Any:
        moved = jnp.abs(answer[0] - here[1][0]).sum(axis=-1) / 2
        return (moved * here[1][1]).sum() / jnp.maximum(here[1][1].sum(), 1)

    moved = model.under(examples, choices, changes, _answer, prepare, distance)
    moved = moved.reshape(len(places), permutations + 1, -1)
    return {
        (place.name, kind): part
        for place, rows in zip(places, moved, strict=True)
        for kind, part in (("uniform", rows[0]), ("permuted", np.median(rows[1:], axis=0)))
    }


def _answer(model: Passes, row: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns the probabilities [...,V] of the outputs for an example, and a mask [...] of the
    outputs that have a loss; raises `UserError` if the outputs are no logits.
    """
    logits = model.task.apply(model.params, row)
    if not isinstance(logits, jax.Array) or logits.ndim < 2:
        raise UserError(f"{type(model.task).__name__}: its outputs are no logits to be compared")
    slope = jax.grad(lambda x: model.task.summed(x, row, 0.0)["loss"])(logits)
    return jax.nn.softmax(logits.astype(jnp.float32)), (slope != 0).any(axis=-1)


def _key(seed: int, row: Batch) -> jax.Array:
    """Returns the random key of an example: it depends on the seed and on the numbers of all its
    columns, so that every example has draws of its own, the same in any batch, and in any width
    that is filled up with 0.
    """
    sums = [
        (x.astype(jnp.uint32).ravel() * (2 * jnp.arange(x.size, dtype=jnp.uint32) + 1)).sum()
        for x in map(jnp.asarray, row.values())
    ]
    return functools.reduce(jax.random.fold_in, sums, jax.random.key(seed))


def permuted(weights: jax.Array, seen: jax.Array, key: jax.Array) -> jax.Array:
    """Permutes the weights [...,Tq,Tk] of each query at random among the keys that it may see,
    `seen` of the same shape; the others stay. More queries or keys behind do not change the draw.
    """
    *heads, queries, keys = weights.shape

    def draw(i: jax.Array, j: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, i), j), heads)

    draw_all = jax.vmap(jax.vmap(draw, (None, 0), -1), (0, None), -2)
    drawn = jnp.where(seen, draw_all(jnp.arange(queries), jnp.arange(keys)), jnp.inf)
    order = jnp.argsort(drawn, axis=-1, stable=True)
    count, others = seen.sum(-1, keepdims=True), (~seen).cumsum(-1)
    back = jnp.where(seen, seen.cumsum(-1), count + others) - 1  # those seen are in front
    return jnp.take_along_axis(jnp.take_along_axis(weights, order, axis=-1), back, axis=-1)


def adversarial_weights(
    weights: np.ndarray, values: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, float]:
    """Finds by a linear program other weights [Tk] of a query, on the keys `seen`, that give the
    same context from `values` [Tk,D] and overlap least with `weights`; returns them and their total
    variation distance from `weights`, or `weights` and 0 if there are none.

    Args:
      weights: [Tk], at least 0.
      values: [Tk,D].
      seen: [Tk] bool, the keys that the query may see; the others keep weight 0.

    Returns:
      The weights [Tk], and their total variation distance from the given ones, half the sum of
      |a' - a|; the given ones and 0 where there are no others.
    """
    from scipy.optimize import linprog

    a = np.asarray(weights, np.float64)
    rows = np.concatenate([np.asarray(values, np.float64), np.ones((len(a), 1))], axis=1)[seen].T
    solved = linprog(a[seen], A_eq=rows, b_eq=rows @ a[seen], bounds=(0, None), method="highs")
    if not solved.success:
        return a, 0.0
    other = np.zeros_like(a)
    other[seen] = solved.x
    distance = float(np.abs(other - a).sum() / 2)
    same = np.abs(rows @ (other - a)[seen]) <= _SAME * (np.abs(rows) @ a[seen] + 1)
    return (other, distance) if same.all() and distance > _SAME else (a, 0.0)


def adversarial_maps(model: Passes, batch: Batch) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns by place, for every query of a batch, the pair of other weights [B,H,Tq,Tk] that give
    the same context of its head (the actual ones where there are none), and their distances
    [B,H,Tq] from the actual weights; places without values or with weights below 0 are left out.

    Returns:
      By place, weights [B,H,Tq,Tk] and distances [B,H,Tq], see `adversarial_weights`. Places are
      left out whose context is not weights times values, or whose weights can be below 0.
    """
    arrays, result = jax.device_get(model.values(dict(batch), weights=True)), {}
    for name, weights in arrays.items():
        values = arrays.get(name.removesuffix("weights") + "values")
        if not name.endswith("weights") or values is None or weights.min() < 0:
            continue
        seen = arrays[name.removesuffix("weights") + "uniform"] > 0
        others, distances = weights.astype(np.float64), np.zeros(weights.shape[:3])
        group = weights.shape[1] // values.shape[1]
        for b, h, q in np.argwhere(seen.any(axis=-1)):
            given = weights[b, h, q], values[b, h // group], seen[b, h, q]
            others[b, h, q], distances[b, h, q] = adversarial_weights(*given)
        result[name] = others, distances
    return result
