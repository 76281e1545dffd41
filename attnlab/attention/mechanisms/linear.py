"""Linear attention (Katharopoulos et al. 2020): the weight of a key is a product of features, so that
a source is summed up once, whatever its length.

    q, k, v = x W_q, s W_k, s W_v                                 H heads of width D = width / H
    A_ij    = phi(q_i) . phi(k_j) / z_i,  z_i = sum_j phi(q_i) . phi(k_j)      y = concat_h(A_h v_h) W_o
            = phi(q_i)^T S / phi(q_i)^T n,  S = sum_j phi(k_j) v_j^T, n = sum_j phi(k_j)

phi is one of `attention.features`. With features of either sign the sum z may be 0; `normalise =
"norm"` leaves it out and puts an RMS norm on the output of each head instead (Qin et al., "The Devil
in Linear Transformer", EMNLP 2022). Three ways to the same result:

    all keys seen             two products, linear in the lengths
    causal, a whole text      `layers.recurrence`, in chunks; in `mix` with a state that never grows
    any other view            the weights A themselves, as in softmax attention

Cost: 2 H M D FLOPs for each key and each query, M features; a state of H M (D + 1) numbers. Source:
A. Katharopoulos, A. Vyas, N. Pappas, F. Fleuret, "Transformers are RNNs: Fast Autoregressive
Transformers with Linear Attention", ICML 2020 (arXiv 2006.16236). Where a query sees nothing, or
nothing that fits, the context is 0; the paper adds 1e-6 to z instead.

Axis letters: B batch, Tq queries, Tk keys, T both, H heads, D head width, M features.
"""

from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.features import FEATURES
from attnlab.attention.memories import Memory, beginning, with_room, written
from attnlab.attention.protocol import Attention, Capabilities, Reading, Rows, head_width
from attnlab.attention.view import CAUSAL, EVERYTHING, View, Where, number, token_positions
from attnlab.attention.visibility import Causal, Everything
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, joined, split, widened
from attnlab.layers.history import places
from attnlab.layers.norms import RMSNorm
from attnlab.layers.recurrence import empty, recur


@flax.struct.dataclass
class LinearMemory(Memory):
    """Features [B,H,Tk,M] of the keys and values [B,H,Tk,D], both zero at slots that are not real;
    S and n of all of them, [B,H,M,D+1].
    """

    features: jax.Array
    values: jax.Array
    sums: jax.Array


@flax.struct.dataclass
class Sums:
    """S and n [B,H,M,D+1], n the last column, and how many tokens there were, [B] int32."""

    sums: jax.Array
    read: jax.Array


class Linear(Attention):
    """Linear attention with H heads.

    Attributes:
      heads: H; must divide the width.
      features: phi.
      normalise: "sum": weights are divided by their sum z; "norm": an RMS norm on the output of
        each head.
      bias: whether the projections of query, key and value have biases.
      chunk: tokens that are computed at once under a causal view; 0 for a good number.

    Card: linear; Katharopoulos et al., Transformers are RNNs, ICML 2020; time T d^2; state d^2 / H;
    path 1; steps T / C.
    """

    heads: int = 4
    features: Part = "elu"
    normalise: Literal["sum", "norm"] = "sum"
    bias: bool = False
    chunk: int = 0

    parts = {"features": FEATURES}
    capabilities = Capabilities(dense=False, state="constant")

    def setup(self) -> None:
        """Creates the feature maps and projections; raises UserError if heads do not divide the
        width, or weights are to be divided by their sum and the features may be negative.
        """
        head_width("linear", self.width, self.heads)
        self.query_features = made(FEATURES, self.features)()
        self.key_features = made(FEATURES, self.features)()
        if self.normalise == "sum" and not self.query_features.positive:
            raise UserError(
                f"linear: features={type(self.query_features).__name__} may weigh a key with a"
                " negative number, so that weights have no sum to be divided by; choose"
                " normalise='norm', or the features 'elu'"
            )
        self.w_query, self.w_key, self.w_value = (Dense(self.width, self.bias) for _ in range(3))
        self.out = Dense(self.width, use_bias=False)
        if self.normalise == "norm":
            self.norm = RMSNorm()

    @nn.nowrap
    def rows(self) -> Rows:
        """See `Attention.rows`; where no key fits, weights are zero."""
        return "at most one" if self.normalise == "sum" else "any"

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> LinearMemory:
        """Computes the features of keys and the values of a source [B,Tk,ds], and returns a
        `LinearMemory` of both, with spare slots up to `capacity`, and of the sum over tokens j of
        the outer products of features_j and [values_j ; 1]. See `Attention.remember`.
        """
        real, length = written(source, valid, capacity)
        where = token_positions(positions, source.shape[1])
        features, values = self._key_values(source, valid, where)
        return LinearMemory(
            real,
            length,
            with_room(features, real.shape[1]),
            with_room(values, real.shape[1]),
            _sums(features, values),
            positions=beginning(positions, real),
        )

    def extend(
        self, memory: LinearMemory, source: jax.Array, valid: jax.Array | None = None
    ) -> LinearMemory:
        """See `Attention.extend`."""
        features, values = self._key_values(source, valid, memory.following(source.shape[1]))
        grown: LinearMemory = memory.appended(valid, features=features, values=values)
        return grown.replace(sums=memory.sums + _sums(features, values))  # type: ignore[attr-defined, no-any-return]

    def read(
        self,
        query: jax.Array,
        memory: LinearMemory,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Computes attention of a query [B,Tq,dq] to a memory, without weights where all keys, or
        all up to each query, are visible, else from weights [B,H,Tq,Tk], and returns a `Reading`,
        with weights if requested or recorded. See `Attention.read`.
        """
        look = view.onto(memory, query)
        phi_q = self._features(query, look.i)
        needs_map = weights or self.is_collecting()
        direct = _is_weightless(view, memory, query)
        pairs = None if direct and not needs_map else self._weights(phi_q, memory, look)
        if view.segments is None and isinstance(view.rule, Everything):
            outputs = phi_q @ memory.sums
        elif direct:
            outputs, _ = recur(phi_q, memory.features, with_ones(memory.values), chunk=self.chunk)
        else:
            assert pairs is not None
            outputs = pairs @ with_ones(memory.values)
        if pairs is not None and self.normalise == "sum":
            pairs = _quotient(pairs, outputs[..., -1:])
        context = self._joined(self._divided(outputs), query)
        return Reading(context, self.capture(pairs, memory, weights))

    def begin(self, rows: int, room: int, dtype: Any) -> Sums:  # type: ignore[override]
        """See `Mixer.begin`: zeros."""
        width = self.width // self.heads
        features = self.query_features.size(width)
        sums = empty(rows, self.heads, features, width + 1, dtype)
        return Sums(sums, jnp.zeros(rows, jnp.int32))

    def mix(  # type: ignore[override]
        self, x: jax.Array, view: View = CAUSAL, state: Sums | None = None
    ) -> tuple[jax.Array, Sums]:
        """Mixes x [B,T,d] causally by a recurrence over the sum of features times values,
        continuing from `state`, and returns y [B,T,d] and the new `Sums`; under another view it
        attends from x to what that shows of x and returns empty `Sums`, or raises UserError if
        there is a state. See `Mixer.mix`. The state has one size.

        Raises:
          UserError: a view that is not causal alone, or a state and segments.
        """
        alone = view.segments is None and isinstance(view.rule, Causal)
        start = self.begin(len(x), 0, x.dtype) if state is None else state
        if not alone and state is None:  # several texts, or all of one: nothing comes after it
            return self.read(x, self.remember(x, view.valid), view).context, start
        if not alone:
            raise UserError(
                "linear: its state is of all tokens so far, so a piece of a text has no other"
                " visibility and no segments; choose the visibility 'full', or 'multihead'"
            )
        positions, read = places(start.read, x.shape[1], view.valid)
        positions = positions[0] if state is None and view.valid is None else positions  # all alike
        features, values = self._key_values(x, view.valid, positions)
        phi_q = self._features(x, positions)

        def summed(values: jax.Array, sums: Any) -> tuple[jax.Array, jax.Array]:
            outputs, sums = recur(phi_q, features, with_ones(values), state=sums, chunk=self.chunk)
            return self._divided(outputs), sums

        sums = None if state is None else start.sums
        heads, sums = self.sum_values(summed, values, sums)
        return self._joined(heads, x), Sums(sums, read)

    def _features(self, query: jax.Array, positions: jax.Array) -> jax.Array:
        """Features [B,H,Tq,M] of queries."""
        return self.query_features(widened(split(self.w_query(query), self.heads)), positions)

    def _key_values(
        self, source: jax.Array, valid: jax.Array | None, positions: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Computes the features [B,H,Tk,M] of the keys of a source [B,Tk,ds] at `positions` and its
        values [B,H,Tk,D], both float32 and zero at padding (`valid` [B,Tk] False).
        """
        features = self.key_features(widened(split(self.w_key(source), self.heads)), positions)
        values = widened(split(self.w_value(source), self.heads))
        if valid is None:
            return features, values
        real = valid[:, None, :, None]
        return jnp.where(real, features, 0.0), jnp.where(real, values, 0.0)

    def _weights(self, phi_q: jax.Array, memory: LinearMemory, look: View) -> jax.Array:
        """phi(q) . phi(k) [B,H,Tq,Tk], 0 where not seen."""
        pairs = phi_q @ memory.features.swapaxes(-1, -2)
        allowed = look.allowed()
        return pairs if allowed is None else jnp.where(allowed, pairs, 0.0)

    def _divided(self, outputs: jax.Array) -> jax.Array:
        """[B,H,Tq,D+1], the last column of which is z, to [B,H,Tq,D], divided by z if it is to be."""
        values = outputs[..., :-1]
        return _quotient(values, outputs[..., -1:]) if self.normalise == "sum" else values

    def _joined(self, heads: jax.Array, query: jax.Array) -> jax.Array:
        """Sums of the values [B,H,Tq,D] to the context [B,Tq,d]."""
        heads = self.norm(heads) if self.normalise == "norm" else heads
        return self.out(joined(heads).astype(query.dtype))


def _is_weightless(view: View, memory: LinearMemory, query: jax.Array) -> bool:
    """Returns whether the context of a query can be computed without weights: without segments,
    either the view shows every key, or it is causal and the queries are exactly the tokens of the
    memory.
    """
    if view.segments is not None:
        return False
    whole = number(memory.length) == query.shape[1] == memory.valid.shape[1]
    causal = isinstance(view.rule, Causal) and view.positions is None and whole
    return isinstance(view.rule, Everything) or causal


def with_ones(values: jax.Array) -> jax.Array:
    """Returns values [B,H,Tk,D] with a column of ones behind them, [B,H,Tk,D+1]; its sum is z."""
    return jnp.concatenate([values, jnp.ones_like(values[..., :1])], axis=-1)


def _sums(features: jax.Array, values: jax.Array) -> jax.Array:
    """S and n of keys and values."""
    return features.swapaxes(-1, -2) @ with_ones(values)


def _quotient(x: jax.Array, total: jax.Array) -> jax.Array:
    """x / total, 0 where the total is 0."""
    some = total != 0.0
    return jnp.where(some, x / jnp.where(some, total, 1.0), 0.0)
