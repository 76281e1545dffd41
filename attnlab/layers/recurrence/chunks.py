"""The recurrences in chunks of tokens: matrix products within and between chunks, and a scan over
chunks for the state.

With b the running sum of g in a chunk, the state after step t of a chunk that begins with S is

    S_t = Diag(e^{b_t}) S + sum_{j<=t} Diag(e^{b_t - b_j}) w_j n_j^T,        n_t = u_t - r_t^T Diag(e^{g_t}) S_{t-1}

and the same expansion in n_t gives, with P_ij = sum_d q_id w_jd e^{b_id - b_jd} for j <= i,

    (I + L) N = U - (R * e^b) S              L_tj = sum_d r_td w_jd e^{b_td - b_jd} for j < t
    O         = (Q * e^b) S + P N            S_C  = Diag(e^{b_C}) S + (W * e^{b_C - b})^T N

All but the products with S and N is known for every chunk before the scan. Where nothing is erased
N = U, and the scan is element by element. Source: S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim,
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length", NeurIPS 2024 (the WY
form); S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", ICLR 2025 (with gates).

Axis letters: B batch, H heads, n chunks, C tokens of a chunk, D rows of the state, E columns.
"""

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.layers.recurrence.pairs import pairs
from attnlab.layers.recurrence.triangular import EXACT, inverse

Part = jax.Array | None


@flax.struct.dataclass
class Correction:
    """N = M (A + R S), for recurrences whose writing depends on the state.

    Attributes:
      solve: M, [B,H,n,C,C].
      local: A, [B,H,n,C,E].
      erased: R, [B,H,n,C,D].
      read: what of N is in O, [B,H,n,C,C].
      to_end: what of N is in the state after the chunk, [B,H,n,D,C].
    """

    solve: jax.Array
    local: jax.Array
    erased: jax.Array
    read: jax.Array
    to_end: jax.Array


@flax.struct.dataclass
class Chunks:
    """Every chunk as a map of the state S before it.

        O = Q' S + O' + P N             S_C = Diag(e^{b_C}) S + Y + W N

    Attributes:
      queries: Q', [B,H,n,C,D].
      local: O', [B,H,n,C,E]; None for 0.
      decay: e^{b_C}, [B or 1,H,n,1 or D,1]; None for 1.
      added: Y, [B,H,n,D,E]; None for 0.
      correction: of N, P and W; None if there is no N.
    """

    queries: jax.Array
    local: Part
    decay: Part
    added: Part
    correction: Correction | None = None

    def outputs(self, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes the outputs o [B,H,n*C,E] of all chunks and the state after the last one, from
        the state [B,H,D,E] before the first.
        """
        count = self.queries.shape[2]
        if count == 1:
            last, stored = _step(state, jax.tree.map(lambda x: x[:, :, 0], self))
            states, written = jax.tree.map(lambda x: x[:, :, None], stored)
        else:
            chunks = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), _solve(self))
            last, stored = jax.lax.scan(_step, state, chunks)
            states, written = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), stored)
        o = self.queries @ states
        o = o if self.local is None else o + self.local
        if self.correction is not None:
            o = o + self.correction.read @ written
        return o.reshape(*o.shape[:2], count * o.shape[3], o.shape[4]), last


def _step(state: jax.Array, chunk: Chunks) -> tuple[jax.Array, tuple[jax.Array, Part]]:
    """Computes the state [B,H,D,E] after one chunk from the `state` before it; returns the new
    state, and a pair of the old state and the correction N [B,H,C,E] of the chunk (None if it has
    none).
    """
    next_state = state if chunk.decay is None else chunk.decay * state
    next_state = next_state if chunk.added is None else next_state + chunk.added
    if chunk.correction is None:
        return next_state, (state, None)
    correction = chunk.correction
    written = correction.local + correction.erased @ state
    written = written if correction.solve is None else correction.solve @ written
    return next_state + correction.to_end @ written, (state, written)


def _solve(chunks: Chunks) -> Chunks:
    """Returns a `Chunks` with what the scan over chunks needs (decay, additions and correction, the
    other fields None), in which the correction's M is multiplied into A and R for all chunks at
    once.
    """
    correction = chunks.correction
    if correction is not None:
        local, erased = correction.solve @ correction.local, correction.solve @ correction.erased
        correction = Correction(None, local, erased, None, correction.to_end)  # type: ignore[arg-type]
    return Chunks(None, None, chunks.decay, chunks.added, correction)  # type: ignore[arg-type]


def delta_chunks(q: jax.Array, w: jax.Array, u: jax.Array, g: Part, r: Part) -> Chunks:
    """Returns the chunked form (`Chunks`) of `recur` from its inputs (queries q, written keys w and
    values u, log gates g, erased keys r; g and r may be None), cut into n chunks of C tokens,
    [B,H,n,C,...]; g [B or 1,H,n,C,1 or D].
    """
    b = None if g is None else jnp.cumsum(g, axis=-2)
    read, to_end = pairs(q, w, b), _to_end(w, b)
    if r is None:
        return Chunks(_grown(q, b), read @ u, _last(b), to_end @ u)
    solve = inverse(pairs(r, w, b, strict=True, precision=EXACT))
    correction = Correction(solve, u, -_grown(r, b), read, to_end)
    return Chunks(_grown(q, b), None, _last(b), None, correction)


def dplr_chunks(
    q: jax.Array, k: jax.Array, v: jax.Array, g: Part, a: jax.Array, b: jax.Array
) -> Chunks:
    """Returns the chunked form (`Chunks`) of `recur_dplr` from its inputs (queries q, keys k,
    values v, log gates g or None, low-rank vectors a and b), cut into n chunks of C tokens,
    [B,H,n,C,...]. N_t = a_t^T S_{t-1} sees the state before the gate of step t: with c the running
    sum of g, (I - A_ab) N = (A * e^{c - g}) S + A_ak V.
    """
    c = None if g is None else jnp.cumsum(g, axis=-2)
    shifted = None if c is None or g is None else c - g
    solve = inverse(-pairs(a, b, c, shifted, strict=True, precision=EXACT))
    local = pairs(a, k, c, shifted, strict=True, precision=EXACT) @ v
    correction = Correction(solve, local, _grown(a, shifted), pairs(q, b, c), _to_end(b, c))
    return Chunks(_grown(q, c), pairs(q, k, c) @ v, _last(c), _to_end(k, c) @ v, correction)


def _grown(x: jax.Array, b: Part) -> jax.Array:
    """x e^b."""
    return x if b is None else x * jnp.exp(b)


def _to_end(x: jax.Array, b: Part) -> jax.Array:
    """The transpose of x_j e^{b_C - b_j}."""
    return (x if b is None else x * jnp.exp(b[..., -1:, :] - b)).swapaxes(-1, -2)


def _last(b: Part) -> Part:
    """e^{b_C}."""
    return None if b is None else jnp.exp(b[..., -1:, :]).swapaxes(-1, -2)
