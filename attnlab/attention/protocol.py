"""The one signature every attention mechanism keeps, and the declaration of what it can do.

Axis letters: B batch, Tq queries, Tk keys, H heads, d context width, dq/ds widths of query and
source.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.cards import Card, Cost
from attnlab.attention.kernels import KERNELS, WEIGHTLESS
from attnlab.attention.view import EVERYTHING, View, Where, known, standing
from attnlab.attention.visibility import Causal, Everything, Rule
from attnlab.config.registry import Table, kind, made
from attnlab.errors import UserError

# the variable collection to which systems put the auxiliary losses of their looks, while it is
# mutable
LOSSES = "losses"
# the variable collection that holds attention weights; making it mutable is the one switch for maps
MAPS = "maps"

Rows = Literal["one", "at most one", "any"]  # what weights sum to over the keys
_SUMS: Mapping[Rows, str] = {
    "one": "one",
    "at most one": "at most one",
    "any": "anything",
}  # the stricter the earlier; as messages say it


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
    """

    context: jax.Array
    weights: jax.Array | None = None
    losses: dict[str, jax.Array] = flax.struct.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a mechanism can be asked for. Anything not declared is refused when the config is built.

    Attributes:
      roles: "self" (query and source are the same sequence), "cross" (they are not).
      directions: "causal" (a query sees no later key), "bidirectional".
      padding: honours `valid`.
      dense: honours an arbitrary rule in its view.
      dropout: drops attention weights in training.
      cache: `extend` works, so that decoding costs one step per token.
      maps: "exact" weights, "implied" by a linear form, "spatial" gates, or "none".
      positions: the position hooks it lets in ("embedding", "query_key", "score").
      max_length: longest source, None without a limit.
      values: `remember_pairs` works (and with a cache `extend_pairs`): what is taken need not be
        what is looked at.
      unprojected: the context is a weighted sum of the values as they are handed over, so that it
        stands in their place.
      own: the context has a part of the query merged in, so that a system need not add it.
    """

    roles: frozenset[str] = frozenset({"self", "cross"})
    directions: frozenset[str] = frozenset({"causal", "bidirectional"})
    padding: bool = True
    dense: bool = True
    dropout: bool = False
    cache: bool = True
    maps: Literal["exact", "implied", "spatial", "none"] = "exact"
    positions: frozenset[str] = frozenset({"embedding"})
    max_length: int | None = None
    values: bool = False
    unprojected: bool = False
    own: bool = False


@dataclasses.dataclass(frozen=True)
class Need:
    """What a system asks of the mechanism in one of its slots; same words as `Capabilities`.

    `stepwise`: queries come one by one, at least in decoding, so that no weight may depend on the
    queries before. `heads`: how many heads the rule tells apart, 1 for none. `places`: what
    is known of where tokens stand: how far from the "first" one; "trees" too, of dependencies; or
    only how far apart query and key are, for the memory is "adrift". `values`: keys and values come
    apart; "unprojected": and the context has to be a sum of the values as they are handed over,
    with weights that sum to at most one. `weights`: the system reads with `weights=True`;
    "distribution": and takes them for probabilities, so that they have to sum to one.
    """

    role: Literal["self", "cross"]
    direction: Literal["causal", "bidirectional"] = "bidirectional"
    padding: bool = True
    cache: bool = False
    maps: bool = True
    positions: frozenset[str] = frozenset()
    stepwise: bool = False
    dense: bool = False
    heads: int = 1
    values: bool | Literal["unprojected"] = False
    places: Literal["first", "trees", "adrift"] = "first"
    weights: bool | Literal["distribution"] = False

    def under(self, rule: Rule) -> Need:
        """This need where the slot has the visibility `rule` besides."""
        if isinstance(rule, Everything):
            return self
        at = jax.ShapeDtypeStruct((1,), jnp.int32)
        heads = jax.eval_shape(rule.allows, at, at).shape[1]
        direction = "causal" if rule.is_causal else self.direction
        return dataclasses.replace(
            self, dense=not isinstance(rule, Causal), heads=heads, direction=direction
        )

    def check(self, mechanism: type, where: str, chosen: Mapping[str, Any] | None = None) -> None:
        """Raise `UserError` naming mechanism, request and what would work, if the mechanism does
        not declare it.

        Args:
          mechanism: the class.
          where: the slot's place in the config.
          chosen: fields of the mechanism that are set; its parts must go together, and with the
            slot.
        """
        can: Capabilities = mechanism.capabilities  # type: ignore[attr-defined]
        heads = (chosen or {}).get("heads", getattr(mechanism, "heads", 1))
        asked = [
            (self.role in can.roles, f"the role {self.role!r}", f"it offers {_listed(can.roles)}"),
            (
                self.direction in can.directions,
                f"the direction {self.direction!r}",
                f"it offers {_listed(can.directions)}",
            ),
            (can.padding or not self.padding, "padding", "it wants sequences of one length"),
            (can.cache or not self.cache, "cached decoding", "choose a mechanism with cache=True"),
            (
                can.values or not self.values,
                "values apart from keys",
                "choose 'single', 'multihead' or another with values=True",
            ),
            (
                can.unprojected or self.values != "unprojected",
                "values as they are (it projects them)",
                "choose 'single'",
            ),
            (can.maps != "none" or not self.maps, "attention maps", "choose a mechanism with maps"),
            (
                can.dense or not self.dense,
                "a visibility of its own",
                "choose 'full' or a mechanism with dense=True",
            ),
            (self.heads in (1, heads), f"a visibility of {self.heads} heads", f"it has {heads}"),
            (
                self.positions <= can.positions,
                f"position hooks {_listed(self.positions)}",
                f"it offers {_listed(can.positions)}",
            ),
            (
                hands_out_weights(mechanism) or not self.weights,
                "weights as a result",
                _lacking(mechanism),
            ),
        ]
        for granted, request, instead in asked:
            if not granted:
                raise UserError(
                    f"{where}: {mechanism.__name__} does not support {request}; {instead}"
                )
        parts: Mapping[str, Table] = getattr(mechanism, "parts", {})
        of = {
            name: made(table, (chosen or {}).get(name, getattr(mechanism, name)))
            for name, table in parts.items()
        }
        for name in (
            name for name, table in parts.items() if table.kind == "mechanism"
        ):  # one that looks several times, say
            self.check(kind(of[name]), f"{where}.{name}", getattr(of[name], "keywords", {}))
        if "alignment" in of:
            _check_alignment(kind(of["alignment"]), self, f"{where}.alignment")
        if "score" in of and self.places == "adrift" and of["score"](parent=None).places:
            name = kind(of["score"]).__name__
            raise UserError(
                f"{where}.score: {name} looks at positions, but here the first one is nowhere in"
                " particular; choose 'additive'"
            )
        if "positions" in of and kind(of["positions"]).hooks:
            _check_positions(mechanism, of, self.role, f"{where}.positions")
            if kind(of["positions"]).trees and self.places != "trees":
                name = kind(of["positions"]).__name__
                raise UserError(
                    f"{where}.positions: {name} wants dependency trees, which are not known here;"
                    " choose 'shaw'"
                )
        kernel = (chosen or {}).get("kernel", getattr(mechanism, "kernel", "auto"))
        _check_kernel(mechanism, kernel, of, f"{where}.kernel")
        if self.weights and not KERNELS.resolve(kernel).weighs:
            raise UserError(f"{where}.kernel: kernel {kernel!r} {WEIGHTLESS}")
        if self.weights == "distribution" or self.values == "unprojected":
            most: Rows = "one" if self.weights == "distribution" else "at most one"
            _check_rows(
                mechanism(width=1, **(chosen or {}), parent=None).rows(), most, mechanism, where
            )


def hands_out_weights(mechanism: Any) -> bool:
    """Whether a class of mechanisms can be read with `weights=True`: its maps are exact, and its
    `read` knows the argument.
    """
    known = (
        inspect.signature(mechanism.read).parameters.values() if hasattr(mechanism, "read") else ()
    )
    takes = any(one.name == "weights" or one.kind is one.VAR_KEYWORD for one in known)
    return bool(mechanism.capabilities.maps == "exact" and takes)


def _lacking(mechanism: Any) -> str:
    """What a mechanism would have to be to hand out weights."""
    maps = mechanism.capabilities.maps
    if maps != "exact":
        return f"its maps are {maps!r}, choose a mechanism whose maps are 'exact'"
    return (
        "give its `read` an argument `weights` and pass it on to `capture`, or choose 'single' or"
        " 'multihead'"
    )


def _check_rows(found: Rows, wanted: Rows, mechanism: Any, where: str) -> None:
    """Do the weights of a query sum to no more than this slot can use?"""
    if list(_SUMS).index(found) > list(_SUMS).index(wanted):
        sums = (
            f"the weights of {mechanism.__name__} sum to {_SUMS[found]}, here they must sum to"
            f" {_SUMS[wanted]}"
        )
        raise UserError(
            f"{where}: {sums}; choose 'single' or 'multihead' with the alignment 'softmax'"
        )


def _check_alignment(alignment: Any, need: Need, where: str) -> None:
    """An alignment inside a mechanism: does it want what this slot cannot give?"""
    name = alignment.__name__
    if alignment.form == "look" and need.stepwise:
        raise UserError(
            f"{where}: {name} needs all queries of a sequence at once, here they come one by one;"
            " choose 'softmax'"
        )
    if "lengths" in alignment.looks_at and need.direction == "causal":
        raise UserError(
            f"{where}: {name} looks at the length of the source, which tells of the future; choose"
            " 'softmax'"
        )


def _check_kernel(mechanism: Any, kernel: str, of: Mapping[str, Any], where: str) -> None:
    """A kernel inside a mechanism: does the mechanism leave it the weights, and can it make those
    of the alignment?
    """
    offered = frozenset(getattr(mechanism, "kernels", (kernel,)))
    if kernel not in offered:
        raise UserError(
            f"{where}: {mechanism.__name__} works on whole maps, which {kernel!r} never has; choose"
            f" {_listed(offered)}"
        )
    reason = KERNELS.resolve(kernel)().misfit(kind(of["alignment"])) if "alignment" in of else None
    if reason:
        raise UserError(f"{where}: kernel {kernel!r} {reason}")


def _check_positions(mechanism: Any, of: Mapping[str, Any], role: str, where: str) -> None:
    """A position scheme inside a mechanism: are its hooks offered, does the score let itself be
    turned, is there one sequence?
    """
    scheme, offered = kind(of["positions"]), mechanism.capabilities.positions
    if "embedding" in scheme.hooks:
        raise UserError(
            f"{where}: {scheme.__name__} acts on embeddings; set it as the system's positions,"
            " outside the mechanism"
        )
    if scheme.hooks - offered:
        hooks = _listed(scheme.hooks - offered)
        raise UserError(
            f"{where}: {scheme.__name__} acts on {hooks}; {mechanism.__name__} offers"
            f" {_listed(offered)}"
        )
    if role == "cross":
        raise UserError(
            f"{where}: {scheme.__name__} relates positions of one sequence; between two choose"
            " 'none'"
        )
    score = of["score"](parent=None) if "score" in of else None
    if "query_key" in scheme.hooks and score is not None and not score.rotary:
        raise UserError(
            f"{where}: {scheme.__name__} turns queries and keys, {type(score).__name__} does not"
            " allow it; choose 'scaled_dot'"
        )


def _listed(words: frozenset[str]) -> str:
    return ", ".join(repr(word) for word in sorted(words)) or "none"


class Attention(nn.Module):
    """Base of every mechanism; its fields are its whole configuration.

    A subclass declares `capabilities` and implements `remember`, `read` and, if it declares a
    cache, `extend`. Its `card` says where it comes from and `cost` what it costs. Dropout is on
    exactly when the caller passes a "dropout" random stream.

    Attributes:
      width: d, the width of the context; the system that uses the mechanism sets it, not the
        config.
    """

    width: int

    capabilities: ClassVar[Capabilities]
    card: ClassVar[Card]

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
    ) -> Reading:
        """Attend from query [B,Tq,dq] to a memory. The last query stands at the memory's last
        written slot, unless the view has positions. `view.onto(memory, query)` is all there is to
        know of who sees whom.

        `weights`: hand out the weights too, whether or not maps are being collected; a slot that
        wants them says so in its `Need`. A mechanism whose `read` lacks the argument does wherever
        they are not asked for.
        """
        raise NotImplementedError

    def extend(self, memory: Any, source: jax.Array, valid: jax.Array | None = None) -> Any:
        """Append source [B,t,ds] to a memory with spare capacity; the caller keeps `length + t <=
        capacity`.
        """
        raise NotImplementedError

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


def asking(weights: bool) -> dict[str, bool]:
    """Arguments of a `read` that asks for weights, or none at all, which mechanisms that know no
    such argument understand too.
    """
    return {"weights": True} if weights else {}


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
