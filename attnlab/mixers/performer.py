"""The Performer: attention by feature maps, whose weights are products of features of the query and of the
key, so that a sum over the keys replaces them.

    y_i = phi(q_i)^T S / phi(q_i)^T z        S = sum_j phi(k_j) v_j^T        z = sum_j phi(k_j)

Without a rule the sums are over all real tokens, of the same or of another sequence; under the
causal rule they run (`layers.recurrence`), and they are all that is kept for the next token: H M (D
+ 1) numbers for M features. No other rule can be honoured. The features of a key may be given as phi
e^f with a number f for each key; sums are then kept as S e^-m, with m the largest f of the keys in
them, as in an online softmax: nothing overflows, and no later key matters to an earlier query. The map
that is recorded is phi(q_i)^T phi(k_j) over its sum, without a rule only.

Axis letters: B batch, H heads, Tq queries, Tk keys, D head width, M features.
"""

import math
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mechanisms.linear import with_ones
from attnlab.attention.memories import Memory, beginning, written
from attnlab.attention.mixer import Capabilities
from attnlab.attention.protocol import Attention, Reading, head_width
from attnlab.attention.scores.protocol import NEVER
from attnlab.attention.view import CAUSAL, EVERYTHING, View, Where
from attnlab.attention.visibility import Causal, Everything
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import inner_dtype, joined, split, unbiased, widened
from attnlab.layers.recurrence import empty, recur
from attnlab.mixers.passing import one_text

ADDED = 1e-3  # to the features by relu


@flax.struct.dataclass
class FeatureMemory(Memory):
    """sums [B,H,M,D+1], S and z side by side, times e^-m; features [B,H,Tk,M] of the keys while maps
    are collected, else None.
    """

    sums: jax.Array
    features: jax.Array | None = None


@flax.struct.dataclass
class Running:
    """The sums so far [B,H,M,D+1] times e^-m, and m [B,H]."""

    sums: jax.Array
    top: jax.Array


class Performer(Attention):
    """H heads of width D = width / H by M random features (Choromanski et al. 2021).

    Performer (Choromanski et al. 2021): softmax attention by positive random features (FAVOR+).

        x' = x / D^(1/4)       phi(x) = M^(-1/2) exp(W x' - |x'|^2 / 2)       W [M,D], rows w ~ N(0, I)
        E[phi(q)^T phi(k)] = exp(q . k / sqrt(D)),     so y_i = phi(q_i)^T S / phi(q_i)^T z is softmax attention as M grows

    Rows of W are orthogonal in blocks of D, of the lengths of Gaussian vectors, which lowers the
    variance. With `map="relu"`, phi(x) = relu(W x') + 10^-3, as in the paper's generalised
    attention: no estimate of a softmax. W is a constant of `seed`, the same for all heads and
    layers; with `redraw` it comes from the random stream "dropout" while that is given, so it is
    another one in every step of training and the constant one elsewhere. Cost: 4 T d M FLOPs for
    the features, 4 T d M for the sums, without a rule. State: M (D + 1) H numbers. Parameters: 4
    d^2. Source: K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021 (arXiv
    2009.14794), lemma 1, theorem 2 and section 2.4. What differs: their code adds 10^-4 to every
    feature and takes the largest exponent over the whole sequence, by which the causal form sees
    the future; here nothing is added, and the largest exponent is that of the keys so far. They
    redraw every 1000 steps.

    Attributes:
      heads: H; must divide the width.
      features: M; 0 for D ln D, rounded up.
      map: "positive" (an estimate of softmax) or "relu".
      orthogonal: whether rows of W are orthogonal in blocks.
      redraw: whether W is drawn anew in every step of training.
      seed: of W.

    Card: features; Choromanski et al., Rethinking Attention with Performers, ICLR 2021;
    time T d M + T d^2; state d M; path 1; steps T / C.
    """

    heads: int = 4
    features: int = 0
    map: Literal["positive", "relu"] = "positive"
    orthogonal: bool = True
    redraw: bool = False
    seed: int = 0

    capabilities = Capabilities(dense=False, grows=False, maps="effective", state="constant")

    def setup(self) -> None:
        at_least(0, "performer", features=self.features)
        head_width(type(self).__name__, self.width, self.heads)
        self.w_query, self.w_key, self.w_value, self.out = unbiased(4, self.width)
        self.turns = self.draw_directions()

    @property
    @nn.nowrap
    def size(self) -> int:
        """D."""
        return self.width // self.heads

    @nn.nowrap
    def count(self) -> int:
        """M."""
        return self.features or max(1, math.ceil(self.size * math.log(self.size)))

    def draw_directions(self) -> jax.Array:
        """Draws the random directions W [M,D] of the features: from the seed, or in training anew
        in every step where `redraw` is set.
        """
        if self.redraw and self.has_rng("dropout"):
            return directions(self.make_rng("dropout"), self.count(), self.size, self.orthogonal)
        with jax.ensure_compile_time_eval():
            key = jax.random.key(self.seed)
            return directions(key, self.count(), self.size, self.orthogonal)

    def random_features(self, x: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """Computes the random features phi [B,H,T,M] of x [B,H,T,D]; under the map "positive"
        divided by their largest, whose logarithm [B,H,T] is also returned (None under "relu").
        """
        x = x * self.size**-0.25
        projected = x @ self.turns.T
        if self.map == "relu":
            return jax.nn.relu(projected) + ADDED, None
        exponents = projected - 0.5 * (x * x).sum(axis=-1, keepdims=True)
        top = jax.lax.stop_gradient(exponents.max(axis=-1))
        return jnp.exp(exponents - top[..., None]), top

    def split(self, x: jax.Array) -> jax.Array:
        """[B,T,H*D] to heads first, [B,H,T,D], in the inner precision."""
        return split(widened(x), self.heads)

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> FeatureMemory:
        """Computes the features phi of the keys of `source` [B,S,d], and stores sum_j phi(k_j) [v_j
        ; 1] over its real tokens (`valid` [B,S]) in a `FeatureMemory` of `capacity` slots (S by
        default), of which the first has position `positions`. See `Attention.remember`.
        """
        filled, length = written(source, valid, capacity)
        real = jnp.asarray(filled[:, : source.shape[1]])[:, None, :, None]
        source = jnp.where(real[:, 0], source, 0)
        features, factor = self.random_features(self.split(self.w_key(source)))
        if factor is not None:
            factor = jnp.where(real[..., 0], factor, NEVER)
            top = jax.lax.stop_gradient(factor.max(axis=-1, keepdims=True, initial=NEVER))
            features = features * jnp.exp(factor - top)[..., None]
        features = jnp.where(real, features, 0)
        sums = features.swapaxes(-1, -2) @ with_ones(self.split(self.w_value(source)))
        phi_k = features if self.is_collecting() else None
        return FeatureMemory(filled, length, sums, phi_k, positions=beginning(positions, filled))

    def read(
        self,
        query: jax.Array,
        memory: FeatureMemory,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Returns a `Reading` with the context phi(q)^T S / phi(q)^T z of `query` [B,Tq,d] from the
        sums S and z of a memory, and attention weights while maps are collected; raises UserError
        if the view has a rule or segments; `weights` and `history` are not used. See
        `Attention.read`.

        Raises:
          UserError: the view has a rule; the causal one is honoured by `mix` alone.
        """
        self.check(view)
        phi_q, _ = self.random_features(self.split(self.w_query(query)))
        means = self.divided(phi_q @ memory.sums)
        maps = None
        if memory.features is not None:
            total = (phi_q @ memory.sums)[..., -1:]
            maps = phi_q @ memory.features.swapaxes(-1, -2) / self.above(total)
        return Reading(self.joined(means, query), self.capture(maps, memory))

    def begin(self, rows: int, room: int, dtype: Any) -> Running:  # type: ignore[override]
        """See `Mixer.begin`."""
        sums = empty(rows, self.heads, self.count(), self.size + 1, dtype)
        top = jnp.full((rows, self.heads), NEVER, inner_dtype(jnp.zeros((), dtype)))
        return Running(sums, top)

    def mix(  # type: ignore[override]
        self, x: jax.Array, view: View = CAUSAL, state: Any = None
    ) -> tuple[jax.Array, Running | None]:
        """Mixes x [B,T,d] under the causal rule by running sums of key features times values, from
        `state` on, or without a rule by `read`; returns y [B,T,d] and the new sums, a `Running`
        (None without a rule); raises UserError for other rules and for segments. See `Mixer.mix`; y
        is 0 at padding.

        Raises:
          UserError: another rule than the causal one, or several texts in a row.
        """
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        if not isinstance(view.rule, Causal):
            y = self.read(x, self.remember(x, view.valid), view).context
            return jnp.where(real[..., None], y, 0), None
        one_text(self, view)
        state = self.begin(len(x), 0, x.dtype) if state is None else state
        x = jnp.where(real[..., None], x, 0)
        phi_q, _ = self.random_features(self.split(self.w_query(x)))
        features, factor = self.random_features(self.split(self.w_key(x)))
        gate, top = None, state.top
        if factor is not None:
            gate, tops = running(jnp.where(real[:, None], factor, NEVER), state.top)
            features = features * jnp.exp(jnp.minimum(factor - tops, 0))[..., None]
            top = tops[..., -1] if x.shape[1] else top

        def summed(values: jax.Array, sums: Any) -> tuple[jax.Array, jax.Array]:
            arrays = phi_q, features, with_ones(values), gate
            outputs, sums = recur(*arrays, state=sums, valid=real)
            return self.divided(outputs), sums

        means, sums = self.sum_values(summed, self.split(self.w_value(x)), state.sums)
        return self.joined(jnp.where(real[:, None, :, None], means, 0), x), Running(sums, top)

    def check(self, view: View) -> None:
        """Checks that a view has no rule and no segments, which sums over all keys cannot honour;
        raises UserError if it has.
        """
        one_text(self, view)
        if not isinstance(view.rule, Everything):
            raise UserError(
                f"{type(self).__name__} sums over keys before queries are compared: it honours no"
                " rule but the causal one of a text that is mixed; choose 'multihead', or the"
                " visibility 'full'"
            )

    def above(self, total: jax.Array) -> jax.Array:
        """Returns sums of weights as denominators: 1 where a sum is not above 0."""
        return jnp.where(total > 0, total, 1)

    def divided(self, sums: jax.Array) -> jax.Array:
        """Divides sums [B,H,Tq,D+1] by their last column, the sums of weights: means [B,H,Tq,D]."""
        return sums[..., :-1] / self.above(sums[..., -1:])

    def joined(self, means: jax.Array, query: jax.Array) -> jax.Array:
        """[B,H,Tq,D] to the context [B,Tq,d]."""
        return self.out(joined(means).astype(query.dtype))


def running(factor: jax.Array, previous: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Computes the running maximum m [B,H,T] of the factors [B,H,T] of keys, from the maximum
    `previous` [B,H] of earlier keys on, and returns the logarithms of the gates m_{t-1} - m_t, 0
    where nothing came before, and m.
    """
    factor = jax.lax.stop_gradient(factor)
    tops = jnp.maximum(jax.lax.cummax(factor, axis=2), previous[..., None])
    last = jnp.concatenate([previous[..., None], tops[..., :-1]], axis=-1)
    return jnp.where(last > NEVER / 2, last - tops, 0), tops


def directions(key: jax.Array, number: int, size: int, orthogonal: bool) -> jax.Array:
    """Draws a matrix W [M,D] of standard normal rows, M = `number`, D = `size`; if `orthogonal`,
    the rows of each block of D are made orthogonal, with lengths as if they were not.

    The signs of a QR decomposition depend on its input: without the correction every first row
    would have a negative first entry, and the features a bias.
    """
    first, second = jax.random.split(key)
    rows = jax.random.normal(first, (-(-number // size), size, size), jnp.float32)
    if orthogonal:
        lengths = jnp.linalg.norm(jax.random.normal(second, rows.shape, jnp.float32), axis=-1)
        q, r = jnp.linalg.qr(rows)
        orthonormal = q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
        rows = orthonormal.swapaxes(-1, -2) * lengths[..., None]
    return rows.reshape(-1, size)[:number]
