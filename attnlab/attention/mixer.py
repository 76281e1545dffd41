"""The signature of every layer that moves information along a sequence: softmax attention, and
layers that carry a state from token to token.

    y, state = mixer.mix(x, view)                 the whole text; `state` is the state at its end
    state    = mixer.begin(rows, room, dtype)     before the first token
    y, state = mixer.mix(piece, view, state)      a piece; y does not depend on how the text is cut

While the collection "maps" is mutable, a mixer records a map under its own name. Its kind says what
the numbers of a map are: see `Kind`.

Axis letters: B batch, T tokens of a piece, d width; in maps H heads, Tq queries, Tk keys, D width of
a value.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility.rule import Everything
from attnlab.config.registry import Parts
from attnlab.errors import UserError
from attnlab.layers.dense import inner_dtype

# the variable collection for maps; they are recorded exactly while it is mutable
MAPS = "maps"
Kind = Literal["exact", "effective", "sensitivity"]
"""What the numbers of a map are:

    exact         the weights that stand in the equations of a layer: the context of a query is their sum of the values
    effective     the same sum, context = A v, but the layer never has A: it follows from a recurrence, features or
                  projections; entries may be below 0, and rows sum to anything. v is what the layer sums up, which a
                  short convolution before it may have mixed already. What a state brings from before the piece has
                  no column
    sensitivity   where no A exists: S_ij = || d y_i / d x_j ||, the Frobenius norm over the channels of output i and
                  input j; what a small change of the input would do here, not a weight
"""


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a mechanism can do. A system that needs something else refuses the mechanism when the
    config is built. The fields stay on one level, though there are 16: each is a promise that a slot
    may need alone, and a class states only those in which it differs from the defaults.

    Attributes:
      roles: "self" (query and source are the same sequence), "cross" (they are not).
      directions: "causal" (a query sees no later key), "bidirectional".
      padding: honours `valid`.
      dense: honours any rule in its view.
      dropout: drops attention weights in training.
      cache: a text can be read piece by piece, so that decoding costs one step per token: of an
        attention `extend` works, unless it is one that does not grow.
      grows: of an attention: queries may read a text while it grows. False: its causal form only
        mixes a text (`begin` and `mix`), and its memory is of a whole source.
      maps: the `Kind` of its maps; "none" if it records none.
      positions: the hooks of position schemes that it supports ("embedding", "query_key", "score").
      max_length: longest source; None for no limit.
      values: `remember_pairs` works (and with a cache `extend_pairs`): keys and values may come
        from two arrays.
      unprojected: the values are not projected: the context is a weighted sum of the values that
        are passed in.
      own: the context already contains the query, so a system need not add it.
      state: how the state grows with a sequence: "tokens" (something is kept of each token) or
        "constant".
      history: `read` takes and returns what depends on earlier looks, so that parts that use it (a
        score with `looks_back`, an alignment of the form "look") work one query at a time.
      window: under a window the memory may be a ring of the last keys (`memories.py`): it grows by
        `Memory.appended` alone, its arrays have the slots on axis 2, and `read` knows a key by its
        position, not by its slot.
    """

    roles: frozenset[str] = frozenset({"self", "cross"})
    directions: frozenset[str] = frozenset({"causal", "bidirectional"})
    padding: bool = True
    dense: bool = True
    dropout: bool = False
    cache: bool = True
    grows: bool = True
    maps: Kind | Literal["none"] = "exact"
    positions: frozenset[str] = frozenset({"embedding"})
    max_length: int | None = None
    values: bool = False
    unprojected: bool = False
    own: bool = False
    state: Literal["tokens", "constant"] = "tokens"
    history: bool = False
    window: bool = False


class Mixer(nn.Module):
    """Base of every mixer; its fields are its whole configuration.

    A subclass declares `capabilities` and implements `begin` and `mix`; its docstring has a card,
    see `layers/cards.py`. One that can also attend to another sequence is an `Attention`. Dropout
    is on exactly if the caller passes a "dropout" random stream.

    Attributes:
      width: d, the width of the output; the system sets it, not the config.

    Attributes of the class:
      parts: fields that hold a component, and the tables of these.
    """

    width: int

    parts: ClassVar[Parts] = {}
    capabilities: ClassVar[Capabilities]

    def begin(self, rows: int, room: int, dtype: Any) -> Any:
        """The state before the first token of `rows` texts. Its arrays have leading axis `rows`,
        except scalars.

        Args:
          rows: B.
          room: how many tokens may follow; a "constant" state does not depend on it.
          dtype: of the tokens.
        """
        raise NotImplementedError

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Any]:
        """x [B,T,d] to y [B,T,d], and the state after the last token.

        Args:
          x: a piece of the texts.
          view: who sees whom; `view.valid` [B,T] tells which tokens of the piece are real.
          state: the state after the previous piece; None if x is the whole text.
        """
        raise NotImplementedError

    def is_collecting(self) -> bool:
        """Returns whether maps are to be recorded: "maps" is mutable, and this is not `init`."""
        return not self.is_initializing() and self.is_mutable_collection(MAPS)

    def record(self, weights: jax.Array) -> None:
        """Records a map [B,H,Tq,Tk] of the declared kind under the name of this module."""
        kind = self.capabilities.maps
        self.sow(MAPS, "weights" if kind in ("exact", "none") else kind, weights)

    def sum_values(
        self,
        context_of: Callable[[jax.Array, Any], tuple[jax.Array, Any]],
        values: jax.Array,
        state: Any = None,
        micro: int = 1,
    ) -> tuple[jax.Array, Any]:
        """Returns `context_of(values, state)`, a pair of a context and the next state; while maps
        are recorded (unless the class declares "sensitivity" maps), also records the matrix A
        [B,H,Tq,Tk] with context = A values, computed by another call of `context_of` on the rows of
        the identity.

        Args:
          context_of: values [B,H,Tk,D] and a state to the context [B,H,Tq,D] and the next state;
            linear in the values, with the same weights for every channel.
          values: v; other heads than those of the context if two sets of values stand in one array.
          state: None, or an array [B,H,n,D + k] with a column for each channel of the values, and k
            columns that are not of the values (such as a sum of weights).
          micro: m, values of each token: Tk = m T. Their maps stand side by side as heads,
            [B,H m,Tq,T].
        """
        if self.is_collecting() and self.capabilities.maps != "sensitivity":
            rows, heads, length, width = values.shape
            identity = jnp.eye(length, dtype=inner_dtype(values))
            identity = jnp.broadcast_to(identity, (rows, heads, length, length))
            if state is not None:
                nothing = jnp.zeros((*state.shape[:-1], length), state.dtype)
                blank = jnp.concatenate([nothing, state[..., width:]], axis=-1)
            matrix, _ = context_of(identity, None if state is None else blank)
            cut = matrix.reshape(*matrix.shape[:3], length // micro, micro)
            self.record(jnp.moveaxis(cut, 4, 2).reshape(rows, -1, *cut.shape[2:4]))
        return context_of(values, state)

    def record_sensitivity(self, x: jax.Array, view: View, state: Any) -> None:
        """Records, as this layer's map, the norms || d y_i / d x_j || [B,1,T,T] of y = mix(x, view,
        state) without dropout; does nothing unless maps are recorded and the class declares maps of
        the kind "sensitivity". It costs T d backward passes of the layer.
        """
        if not self.is_collecting() or self.capabilities.maps != "sensitivity":
            return
        from attnlab.layers.sensitivity import sensitivity

        alone, params = self.clone(parent=None), self.variables.get("params", {})

        def mixed(x: jax.Array) -> jax.Array:
            y: jax.Array = alone.apply({"params": params}, x, view, state, method="mix")[0]
            return y

        self.record(sensitivity(mixed, x)[:, None])


def no_rule(mixer: Mixer, view: View) -> None:
    """Raises UserError, naming the class of the mixer, if a view has segments or any rule but
    `Everything`, because the mixer mixes all real tokens of a row.

    Raises:
      UserError: the view has a rule, or segments.
    """
    if view.segments is not None or not isinstance(view.rule, Everything):
        raise UserError(
            f"{type(mixer).__name__} mixes all real tokens of a row: it honours no rule (causal, a"
            " window) and no texts that share a row; choose 'multihead', or the visibility 'full'"
            " and one text in a row"
        )
