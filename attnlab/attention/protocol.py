"""The one signature every attention mechanism keeps, and the declaration of what it can do. What a
system asks of it: `needs.py`.

Axis letters: B batch, Tq queries, Tk keys, H heads, d context width, dq/ds widths of query and
source.
"""

from __future__ import annotations

from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.cards import Cost
from attnlab.attention.mixer import Capabilities as Capabilities
from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, EVERYTHING, View, Where, known, standing

# the variable collection to which systems put the auxiliary losses of their looks, while it is
# mutable
LOSSES = "losses"
# the variable collection that holds attention weights; making it mutable is the one switch for maps
MAPS = "maps"

Rows = Literal["one", "at most one", "any"]  # what weights sum to over the keys


@flax.struct.dataclass
class Memory:
    """What is attended: whatever a mechanism precomputes from its source. Mechanisms add their own
    arrays.

    Attributes:
      valid: [B,Tk] bool, True at slots that hold a real token.
      length: slots written so far, int32: [] where all rows have as many (Tk unless there is spare
        capacity to `extend` into), [B] where each row has its own (`by_row`).
      positions: `Where` the slots stand; None for from 0 on.
    """

    valid: jax.Array
    length: jax.Array
    positions: Where | None = flax.struct.field(kw_only=True, default=None)

    def by_row(self) -> Any:
        """The same memory, whose rows may grow apart: padding at the end of a row takes up no slot,
        now and in every piece to come, so that the next token of a row follows its own last one.
        """
        last = jnp.where(self.valid, jnp.arange(1, self.valid.shape[1] + 1, dtype=jnp.int32), 0)
        length = last.max(axis=1, initial=0)
        return self.replace(length=length)  # type: ignore[attr-defined]

    def following(self, steps: int) -> jax.Array:
        """Positions of the next `steps` tokens, int32 [steps], or [B,steps] where rows differ.

        Raises:
          ValueError: the slots have positions of their own, so that none follows.
        """
        self._grows()
        first = 0 if self.positions is None else self.positions
        return standing(first + self.length, steps)

    def appended(self, valid: jax.Array | None, **arrays: jax.Array) -> Any:
        """With arrays [B,n,t,...], by field name, written behind what is there, and `valid` [B,t]
        (None: all real) beside them. The caller keeps `length + t <= capacity`.

        Raises:
          ValueError: as of `following`.
        """
        self._grows()
        batch, _, steps = next(iter(arrays.values())).shape[:3]
        put = jax.lax.dynamic_update_slice_in_dim
        real = jnp.ones((batch, steps), bool) if valid is None else valid
        if np.ndim(self.length):
            return self._appended_by_row(real, arrays)
        grown = {
            name: put(getattr(self, name), x.astype(getattr(self, name).dtype), self.length, 2)
            for name, x in arrays.items()
        }
        valid, length = put(self.valid, real, self.length, 1), self.length + steps
        return self.replace(valid=valid, length=length, **grown)  # type: ignore[attr-defined]

    def _grows(self) -> None:
        if self.positions is not None and np.ndim(self.positions) == 2:
            raise ValueError(
                "a memory whose slots have positions of their own cannot grow; remember all of its"
                " tokens at once"
            )

    def _appended_by_row(self, real: jax.Array, arrays: dict[str, jax.Array]) -> Any:
        """`appended` where each row has a length of its own; padding goes nowhere."""
        slots = self.valid.shape[1]
        at = jnp.where(real, self.length[:, None] + jnp.arange(real.shape[1]), slots)
        put = jax.vmap(lambda old, at, new: old.at[:, at].set(new.astype(old.dtype), mode="drop"))
        grown = {name: put(getattr(self, name), at, x) for name, x in arrays.items()}
        return self.replace(  # type: ignore[attr-defined]
            valid=put(jnp.asarray(self.valid)[:, None], at, real[:, None])[:, 0],
            length=self.length + real.sum(axis=1, dtype=jnp.int32),
            **grown,
        )


@flax.struct.dataclass
class Reading:
    """The result of one look at a memory.

    Attributes:
      context: [B,Tq,d].
      weights: [B,H,Tq,Tk] float32, before dropout, where they are asked for or maps are being
        collected, else None. They have gradients. See `Attention.capture`.
      losses: auxiliary losses by name, [B,Tq] each: what every query adds, so that padding can be
        left out of the sum.
      so_far: what the next look at this memory gets, a tree of arrays that lead with B; None where
        no look depends on those before.
    """

    context: jax.Array
    weights: jax.Array | None = None
    losses: dict[str, jax.Array] = flax.struct.field(default_factory=dict)
    so_far: Any = None


@flax.struct.dataclass
class Mixed:
    """The state of an attention that mixes a sequence: the memory of its tokens, and what its looks
    leave to the next.
    """

    memory: Any
    so_far: Any


class Attention(Mixer):
    """Base of every mechanism, a mixer that can also look at another sequence; its fields are its
    whole configuration.

    A subclass declares `capabilities` and implements `remember`, `read` and, if it declares a
    cache, `extend`. Its `card` says where it comes from and `cost` what it costs. Dropout is on
    exactly when the caller passes a "dropout" random stream.

    Attributes:
      width: d, the width of the context; the system that uses the mechanism sets it, not the
        config.
    """

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> Any:
        """Project a source once: to a `Memory`, every array of it with leading axis B but for
        those numbers that all rows share.

        Args:
          source: [B,Tk,ds].
          valid: [B,Tk] bool, True at real tokens; None means all are.
          capacity: slots to reserve (>= Tk) so that the memory can be extended; None means exactly
            Tk.
          positions: `Where` the tokens stand: of a part of a sequence, not from 0. A mechanism
            whose `remember` lacks the argument does for all that begins at 0.
        """
        raise NotImplementedError

    def read(
        self,
        query: jax.Array,
        memory: Any,
        view: View = EVERYTHING,
        weights: bool = False,
        so_far: Any = None,
    ) -> Reading:
        """Attend from query [B,Tq,dq] to a memory. The last query stands at the memory's last
        written slot, unless the view has positions. `view.onto(memory, query)` is all there is to
        know of who sees whom.

        `weights`: hand out the weights too, whether or not maps are being collected; a slot that
        wants them says so in its `Need`. A mechanism whose `read` lacks the argument does wherever
        they are not asked for.

        `so_far`: the `so_far` of the reading before, or `no_looks(memory)`; None for the first look
        at this memory. Only mechanisms that declare it need the argument.
        """
        raise NotImplementedError

    def no_looks(self, memory: Any) -> Any:
        """The `so_far` before the first look at a memory; it has the structure and the shapes of
        every later one. None where no look depends on those before.
        """
        return None

    def extend(self, memory: Any, source: jax.Array, valid: jax.Array | None = None) -> Any:
        """Append source [B,t,ds] to a memory with spare capacity; the caller keeps `length + t <=
        capacity`.
        """
        raise NotImplementedError

    def begin(self, rows: int, room: int, dtype: Any) -> Mixed:
        """See `Mixer.begin`: an empty memory with this room."""
        memory = self.remember(jnp.zeros((rows, 0, self.width), dtype), capacity=room)
        return Mixed(memory, self.no_looks(memory))

    def mix(
        self, x: jax.Array, view: View = CAUSAL, state: Mixed | None = None
    ) -> tuple[jax.Array, Mixed]:
        """See `Mixer.mix`: `extend`, then `read`. The losses of the look go to the collection
        "losses" while that is mutable and no parameters are made.
        """
        grown, so_far = (None, None) if state is None else (state.memory, state.so_far)
        valid = view.valid
        memory = self.remember(x, valid) if grown is None else self.extend(grown, x, valid)
        reading = self.read(x, memory, view, **asking(False, so_far))
        if reading.losses and not self.is_initializing():
            self.sow(LOSSES, "looks", reading.losses)
        return reading.context, Mixed(memory, reading.so_far)

    def remember_pairs(
        self,
        keys: jax.Array,
        values: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> Any:
        """As `remember`, where slot j is found by keys[:, j] and gives values[:, j]: keys
        [B,Tk,dk], values [B,Tk,dv].
        """
        raise NotImplementedError

    def extend_pairs(
        self, memory: Any, keys: jax.Array, values: jax.Array, valid: jax.Array | None = None
    ) -> Any:
        """As `extend`, with keys [B,t,dk] and values [B,t,dv]."""
        raise NotImplementedError

    def __call__(
        self,
        query: jax.Array,
        source: jax.Array,
        view: View = EVERYTHING,
        valid: jax.Array | None = None,
        weights: bool = False,
    ) -> Reading:
        """`read(query, remember(source, valid), view, weights)`."""
        return self.read(query, self.remember(source, valid), view, **asking(weights))

    @nn.nowrap
    def rows(self) -> Rows:
        """What a row of weights sums to, where anything may be seen; an analysis that wants a
        distribution asks here.
        """
        return "one"

    @nn.nowrap
    def side_by_side(self) -> int:
        """How many vectors as wide as the source a context is put together from, unmixed; 1 for one
        mixed vector of any width.
        """
        return 1

    @nn.nowrap
    def cost(self, queries: int, keys: int, query_width: int, source_width: int) -> Cost:
        """What `remember` and `read` cost with one sequence, counted as `cards` says; without
        queries what `remember` costs.

        A step of decoding at position t costs cost(1, t, ...).flops - cost(0, t - 1, ...).flops.

        Args:
          queries, keys: Tq and Tk.
          query_width, source_width: dq and ds.
        """
        raise NotImplementedError(f"{type(self).__name__} declares no cost")

    def capture(
        self, weights: jax.Array | None, memory: Memory | None = None, asked: bool = False
    ) -> jax.Array | None:
        """Record weights [B,H,Tq,Tk] under this module's name if maps are being collected; return
        them then, or if asked for, else None.

        Of a map, slots of `memory` that nothing was written to are left out. In a program that
        takes the memory as an argument its length is not known: there they stay, with weight 0, and
        the holder of the result cuts it, `weights[..., :length]`. Weights that are asked for have
        all slots, so that their shape does not depend on that. While parameters are made nothing is
        recorded.
        """
        collected = not self.is_initializing() and self.is_mutable_collection(MAPS)
        if weights is None or not (collected or asked):
            return None
        shown = weights
        length = None if memory is None else known(memory.length)
        if length is not None and length.max(initial=0) < weights.shape[-1]:
            shown = weights[..., : int(length.max(initial=0))]
        if collected:
            self.sow(MAPS, "weights", shown)
        return weights if asked else shown


def asking(weights: bool, so_far: Any = None) -> dict[str, Any]:
    """Arguments of a `read` that asks for weights and goes on from earlier looks, or none at all,
    which mechanisms that know no such arguments understand too.
    """
    asked: dict[str, Any] = {"weights": True} if weights else {}
    return asked if so_far is None else asked | {"so_far": so_far}


def at(positions: Where) -> dict[str, Where]:
    """Arguments of a `remember` of a sequence that stands there, or none at all for one that begins
    at 0, which mechanisms that know no such argument understand too.
    """
    return {} if isinstance(positions, int) and positions == 0 else {"positions": positions}


def written(
    source: jax.Array, valid: jax.Array | None, capacity: int | None
) -> tuple[jax.Array, jax.Array]:
    """`valid` padded to the capacity (ValueError if that is below Tk), and the slots written: what
    every `Memory` starts with.
    """
    batch, length = source.shape[:2]
    slots = length if capacity is None else capacity
    if slots < length:
        raise ValueError(f"capacity {slots} is smaller than the source's length {length}")
    spare = ((0, 0), (0, slots - length))
    known: Any = (
        np.pad(np.ones((batch, length), bool), spare) if valid is None else jnp.pad(valid, spare)
    )
    return known, np.asarray(length, np.int32)  # type: ignore[return-value]  # NumPy's where it can be: kernels may look while tracing


def beginning(positions: Where, known: jax.Array) -> Any:
    """`Memory.positions` of a memory whose slots are known [B,Tk] and whose source stands at
    `positions`.

    Raises:
      ValueError: each token has a position of its own, but there are more slots than tokens.
    """
    if np.ndim(positions) < 2:
        return positions if at(positions) else None
    if np.shape(positions)[1] != known.shape[1]:
        raise ValueError(
            f"positions of {np.shape(positions)[1]} tokens for {known.shape[1]} slots; a memory"
            " with spare capacity takes the first one's"
        )
    return jnp.broadcast_to(jnp.asarray(positions, jnp.int32), known.shape)


def with_room(x: jax.Array, slots: int) -> jax.Array:
    """x [B,H,T,...] with zeros in the slots up to `slots`; x itself where all are written.

    For a padding by nothing is an operation all the same, beyond which XLA merges no transposes: 5
    % of a small layer.
    """
    spare = slots - x.shape[2]
    return jnp.pad(x, [(0, spare if axis == 2 else 0) for axis in range(x.ndim)]) if spare else x
