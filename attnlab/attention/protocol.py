"""The signature that every attention mechanism has, and the base class of all of them. What a
system requires of a mechanism: `needs.py`.

Axis letters: B batch, Tq queries, Tk keys, H heads, d context width, dq/ds widths of query and
source.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.memories import Memory as Memory
from attnlab.attention.memories import beginning as beginning
from attnlab.attention.memories import first_memory as first_memory
from attnlab.attention.memories import with_room as with_room
from attnlab.attention.memories import written as written
from attnlab.attention.mixer import MAPS as MAPS
from attnlab.attention.mixer import Capabilities as Capabilities
from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, EVERYTHING, View, Where, concrete_value, token_positions
from attnlab.config.registry import kind, made
from attnlab.errors import UserError

# the variable collection for the auxiliary losses of attention; written only while it is mutable
LOSSES = "losses"

Rows = Literal["one", "at most one", "any"]  # what weights sum to over the keys


@flax.struct.dataclass
class Reading:
    """The result of one look at a memory.

    Attributes:
      context: [B,Tq,d].
      weights: [B,H,Tq,Tk] float32, before dropout, if they were requested or maps are being
        collected, else None. They have gradients. See `Attention.capture`.
      losses: auxiliary losses by name, [B,Tq] each: one number per query, so that padding can be
        left out of the sum.
      history: the state for the next look at this memory, a tree of arrays with leading axis B;
        None if no look depends on earlier ones.
    """

    context: jax.Array
    weights: jax.Array | None = None
    losses: dict[str, jax.Array] = flax.struct.field(default_factory=dict)
    history: Any = None


class Tokens(NamedTuple):
    """Tokens that a memory is made of, or grows by.

    Attributes:
      keys: [B,t,dk], what keys are computed from.
      values: [B,t,dv], what values are computed from: the same source, unless a caller has two.
      valid: [B,t] bool, True at real tokens; None means all are.
      positions: [t] or [B,t].
      memory: the one that the tokens follow; None for the first.
      ordered: whether their positions rise from each to the next; they may not where each has its own.
    """

    keys: jax.Array
    values: jax.Array
    valid: jax.Array | None
    positions: jax.Array
    memory: Any = None
    ordered: bool = True


@flax.struct.dataclass
class Mixed:
    """The state of an attention that mixes a sequence: the memory of its tokens, and
    `Reading.history`.
    """

    memory: Any
    history: Any


def divisors_near(number: int, target: int) -> str:
    """Returns the three divisors of a number that are nearest to `target`, as "2 or 3 or 4"."""
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    return " or ".join(map(str, sorted(sorted(divisors, key=lambda n: abs(n - target))[:3])))


def head_width(name: str, width: int, heads: int, label: str = "width") -> int:
    """Returns the width of a head, width / heads; raises UserError if heads do not divide it, with
    the `name` of the mechanism and `label` for what `width` is called.

    Raises:
      UserError: heads that do not divide it.
    """
    if heads < 1 or width % heads:
        raise UserError(
            f"{name}: {label}={width} is not divisible by heads={heads}; heads could be"
            f" {divisors_near(width, heads)}"
        )
    return width // heads


OPTIONAL: dict[str, dict[str, object]] = {
    "remember": {"positions": 0},
    "remember_pairs": {"positions": 0},
    "read": {"weights": False, "history": None},
}
"""Methods, and the arguments of theirs that a mechanism may leave out, with the only value that it
supports then."""


def skip_defaults(method: Callable[..., Any], defaults: dict[str, object]) -> Callable[..., Any]:
    """Returns a wrapper of `method` that can be called with every argument that `defaults` names:
    it passes on only the arguments whose value is not the default there, or for which the method
    has another default. So the method need not take them, and a transformation such as `nn.remat`
    does not trace them. The attribute `left_out` names the arguments that its definition leaves
    out.
    """
    parameters = inspect.signature(method).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    absent = defaults.keys() - parameters.keys()
    equal = {n for n in defaults.keys() - absent if parameters[n].default is defaults[n]}

    def is_default(name: str, value: object) -> bool:
        return isinstance(value, int | None) and value == defaults[name]

    @functools.wraps(method)
    def complete(self: Attention, *args: Any, **kwargs: Any) -> Any:
        """Calls `method` with the given arguments, but for named ones that have their default and
        need not be passed.
        """
        used = {
            name: value
            for name, value in kwargs.items()
            if name not in absent | equal or not is_default(name, value)
        }
        return method(self, *args, **used)

    complete.left_out = set() if takes_any else absent  # type: ignore[attr-defined]
    return complete


class Attention(Mixer):
    """Base of every mechanism: a mixer that can also attend to another sequence. Its fields are its
    whole configuration.

    A subclass declares `capabilities` and implements `read` and `arrays`, or in its place `remember`
    and, if it declares a cache, `extend`. Dropout is on exactly if the caller passes a "dropout"
    random stream.

    Attributes:
      width: d, the width of the context; the system that uses the mechanism sets it, not the
        config.

    Attributes of the class:
      memory_class: the memory of a mechanism that implements `arrays`.
      sums_to: see `rows`; None where the alignment decides.
    """

    memory_class: ClassVar[type[Memory]] = Memory
    sums_to: ClassVar[Rows | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Wraps the methods of each subclass that `OPTIONAL` names, its own and inherited from a
        mixin, by `skip_defaults`, so that callers may pass, by keyword and with their defaults,
        optional arguments that their definitions leave out.
        """
        for name, defaults in OPTIONAL.items():
            owner = next(base for base in cls.__mro__ if name in vars(base))
            if owner is cls or not issubclass(owner, Attention):
                setattr(cls, name, skip_defaults(vars(owner)[name], defaults))
        super().__init_subclass__(**options)

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> Any:
        """Project a source once to a `Memory`. Every array of it has leading axis B, except numbers
        that all rows share.

        Args:
          source: [B,Tk,ds].
          valid: [B,Tk] bool, True at real tokens; None means all are.
          capacity: slots to reserve (>= Tk), so that the memory can be extended; None means exactly
            Tk.
          positions: see `Where`; not 0 for a part of a sequence. A mechanism without this argument
            works for sequences that begin at 0.
        """
        return self.remember_pairs(source, source, valid, capacity, positions=positions)

    def read(
        self,
        query: jax.Array,
        memory: Any,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Attend from query [B,Tq,dq] to a memory. The last query has the position of the last
        written slot, unless the view has positions. `view.onto(memory, query)` says which query may
        see which key.

        `weights`: return the weights too, even if no maps are being collected. A slot that uses
          them says so in its `Need`. A mechanism without this argument works in all other slots.

        `history`: the `history` of the previous reading; `initial_history(memory)` or None for the
          first look at this memory. Only mechanisms that declare `history` need this argument.
        """
        raise NotImplementedError

    def initial_history(self, memory: Any) -> Any:
        """Returns the `history` before the first look at a memory, with the structure and the
        shapes of every later one; None if no look depends on earlier ones, as in this base.
        """
        return None

    def extend(self, memory: Any, source: jax.Array, valid: jax.Array | None = None) -> Any:
        """Append source [B,t,ds] to a memory with spare capacity; the caller guarantees `length + t
        <= capacity`.
        """
        return self.extend_pairs(memory, source, source, valid)

    def begin(self, rows: int, room: int, dtype: Any, window: int | None = None) -> Mixed:
        """Returns the `Mixed` state before the first token: an empty memory for `rows` texts with
        `room` slots, or a ring of `window` slots if that is fewer and the mechanism `forgets`, and
        the history before the first look. See `Mixer.begin`.

        Args:
          rows, room, dtype: see `Mixer.begin`.
          window: w: no query will see a key that stands w or more before it. If the mechanism
            `forgets` and more than w tokens may follow, the memory is a ring of w slots.
        """
        rings = window is not None and window < room and self.forgets()
        slots = window if rings else room
        memory = self.remember(jnp.zeros((rows, 0, self.width), dtype), capacity=slots)
        return Mixed(memory.as_ring() if rings else memory, self.initial_history(memory))

    @nn.nowrap
    def forgets(self) -> bool:
        """Returns whether under a window of w the last w keys are all that the mechanism needs, so
        that older ones may be dropped: it and the mechanism inside it, if any, declare `window`,
        its score uses no earlier looks, and its alignment no earlier looks, positions or lengths.
        """
        parts: dict[str, Any] = {
            table.kind: made(table, getattr(self, name)) for name, table in self.parts.items()
        }
        if "mechanism" in parts and not parts["mechanism"](width=1, parent=None).forgets():
            return False
        if "score" in parts and parts["score"](parent=None).looks_back:
            return False
        alignment: Any = kind(parts["alignment"]) if "alignment" in parts else None
        ordered = alignment is not None and (alignment.form == "look" or alignment.looks_at)
        return self.capabilities.window and not ordered

    def mix(
        self, x: jax.Array, view: View = CAUSAL, state: Mixed | None = None
    ) -> tuple[jax.Array, Mixed]:
        """Appends x [B,T,d] to the memory in `state` (to a new one if None), attends from x to it
        under the view, and returns the context [B,T,d] and the new `Mixed` state; also sows
        auxiliary losses. See `Mixer.mix`. The auxiliary losses go to the collection "losses" while
        that is mutable, but not during initialization.
        """
        valid = view.valid
        if state is None:  # a whole text stands where the view says
            positions = 0 if view.positions is None else view.positions
            memory = self.remember(x, valid, positions=positions)
            history = self.initial_history(memory)
        else:
            memory, history = self.extend(state.memory, x, valid), state.history
        reading = self.read(x, memory, view, history=history)
        if reading.losses and not self.is_initializing():
            self.sow(LOSSES, "looks", reading.losses)
        if isinstance(memory, Memory):
            memory = memory.settled()
        return reading.context, Mixed(memory, reading.history)

    def remember_pairs(
        self,
        keys: jax.Array,
        values: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> Any:
        """Creates a memory as `remember` does, with its arguments, but computes keys and values
        from two arrays, `keys` [B,Tk,dk] and `values` [B,Tk,dv].
        """
        where, ordered = token_positions(positions, keys.shape[1]), jnp.ndim(positions) < 2
        arrays = self.arrays(Tokens(keys, values, valid, where, ordered=ordered))
        return first_memory(self.memory_class, keys, valid, capacity, positions, **arrays)

    def extend_pairs(
        self, memory: Any, keys: jax.Array, values: jax.Array, valid: jax.Array | None = None
    ) -> Any:
        """Appends to a memory as `extend` does, with keys [B,t,dk] and values [B,t,dv]."""
        tokens = Tokens(keys, values, valid, memory.following(keys.shape[1]), memory)
        return memory.appended(valid, **self.arrays(tokens))

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """What a `memory_class` keeps of tokens, [B,n,t,...] by field. A mechanism that computes the
        same of first tokens and of later ones needs no `remember` and `extend` beside it.
        """
        raise NotImplementedError

    def __call__(
        self,
        query: jax.Array,
        source: jax.Array,
        view: View = EVERYTHING,
        valid: jax.Array | None = None,
        weights: bool = False,
    ) -> Reading:
        """Returns `read(query, remember(source, valid), view, weights)`."""
        return self.read(query, self.remember(source, valid), view, weights=weights)

    @nn.nowrap
    def rows(self) -> Rows:
        """Returns what the weights of a query that may see a key sum to ("one", "at most one" or
        "any"): the field `sums_to` if it is set, else "one" if the mechanism has no alignment part,
        else what its alignment says. An analysis that needs a distribution checks this.
        """
        table = self.parts.get("alignment")
        if self.sums_to or table is None:
            return self.sums_to or "one"
        alignment: Any = kind(made(table, self.alignment))
        return alignment.sums_to  # type: ignore[no-any-return]

    @nn.nowrap
    def side_by_side(self) -> int:
        """Returns how many vectors of the width of the source the context concatenates, 1 for one
        vector of any width; this base returns 1.
        """
        return 1

    def capture(
        self, weights: jax.Array | None, memory: Memory | None = None, requested: bool = False
    ) -> jax.Array | None:
        """Records weights [B,H,Tq,Tk], without the empty slots of `memory`, under this module's
        name if maps are being collected, and returns them so, or unchanged if `requested`, or None
        if neither, or if weights are None.

        A map leaves out the empty slots of `memory`. If the memory is an argument of a compiled
        program, its length is not known: the empty slots then stay, with weight 0, and the caller
        cuts them off, `weights[..., :length]`. Requested weights always have all slots, so that
        their shape is fixed. Those of a ring stay in the order of its slots. During initialization
        nothing is recorded.
        """
        collected = self.is_collecting()
        if weights is None or not (collected or requested):
            return None
        recorded = weights
        ring = getattr(memory, "ring", 0)
        length = None if memory is None or ring else concrete_value(memory.length)
        if length is not None and length.max(initial=0) < weights.shape[-1]:
            recorded = weights[..., : int(length.max(initial=0))]
        if collected:
            self.record(recorded)
        return weights if requested else recorded
