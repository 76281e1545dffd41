"""The recurrences in chunks of tokens: matrix products within and between chunks, and a scan over
chunks for the state.

With b the running sum of g in a chunk, the state after step t of a chunk that begins with S_0 is

    S_t = Diag(e^{b_t}) S_0 + sum_{j<=t} Diag(e^{b_t - b_j}) w_j n_j^T,        n_t = u_t - r_t^T Diag(e^{g_t}) S_{t-1}

and the same expansion in n_t gives (I + L) N = U - (R * e^b) S_0, L_tj = sum_d r_td w_jd e^{b_td - b_jd},
j < t. N is linear in S_0, so a chunk is an affine map of the state, with all of it but S_0 known for
all chunks at once:

    O = Q' S_0 + O'            S_C = Diag(e^{b_C}) S_0 - X S_0 + Y

Only the second runs chunk after chunk. Source: S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim,
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length", NeurIPS 2024 (the WY
form); S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", ICLR 2025 (with gates).

Axis letters: B batch, H heads, n chunks, C tokens of a chunk, D rows of the state, E columns.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.layers.recurrence.pairs import pairs
from attnlab.layers.recurrence.triangular import EXACT, inverse

Gate = jax.Array | None


@flax.struct.dataclass
class Chunks:
    """Every chunk as an affine map of the state before it.

    Attributes:
      asked: Q' [B,H,n,C,D].
      found: O' [B,H,n,C,E].
      decay: e^{b_C} [B or 1,H,n,1,1 or D]; None for no gates.
      moved: X [B,H,n,D,D]; None if nothing is erased.
      added: Y [B,H,n,D,E].
    """

    asked: jax.Array
    found: jax.Array
    decay: Gate
    moved: jax.Array | None
    added: jax.Array

    def outputs(self, state: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """O [B,H,n C,E] and the state after the last chunk, from the state [B,H,D,E] before the
        first; None for zeros.
        """
        count, rows = self.found.shape[2:4]
        if count == 1:
            last = self.added[:, :, 0]
            if state is None:
                return self.found[:, :, 0], last
            last = last + self._kept(state, *self._at(0))
            return self.found[:, :, 0] + self.asked[:, :, 0] @ state, last
        first = jnp.zeros_like(self.added[:, :, 0]) if state is None else state

        def step(
            state: jax.Array, now: tuple[Gate, Gate, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            decay, moved, added = now
            return self._kept(state, decay, moved) + added, state

        over = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), (self.decay, self.moved, self.added))
        last, before = jax.lax.scan(step, first, over)
        o = self.found + self.asked @ jnp.moveaxis(before, 0, 2)
        return o.reshape(*o.shape[:2], count * rows, o.shape[-1]), last

    def _at(self, chunk: int) -> tuple[Gate, Gate]:
        return tuple(None if x is None else x[:, :, chunk] for x in (self.decay, self.moved))  # type: ignore[return-value]

    @staticmethod
    def _kept(state: jax.Array, decay: Gate, moved: jax.Array | None) -> jax.Array:
        """Diag(e^{b_C}) S - X S."""
        kept = state if decay is None else decay.swapaxes(-1, -2) * state
        return kept if moved is None else kept - moved @ state


def delta_chunks(q: jax.Array, w: jax.Array, u: jax.Array, g: Gate, r: Gate) -> Chunks:
    """The chunks of `recur`, from arrays [B,H,n,C,...]; g [B or 1,H,n,C,1 or D]."""
    b = None if g is None else jnp.cumsum(g, axis=-2)
    seen = pairs(q, w, b)
    asked, to_end = _grown(q, b), _to_end(w, b).swapaxes(-1, -2)
    if r is None:
        return Chunks(asked, seen @ u, _last(b), None, to_end @ u)
    solve = inverse(pairs(r, w, b, strict=True, precision=EXACT))
    own, erased = solve @ u, solve @ _grown(r, b)
    return Chunks(asked - seen @ erased, seen @ own, _last(b), to_end @ erased, to_end @ own)


def dplr_chunks(
    q: jax.Array, k: jax.Array, v: jax.Array, g: Gate, a: jax.Array, b: jax.Array
) -> Chunks:
    """The chunks of `recur_dplr`, likewise. With Z_t = a_t^T S_{t-1}, which sees the state before
    the gate of step t, (I - A_ab) Z = (a * e^{c - g}) S_0 + A_ak V, c the running sum of g.
    """
    c = None if g is None else jnp.cumsum(g, axis=-2)
    before = None if c is None or g is None else c - g
    solve = inverse(-pairs(a, b, c, before, strict=True, precision=EXACT))
    of_state = solve @ _grown(a, before)
    own = solve @ (pairs(a, k, c, before, strict=True, precision=EXACT) @ v)
    seen, moved = pairs(q, b, c), _to_end(b, c).swapaxes(-1, -2)
    return Chunks(
        _grown(q, c) + seen @ of_state,
        pairs(q, k, c) @ v + seen @ own,
        _last(c),
        -(moved @ of_state),
        _to_end(k, c).swapaxes(-1, -2) @ v + moved @ own,
    )


def _grown(x: jax.Array, b: Gate) -> jax.Array:
    """x e^b."""
    return x if b is None else x * jnp.exp(b)


def _to_end(x: jax.Array, b: Gate) -> jax.Array:
    """x_j e^{b_C - b_j}."""
    return x if b is None else x * jnp.exp(b[..., -1:, :] - b)


def _last(b: Gate) -> Gate:
    """e^{b_C}."""
    return None if b is None else jnp.exp(b[..., -1:, :])
