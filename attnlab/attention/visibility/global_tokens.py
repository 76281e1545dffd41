"""Longformer: a sliding window, and a few global tokens that see all and are seen by all (Beltagy
et al. 2020).

    i sees j   if   |i - j| <= w / 2   or   i is global   or   j is global

w is the whole window, w / 2 on each side, beside the query itself: w + 1 keys. With dilation r the
window is j = i + r m, |m| <= w / 2. Cost in a kernel that skips blocks: 4 T (w + 1 + g) d FLOPs for
the g global keys, and 4 g T d for the global queries. Source: I. Beltagy, M. E. Peters, A. Cohan,
"Longformer: The Long-Document Transformer", 2020, section 3.1. This is the rule only; it
has no separate projections of global queries and keys.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.visibility.given import looked_up
from attnlab.attention.visibility.rule import Rule, dilated
from attnlab.errors import UserError


@flax.struct.dataclass
class Global(Rule):
    """Global tokens see everything and are seen by everything; a pair of two others is not allowed.

    Attributes:
      positions: static positions of global tokens.
      marked: [B or 1,T] bool, further global tokens by position (True is global; positions outside
        are not); None for none.
    """

    positions: tuple[int, ...] = flax.struct.field(pytree_node=False, default=())
    marked: jax.Array | None = None

    def __post_init__(self) -> None:
        """Checks that `positions` is a tuple; raises UserError if not (arrays belong in `marked`)."""
        if not isinstance(self.positions, tuple):
            raise UserError(
                f"Global: positions={self.positions!r} must be a tuple of static integers; arrays"
                " of [B,T] bool go to marked="
            )

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        return self._globals(i)[:, None, :, None] | self._globals(j)[:, None, None, :]

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return self.marked is not None or any(i0 <= p < i1 or j0 <= p < j1 for p in self.positions)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        positions = set(self.positions)
        return positions.issuperset(range(i0, i1)) or positions.issuperset(range(j0, j1))

    def _globals(self, positions: jax.Array) -> jax.Array:
        """Returns whether the tokens at positions [t] or [B,t] are global, listed in `positions` or
        True in `marked`: bool [B or 1,t].
        """
        listed = jnp.any(positions[..., None] == np.array(self.positions, np.int32), axis=-1)
        listed = listed if positions.ndim == 2 else listed[None]
        if self.marked is None:
            return listed
        marks, exists = looked_up(self.marked, positions, axis=1)
        return listed | (marks & exists)


def half_of(window: int) -> int:
    """Returns how many keys a Longformer's window of `window` keys has on each side of the query;
    raises UserError if it is odd or negative.
    """
    if window < 0 or window % 2:
        raise UserError(
            f"longformer: window={window} is to be halved; the nearest even one is"
            f" {max(window - 1, 0)}"
        )
    return window // 2


def longformer(window: int, tokens: tuple[int, ...] | jax.Array = (), dilation: int = 1) -> Rule:
    """Builds Longformer's rule: a dilated window of `window` keys beside the query's own, and
    global `tokens` (static positions, or [B,T] bool); raises UserError if the window is odd or
    negative.
    """
    rule = Global(tokens) if isinstance(tokens, tuple) else Global(marked=tokens)
    return dilated(half_of(window) + 1, dilation) | rule
