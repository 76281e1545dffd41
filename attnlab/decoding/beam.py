"""Beam search with the scores of GNMT (Wu et al. 2016, section 7): many sentences at once, static
shapes, correct early stopping.

Every sentence has K live hypotheses. One step scores their continuations and keeps the 2K best.
Those among the first K that end go to the pool of finished hypotheses; the K best of the others
stay alive (2K candidates contain K of these, since each hypothesis can end in one way only; where
there are E ids that end a text, (1 + E) K candidates are kept). Since
only the first K can end, a beam of 1 without length penalty is greedy search.

The pool holds the `n_best` best finished hypotheses. A sentence is done when no live hypothesis can
still enter the pool, so a longer search would return the same. A finished hypothesis Y of a source
X scores log P(Y|X) / lp(Y) + cp(X; Y), with a length and a coverage penalty.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnlab.decoding import steps
from attnlab.decoding.rows import NEVER, largest
from attnlab.decoding.rules import FREE, Rules
from attnlab.errors import UserError

SHRINK, LEAST_ROWS = (4, 8)  # a batch is cut to a quarter, but not below this number of sentences
# otherwise a source position without attention would have an infinite penalty
LEAST_COVERAGE = 1e-6


class _History(NamedTuple):
    """The past of [B,X] hypotheses: their tokens [B,X,L], and the beam slot [B,X,L] each was in
    when a token was predicted.

    The slots find the attention weights of a hypothesis in the buffer [L,N,S] afterwards, so
    weights are never gathered during the search. None if no alignment is requested.
    """

    tokens: jax.Array
    slots: jax.Array | None


class _Pool(NamedTuple):
    """Finished hypotheses, best first: scores, log_probs, lengths [B,P] and their past. A free
    place has score -inf.
    """

    scores: jax.Array
    log_probs: jax.Array
    lengths: jax.Array
    history: _History


class _Search(NamedTuple):
    """The carry of the loop: the step, live hypotheses (log_probs and last tokens [B,K], past,
    coverage [B,K,S]), the pool, ...
    """

    t: jax.Array
    log_probs: jax.Array
    last: jax.Array
    history: _History
    coverage: jax.Array | None
    pool: _Pool
    done: jax.Array
    state: Any
    weights: jax.Array | None


@dataclasses.dataclass(frozen=True)
class _Terms:
    """The constants of a search: the penalties and limits that `beam_search` describes."""

    alpha: float
    offset: int
    beta: float
    rules: Rules
    limits: jax.Array
    source_mask: jax.Array | None

    def penalty(self, length: jax.Array | int) -> jax.Array:
        """See `length_penalty`."""
        return length_penalty(length, self.alpha, self.offset)


class _Candidates(NamedTuple):
    """The 2K best continuations of every sentence, best first: the parent's slot, the token, log P,
    all [B,2K], and their past.
    """

    parent: jax.Array
    token: jax.Array
    log_probs: jax.Array
    history: _History


def beam_search(
    step: steps.StepFn,
    state: Any,
    memory: Any,
    *,
    rows: int,
    beam: int,
    max_length: int,
    length_penalty: float = 0.0,
    length_offset: int = 5,
    coverage: float = 0.0,
    source_mask: jax.Array | None = None,
    n_best: int = 1,
    rules: Rules = FREE,
    limits: jax.Array | None = None,
    alignment: bool = False,
) -> steps.Hypotheses:
    """Runs beam search with `beam` hypotheses for each of `rows` sentences; returns `Hypotheses`,
    the `n_best` of each by score (log P / lp + cp, see the top of this file), best first.

    PAD and BOS are never emitted. A hypothesis cut at the length limit counts only if its sentence
    has no finished one. If fewer than `n_best` have finished, the other places stay free (score
    -inf).

    Args:
      step, state, memory: the model, see `steps.StepFn`; arrays have leading axis `rows` and are repeated
        for the beams here.
      rows: B, the number of sentences.
      beam: K, hypotheses alive for each sentence.
      max_length: L, the most tokens emitted, EOS counted.
      length_penalty, length_offset: alpha >= 0 and k of lp = ((k + |Y|) / (k + 1))^alpha, |Y|
        counts the EOS.
      coverage: beta >= 0 of the coverage penalty, which only finished hypotheses get; needs weights
        and `source_mask` [B,S].
      n_best: hypotheses returned for each sentence, at most `beam`.
      rules: rules on the next token, with the ids of the target's vocabulary.
      limits: [B] int32, a length limit for each sentence below `max_length`.
      alignment: also return the attention weights.

    Raises:
      ValueError: n_best above beam, or coverage without `source_mask`.
      UserError: coverage with a model that has no attention weights.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"beam search: n_best={n_best} must lie in 1 ... beam={beam}")
    if coverage and source_mask is None:
        raise ValueError("beam search: the coverage penalty needs source_mask [B,S]")
    terms = _Terms(
        length_penalty,
        length_offset,
        coverage,
        rules.repeat(beam),
        steps.length_limits(limits, rows, max_length),
        source_mask if coverage else None,
    )
    state, memory = steps.repeat_rows((state, memory), rows, beam)
    weights = (
        steps.weights_buffer(step, state, memory, rows * beam, max_length) if alignment else None
    )
    start = _begin(state, terms, weights, (rows, beam, max_length), n_best)
    pool, maps = _run(step, memory, terms, start)
    return steps.Hypotheses(pool.history.tokens, pool.scores, pool.log_probs, pool.lengths, maps)


def _begin(
    state: Any, terms: _Terms, weights: jax.Array | None, shape: tuple[int, int, int], n_best: int
) -> _Search:
    """Returns the state (`_Search`) of a beam search before its first step, for `shape` (rows,
    beam, max_length): only slot 0 of each sentence is alive, nothing is written, and the pool has
    `n_best` empty slots for finished hypotheses.
    """
    rows, beam, max_length = shape

    def empty_history(width: int) -> _History:
        """Returns an empty past of `width` hypotheses per sentence: PAD everywhere, and slots only
        if weights are collected.
        """
        empty = jnp.full((rows, width, max_length), terms.rules.special.pad, jnp.int32)
        return _History(empty, None if weights is None else jnp.zeros_like(empty))

    none = jnp.full((rows, n_best), NEVER, jnp.float32)
    mask = terms.source_mask
    return _Search(
        t=jnp.int32(0),
        log_probs=jnp.full((rows, beam), NEVER, jnp.float32).at[:, 0].set(0.0),
        last=jnp.full((rows, beam), terms.rules.special.bos, jnp.int32),
        history=empty_history(beam),
        coverage=None if mask is None else jnp.zeros((rows, beam, mask.shape[1]), jnp.float32),
        pool=_Pool(none, none, jnp.zeros((rows, n_best), jnp.int32), empty_history(n_best)),
        done=jnp.zeros(rows, bool),
        state=state,
        weights=weights,
    )


def _run(
    step: steps.StepFn, memory: Any, terms: _Terms, search: _Search
) -> tuple[_Pool, jax.Array | None]:
    """Runs a beam search until all sentences are done and returns the pool of the best finished
    hypotheses, and the attention weights [B,P,L,S] with which their tokens were predicted (None if
    not collected).

    A few sentences always take much longer than the rest. As soon as they fit in a quarter of the
    batch, they go on in one of that size, so that the done ones cost nothing more. Each size is a
    loop of its own, compiled with the program, which is why there are not more of them (Multi30k,
    64 rows: 64-16 saves a third of the row steps, 64-32-16-8 four tenths).
    """
    rows, beam = search.log_probs.shape
    fewer = rows // SHRINK if rows >= SHRINK * LEAST_ROWS else 0
    search = lax.while_loop(
        lambda search: jnp.sum(~search.done) > fewer,
        lambda search: _advance(step, memory, terms, search),
        search,
    )
    pool, maps = search.pool, _alignment(search)
    if not fewer:
        return pool, maps
    keep = jnp.argsort(search.done)[:fewer]  # unfinished ones come first
    hypotheses = (keep[:, None] * beam + jnp.arange(beam)).reshape(-1)
    weights = None if search.weights is None else search.weights[:, hypotheses]
    smaller = steps.take_rows(search._replace(state=None, weights=None), keep)
    smaller = smaller._replace(state=steps.take_rows(search.state, hypotheses), weights=weights)
    mask = None if terms.source_mask is None else terms.source_mask[keep]
    narrow = dataclasses.replace(
        terms, rules=terms.rules.rows(hypotheses), limits=terms.limits[keep], source_mask=mask
    )
    smaller_result = _run(step, steps.take_rows(memory, hypotheses), narrow, smaller)
    return jax.tree.map(lambda x, part: x.at[keep].set(part), (pool, maps), smaller_result)


def _advance(step: steps.StepFn, memory: Any, terms: _Terms, search: _Search) -> _Search:
    """Performs one step of a beam search and returns its new state: live hypotheses are extended by
    a token, those that ended (if none has: those cut at the limit) move to the pool of finished
    ones, and sentences that cannot improve or are at their limit are marked done.
    """
    rows, beam = search.log_probs.shape
    logits, state, weights = step(search.state, memory, search.last.reshape(-1))
    candidates = _candidates(search, logits, terms)
    coverage = _with_coverage(search.coverage, weights)
    ends = steps.among(candidates.token, terms.rules.special.ending)
    lives = ~ends & (jnp.cumsum(~ends, axis=1) <= beam)
    at_limit = search.t + 1 >= terms.limits

    ending = ends & (jnp.arange(ends.shape[1]) < beam) & jnp.isfinite(candidates.log_probs)
    # cut: nothing has ended or will end
    stuck = at_limit & ~jnp.isfinite(search.pool.scores[:, 0]) & ~jnp.any(ending, axis=1)
    pool = _finish(search, candidates, jnp.where(stuck[:, None], lives, ending), coverage, terms)

    log_probs, place = lax.top_k(jnp.where(lives, candidates.log_probs, NEVER), beam)
    # log P only falls, lp only grows and cp is at most 0: an upper bound for the best live
    # hypothesis.
    reach = log_probs[:, 0] / terms.penalty(terms.limits)
    done = search.done | at_limit | (reach <= pool.scores[:, -1])
    parent = steps.pick(candidates.parent, place)
    return _Search(
        t=search.t + 1,
        log_probs=log_probs,
        last=steps.pick(candidates.token, place),
        history=steps.pick(candidates.history, place),
        coverage=steps.pick(coverage, parent),
        pool=pool,
        done=done,
        state=steps.take_rows(state, (jnp.arange(rows)[:, None] * beam + parent).reshape(-1)),
        weights=steps.put(search.weights, weights, search.t),
    )


def _candidates(search: _Search, logits: jax.Array, terms: _Terms) -> _Candidates:
    """Returns for each sentence the (1 + E) K most probable continuations of its K hypotheses by a
    token, best first (of a sentence that is done, log P is -inf): parent's slot, token, log P and
    past; from next-token `logits` [B*K,V] under the rules of decoding. E, the number of ids that
    end texts, is usually 1.
    """
    rows, beam = search.log_probs.shape
    normalizer = jax.nn.logsumexp(logits.astype(jnp.float32), axis=1, keepdims=True)
    special = terms.rules.special
    logits, count = steps.emittable(logits, special), (1 + len(special.ending)) * beam
    width = min(count, logits.shape[1])
    tokens = search.history.tokens.reshape(rows * beam, -1)
    values, ids = largest(terms.rules(logits, tokens, search.t), width)
    gains = (values - normalizer).reshape(rows, beam, width)
    total = (search.log_probs[:, :, None] + gains).reshape(rows, beam * width)
    # A finished sentence takes no more candidates, so its result does not depend on the rest of the
    # batch.
    log_probs, place = lax.top_k(jnp.where(search.done[:, None], NEVER, total), count)
    parent, token = place // width, steps.pick(ids.reshape(rows, beam * width), place)
    past = steps.pick(search.history, parent)
    now = jnp.arange(past.tokens.shape[2]) == search.t
    tokens = jnp.where(now, token[:, :, None], past.tokens)
    slots = None if past.slots is None else jnp.where(now, parent[:, :, None], past.slots)
    return _Candidates(parent, token, log_probs, _History(tokens, slots))


def _with_coverage(coverage: jax.Array | None, weights: jax.Array | None) -> jax.Array | None:
    """Returns `coverage` [B,K,S] plus the attention weights [B*K,S] of this step, or None if
    coverage is None; raises `UserError` if coverage is given but no weights.
    """
    if coverage is None:
        return None
    if weights is None:
        raise UserError(
            "decoding.coverage needs attention weights, which this system does not give; set"
            " decoding.coverage=0"
        )
    return coverage + weights.reshape(coverage.shape)


def _finish(
    search: _Search,
    candidates: _Candidates,
    ending: jax.Array,
    coverage: jax.Array | None,
    terms: _Terms,
) -> _Pool:
    """Returns the new pool (`_Pool`) of the best finished hypotheses of each sentence, from those
    in the pool and those candidates that `ending` (bool, a column for each candidate) marks as
    finished, which are scored here; at equal scores those of the pool come first.
    """
    length = search.t + 1
    scores = candidates.log_probs / terms.penalty(length)
    if coverage is not None and terms.source_mask is not None:
        scores += steps.pick(
            coverage_penalty(coverage, terms.source_mask[:, None, :], terms.beta),
            candidates.parent,
        )
    new = _Pool(
        jnp.where(ending, scores, NEVER),
        candidates.log_probs,
        jnp.full(ending.shape, length, jnp.int32),
        candidates.history,
    )
    merged: _Pool = jax.tree.map(lambda *pair: jnp.concatenate(pair, axis=1), search.pool, new)
    return steps.pick(merged, lax.top_k(merged.scores, search.pool.scores.shape[1])[1])


def _alignment(search: _Search) -> jax.Array | None:
    """Returns the attention weights [B,P,L,S] with which the L tokens of the P hypotheses in the
    pool were predicted, over S source positions; 0 after the end of a hypothesis, None if weights
    are not collected.
    """
    slots, lengths = search.pool.history.slots, search.pool.lengths
    if search.weights is None or slots is None:
        return None
    rows, beam = search.log_probs.shape
    places = jnp.arange(slots.shape[2])
    weights = search.weights[places, jnp.arange(rows)[:, None, None] * beam + slots]
    return jnp.where((places < lengths[:, :, None])[..., None], weights, 0.0)


def length_penalty(length: jax.Array | int, alpha: float, offset: int = 5) -> jax.Array:
    """lp(Y) = ((k + |Y|) / (k + 1))^alpha, where |Y| counts the EOS: 1 for one token, and 1 always
    with alpha 0. The offset k is 5 in GNMT, 0 in `transformers`.
    """
    return ((offset + jnp.asarray(length, jnp.float32)) / (offset + 1.0)) ** alpha


def coverage_penalty(coverage: jax.Array, source_mask: jax.Array, beta: float) -> jax.Array:
    """cp(X; Y) = beta * sum over real source positions i of log min(sum_j p_ij, 1), never above 0.

    Args:
      coverage: [..., S], the attention p_ij that position i received, summed over the target steps
        j (EOS too).
      source_mask: [..., S] bool, True at real positions; padding does not count.
      beta: its weight; 0 switches the penalty off.

    Returns:
      [...] float32. The inner sum is clamped at 1e-6.
    """
    return beta * jnp.sum(
        jnp.where(source_mask, jnp.log(jnp.clip(coverage, LEAST_COVERAGE, 1.0)), 0.0), axis=-1
    )
