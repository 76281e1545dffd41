"""Reformer (Kitaev et al. 2020): queries and keys are one, hashed into buckets; a token sees tokens
of its bucket that are near it in the sorted order.

    k_j = q_j / |q_j|       bucket(x) = argmax [x R ; -x R]       R [D,n/2], drawn for each head and round
    o_i = sum_{j in P_i} softmax_j(q_i . k_j / sqrt(D)) v_j       P_i: the union over the rounds
    y = concat_h(o_h) W_o

In a round the real tokens are sorted by bucket, then by position, and cut into chunks of m. Without
a rule token i sees, of the tokens in its bucket, those of its own and of the previous chunk. Under
the causal rule that would let the future in, since later tokens move the boundaries of chunks; so
there it sees the m tokens of its bucket before it, which are in these two chunks too. A token does
not see itself, k_i being most like q_i, unless it sees nothing else. A pair that is found in n
rounds is counted once: log n is subtracted from its score. Each round computes 2 m scores for a
token; a state, for decoding, keeps every token, and a step looks at all of them.

Cost: 2 T D n FLOPs to hash, 8 T m D for the scores and sums, for each round and head. Parameters:
3 d^2. The rounds' matrices R are constants of `seed`. Source: N. Kitaev, L. Kaiser, A. Levskaya,
"Reformer: The Efficient Transformer", ICLR 2020 (arXiv 2001.04451), section 2, equations 1-6, and
appendix A for the union. What differs: the causal neighbourhood, as said; n and m do not depend on
the length (in the paper m = 2 T / n), so that padding is inert; reversible layers are not here.

Axis letters: B batch, H heads, T tokens, D head width, r rounds, N chunks, m chunk.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Capabilities, Mixer
from attnlab.attention.protocol import Memory, head_width
from attnlab.attention.scores.protocol import NEVER
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import Causal, Everything
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import joined, split, unbiased, widened
from attnlab.mixers.passing import one_text

TINY = 1e-12  # under the norm of a query of zeros


@flax.struct.dataclass
class Hashed(Memory):
    """queries [B,H,S,D], values [B,H,S,D] and buckets [B,H,S,r] of every token."""

    queries: jax.Array
    values: jax.Array
    buckets: jax.Array


class Reformer(Mixer):
    """H heads of width D = width / H that look within buckets (Kitaev et al. 2020).

    Attributes:
      heads: H; must divide the width.
      buckets: n, even; 1 for no hashing.
      chunk: m, tokens of a chunk of the sorted order.
      rounds: r, how often tokens are hashed.
      seed: of the matrices R.

    Card: hashed; Kitaev et al., Reformer, ICLR 2020; time T r d (n + m) + T H r log T + T d^2;
    state T d; path 1; steps 1.
    """

    heads: int = 4
    buckets: int = 16
    chunk: int = 32
    rounds: int = 2
    seed: int = 0

    capabilities = Capabilities(
        roles=frozenset({"self"}), dense=False, positions=frozenset({"embedding"})
    )

    def setup(self) -> None:
        """Checks heads, `buckets`, `chunk` and `rounds` (raises UserError if they do not fit), and
        creates the projections of shared queries and keys, values and output.
        """
        head_width("reformer", self.width, self.heads)
        if self.buckets < 1 or (self.buckets > 1 and self.buckets % 2):
            raise UserError(
                f"reformer: buckets={self.buckets} must be even, or 1 for no hashing; take"
                f" {max(2, self.buckets + 1)}"
            )
        at_least(1, "reformer", chunk=self.chunk, rounds=self.rounds)
        self.w_query, self.w_value, self.out = unbiased(3, self.width)

    def begin(self, rows: int, room: int, dtype: Any) -> Hashed:
        """Creates a `Hashed`, an empty memory of `room` slots for `rows` texts: queries (also the
        keys), values and bucket numbers. See `Mixer.begin`.
        """
        heads = jnp.zeros((rows, self.heads, room, self.width // self.heads), dtype)
        buckets = jnp.zeros((rows, self.heads, room, self.rounds), jnp.int32)
        return Hashed(
            jnp.zeros((rows, room), bool), jnp.zeros((), jnp.int32), heads, heads, buckets
        )

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Hashed]:
        """Mixes x [B,T,d] by attention to tokens of the same hash bucket (a whole text in sorted
        chunks, or a piece against the memory `state`), and returns y and the memory; raises
        UserError for segments, rules but the causal one, and a `state` without it. See `Mixer.mix`;
        y is 0 at padding.

        Raises:
          UserError: another rule than the causal one, or several texts in a row.
        """
        one_text(self, view)
        if not isinstance(view.rule, Everything | Causal):
            raise UserError("reformer: no rule but the causal one; choose the visibility 'full'")
        causal, piece = isinstance(view.rule, Causal), x.shape[1]
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        q, v = (split(project(x), self.heads) for project in (self.w_query, self.w_value))
        buckets = self.hash_buckets(q)
        if state is None:
            count = jnp.asarray(piece, jnp.int32)
            memory = Hashed(real, count, q, v, buckets)
            real_buckets = jnp.where(real[:, None, :, None], buckets, self.buckets)
            context, _ = self.sum_values(
                lambda v, _: (self.in_chunks(q, v, real_buckets, causal), None), v
            )
        else:
            if not causal:
                raise UserError("reformer: only a causal text can be read piece by piece")
            memory = state.appended(view.valid, queries=q, values=v, buckets=buckets)
            context, _ = self.sum_values(
                lambda v, _: (
                    self.attend_to_slots(q, buckets, memory.replace(values=v), state.length),
                    None,
                ),
                memory.values,
            )
        context = jnp.where(real[:, None, :, None], context, 0).astype(x.dtype)
        return self.out(joined(context)), memory

    def turns(self) -> jax.Array:
        """Draws R of every head and round, [H,D,r,n/2]."""
        shape = self.heads, self.width // self.heads, self.rounds, self.buckets // 2
        return jax.random.normal(jax.random.key(self.seed), shape, jnp.float32)

    def hash_buckets(self, q: jax.Array) -> jax.Array:
        """Computes the hash bucket of each query q [B,H,T,D] in each of r rounds, int32 [B,H,T,r]."""
        if self.buckets == 1:
            return jnp.zeros((*q.shape[:3], self.rounds), jnp.int32)
        projected = jnp.einsum("bhtd,hdrn->bhtrn", widened(q), self.turns())
        signed = jnp.concatenate([projected, -projected], axis=-1)
        return jnp.argmax(jax.lax.stop_gradient(signed), axis=-1).astype(jnp.int32)

    def in_chunks(self, q: jax.Array, v: jax.Array, buckets: jax.Array, causal: bool) -> jax.Array:
        """Computes attention of a whole text, [B,H,T,D], with shared queries and keys q and values
        v, of each token to those of its bucket in its own and the previous chunk of tokens sorted
        by `buckets` [B,H,T,r], united over all r rounds; `causal`: a token sees none after it.

        Args:
          q, v: [B,H,T,D]; keys are queries of length 1.
          buckets: int32 [B,H,T,r], of each token in each round; n at padding.
          causal: whether a token sees none after it.
        """
        length, m = q.shape[2], self.chunk
        spare = -length % m
        q, v = (jnp.pad(x, ((0, 0), (0, 0), (0, spare), (0, 0))) for x in (q, v))
        buckets = jnp.pad(
            buckets, ((0, 0), (0, 0), (0, spare), (0, 0)), constant_values=self.buckets
        )
        index = jnp.arange(length + spare, dtype=jnp.int32)
        order = jnp.argsort(buckets * (length + spare) + index[:, None], axis=2)
        place = jnp.argsort(order, axis=2).astype(jnp.int32)  # of each token in the sorted order
        rounds = []
        for number in range(self.rounds):
            rounds.append(self.attend_round(number, q, v, buckets, order, place, causal))
        return merge_rounds(rounds, widened(v))[:, :, :length]

    def attend_round(
        self,
        number: int,
        q: jax.Array,
        v: jax.Array,
        buckets: jax.Array,
        order: jax.Array,
        place: jax.Array,
        causal: bool,
    ) -> tuple[jax.Array, jax.Array]:
        """Computes attention within chunks for hash round `number`, on queries q and values v that
        `order` sorts by bucket, exp(score) divided by the number of rounds that let the pair see
        each other; returns the context [B,H,T,D] and the log of the sum of these terms [B,H,T].

        Args:
          number: of the round, from 0.
          q, v: [B,H,T,D], T a multiple of the chunk.
          buckets: int32 [B,H,T,r], of each token in each round.
          order: int32 [B,H,T,r], the tokens sorted by bucket, then by position.
          place: int32 [B,H,T,r], of each token in the sorted order.
          causal: whether a token sees none after it.
        """
        m, round_order = self.chunk, order[..., number]

        def chunks(x: jax.Array) -> jax.Array:
            """x [B,H,T,...] in the order of this round, cut: [B,H,N,m,...]."""
            index = round_order.reshape(*round_order.shape, *[1] * (x.ndim - 3))
            ordered = jnp.take_along_axis(x, index, axis=2)
            return ordered.reshape(*x.shape[:2], x.shape[2] // m, m, *x.shape[3:])

        queries, values, bucket, rank = map(chunks, (q, v, buckets, place))
        mask = with_previous(jnp.ones(bucket.shape[:4], bool))[:, :, :, None]
        hits = jnp.zeros((*queries.shape[:4], 2 * m), jnp.int32)  # rounds that find the pair
        for other in range(self.rounds):
            matches = self.sees(
                (bucket[..., other], rank[..., other]),
                tuple(with_previous(numbers[..., other]) for numbers in (bucket, rank)),
                causal,
            )
            hits = hits + matches
            mask = mask & matches if other == number else mask
        tokens = round_order.reshape(queries.shape[:4])
        mask = mask & (tokens[..., None] != with_previous(tokens)[..., None, :])
        scores = cosines(queries, with_previous(queries))
        scores = scores - jnp.log(jnp.maximum(hits, 1).astype(scores.dtype))
        total, context = attend(scores, mask, with_previous(values))
        places = place[..., number]
        flat = (total.reshape(places.shape), context.reshape(v.shape))
        total = jnp.take_along_axis(flat[0], places, axis=2)
        return jnp.take_along_axis(flat[1], places[..., None], axis=2), total

    def sees(
        self, queries: tuple[jax.Array, jax.Array], keys: tuple[jax.Array, ...], causal: bool
    ) -> jax.Array:
        """Returns whether a hash round lets a query see a key, bool [...,q,k]: they share a bucket
        (not that of padding), the key in the same or the previous chunk (if `causal`, 0 to `chunk`
        places before); `queries`, `keys`: (bucket, place in sorted order), [...,q] and [...,k].
        """
        bucket, place = (numbers[..., :, None] for numbers in queries)
        key_bucket, key_place = (numbers[..., None, :] for numbers in keys)
        same_bucket = (bucket == key_bucket) & (bucket < self.buckets)
        if causal:
            return same_bucket & (key_place <= place) & (place - key_place <= self.chunk)
        chunks_back = place // self.chunk - key_place // self.chunk
        return same_bucket & ((chunks_back == 0) | (chunks_back == 1))

    def attend_to_slots(
        self, q: jax.Array, buckets: jax.Array, memory: Hashed, first: jax.Array
    ) -> jax.Array:
        """Computes the context [B,H,t,D] of the last t tokens, with queries q and `buckets`, by
        causal attention to those slots of the memory that any hash round lets them see, else a
        token's own value; `first`: the slot of the first of them.

        Args:
          q: [B,H,t,D], the queries of these tokens.
          buckets: int32 [B,H,t,r], theirs.
          memory: of all tokens, theirs too.
          first: the slot of the first of them, [] or [B].
        """
        slots = jnp.arange(memory.valid.shape[1], dtype=jnp.int32)
        slot = jnp.reshape(first, (-1, 1)) + jnp.arange(q.shape[2], dtype=jnp.int32)  # [B or 1,t]
        real_buckets = jnp.where(memory.valid[:, None, :, None], memory.buckets, self.buckets)
        one_hot = real_buckets[..., None] == jnp.arange(self.buckets, dtype=jnp.int32)
        ranks = jnp.cumsum(one_hot, axis=2, dtype=jnp.int32)
        rank = jnp.take_along_axis(ranks, memory.buckets[..., None], axis=4)[..., 0]
        query_rank = jnp.take_along_axis(rank, slot[:, None, :, None], axis=2, mode="clip")
        mask = jnp.zeros((*q.shape[:3], len(slots)), bool)
        for number in range(self.rounds):
            hashes = buckets[..., number], query_rank[..., number]
            mask = mask | self.sees(hashes, (real_buckets[..., number], rank[..., number]), True)
        mask = mask & (slot[:, None, :, None] != slots)
        total, context = attend(cosines(q, memory.queries), mask, memory.values)
        index = jnp.broadcast_to(slot[:, None, :, None], (*q.shape[:3], 1))
        token_values = jnp.take_along_axis(memory.values, index, axis=2, mode="clip")
        return merge_rounds([(context, total)], widened(token_values))


def with_previous(x: jax.Array) -> jax.Array:
    """Joins each chunk of x [B,H,N,m,...] with the one before it, [B,H,N,2m,...]; zeros before the
    first.
    """
    previous = jnp.concatenate([jnp.zeros_like(x[:, :, :1]), x[:, :, :-1]], axis=2)
    return jnp.concatenate([previous, x], axis=3)


def cosines(q: jax.Array, keys: jax.Array) -> jax.Array:
    """Computes q . k / sqrt(D) [...,q,k] float32 of queries [...,q,D] and keys [...,k,D], which are
    brought to length 1.
    """
    q, k = widened(q), widened(keys)
    k = k * jax.lax.rsqrt(jnp.maximum((k * k).sum(axis=-1, keepdims=True), TINY))
    return q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5


def attend(scores: jax.Array, mask: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the logarithm [...,q] of the sum of exp(scores) over the keys where `mask` [...,q,k]
    is True (`NEVER` without any), and the mean [...,q,D] of the values [...,k,D] weighted by
    softmax(scores) over them (0 without any).
    """
    scores = jnp.where(mask, scores, NEVER)
    top = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    weights = jnp.where(mask, jnp.exp(scores - top), 0)
    total = weights.sum(axis=-1)
    some = total > 0
    logarithm = jnp.where(some, top[..., 0] + jnp.log(jnp.where(some, total, 1)), NEVER)
    return logarithm, (weights / jnp.where(some, total, 1)[..., None]) @ widened(values)


def merge_rounds(rounds: list[tuple[jax.Array, jax.Array]], default: jax.Array) -> jax.Array:
    """Averages the contexts [...,D] of several `rounds`, pairs (context, logarithm of its sum of
    exp(scores) [...]), weighted by these sums; returns `default` [...,D], the token's own value,
    where no round finds another token.
    """
    contexts, totals = (jnp.stack(of_rounds) for of_rounds in zip(*rounds, strict=True))
    matched = totals > NEVER / 2
    top = jax.lax.stop_gradient(totals.max(axis=0))
    weights = jnp.where(matched, jnp.exp(totals - top), 0)
    total = weights.sum(axis=0)
    mean = (weights[..., None] * contexts).sum(axis=0) / jnp.where(total > 0, total, 1)[..., None]
    return jnp.where((total > 0)[..., None], mean, default)
