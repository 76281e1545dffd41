"""The recurrences in chunks of tokens: matrix products within and between chunks, a scan over chunks for
the state; and what they need of a chunk: products of all pairs under gates, and an inverse.

With b the running sum of g in a chunk, the state after step t of a chunk that begins with S is

    S_t = Diag(e^{b_t}) S + sum_{j<=t} Diag(e^{b_t - b_j}) w_j n_j^T,        n_t = u_t - r_t^T Diag(e^{g_t}) S_{t-1}

and the same expansion in n_t gives, with P_ij = sum_d q_id w_jd e^{b_id - b_jd} for j <= i,

    (I + L) N = U - (R * e^b) S              L_tj = sum_d r_td w_jd e^{b_td - b_jd} for j < t
    O         = (Q * e^b) S + P N            S_C  = Diag(e^{b_C}) S + (W * e^{b_C - b})^T N

All but the products with S and N is known for every chunk before the scan. Where nothing is erased
N = U, and the scan is element by element. Source: S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim,
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length", NeurIPS 2024 (the WY
form); S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", ICLR 2025 (with gates).

Products of queries and keys within a chunk, under gates (`pairs`):

    A_ij = sum_d x_id y_jd e^{c_id - b_jd}       for j <= i (strict: j < i), else 0

b are running sums of log gates g <= 0 within the chunk, and c is b, or b - g where x looks at the
state before the gate of its step. For the pairs kept, c_i - b_j <= 0, so that no exponential is
above 1; e^{-b_j} alone could overflow. What is masked is masked before `exp`: otherwise 0 * inf
gives gradients that are NaN.

    no gates, one gate a head     one product, times a matrix [C,C] of decays
    a gate for each channel       blocks of `DIRECT` tokens by the sum itself; the pairs of two neighbouring blocks by a product through the
                                  last row m of the first, (x_i e^{c_i - b_m}) . (y_j e^{b_m - b_j}); then blocks of twice the size, and
                                  so on

The inverse of I + L, where L is strictly lower triangular (`inverse`): blocks by substitution, then
pairs of blocks by products.

    [[A, 0], [B, D]]^-1 = [[A^-1, 0], [-D^-1 B A^-1, D^-1]]

Squaring, prod_m (I + (-L)^{2^m}), is the same in exact arithmetic and useless in rounded: with equal
unit keys the powers reach 1e17 in a chunk of 64 while the inverse is bounded by 1.

Source of the products: S. Yang, B. Wang, Y. Shen, R. Panda, Y. Kim, "Gated Linear Attention
Transformers with Hardware-Efficient Training", ICML 2024, section 4.3 (two levels of blocks; here
each level is a half of the next, so that exponentials are log C for each number, not C / 16).

Axis letters: B batch, H heads, n chunks, C tokens of a chunk, D rows of the state (channels), E
columns.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

DIRECT = 4  # tokens of the smallest blocks of `pairs`
SUBSTITUTED = 8  # rows of the blocks that are inverted by substitution
EXACT = jax.lax.Precision.HIGHEST  # the inverse would amplify the errors of shorter formats

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


def pairs(
    x: jax.Array,
    y: jax.Array,
    b: jax.Array | None,
    c: jax.Array | None = None,
    strict: bool = False,
    precision: Any = None,
) -> jax.Array:
    """Computes the lower triangular matrix A [..., C,C], A_ij = sum_d x_id y_jd e^{c_id - b_jd} for
    j <= i (`strict`: j < i), of x and y [..., C,D] of C tokens under the running sums b and c of
    their log gates (b None: no gates; c None: b).

    Args:
      x, y: [..., C,D].
      b: [..., C,1] for one gate, [..., C,D], or None for no gates.
      c: likewise; None for b.
      strict: j < i only.
      precision: of the products, see `jax.lax.Precision`.
    """
    c = b if c is None else c
    if b is None or c is None or b.shape[-1] == 1:
        products = jnp.matmul(x, y.swapaxes(-1, -2), precision=precision)
        mask = np.tri(x.shape[-2], k=-1 if strict else 0, dtype=bool)
        if b is None or c is None:
            return jnp.where(mask, products, 0.0)
        return products * _decays(c[..., 0], b[..., 0], mask)
    return _by_halves(x, y, b, c, strict, precision)


def _decays(c: jax.Array, b: jax.Array, mask: np.ndarray) -> jax.Array:
    """e^{c_i - b_j} where kept, else 0: [..., C] to [..., C,C]."""
    difference = c[..., :, None] - b[..., None, :]
    return jnp.where(mask, jnp.exp(jnp.where(mask, difference, 0.0)), 0.0)


def _by_halves(
    x: jax.Array, y: jax.Array, b: jax.Array, c: jax.Array, strict: bool, precision: Any
) -> jax.Array:
    """Computes the matrix [..., C,C] of `pairs`, with its arguments and a gate for each channel, by
    halving chunks, which are padded to a power of two: products of matrices below the diagonal
    blocks, `_direct` in them.
    """
    length = x.shape[-2]
    size = 1 << (length - 1).bit_length()
    x, y = (_filled(array, size, "constant") for array in (x, y))
    b, c = (_filled(array, size, "edge") for array in (b, c))
    half = min(DIRECT, size)
    blocks = _direct(*(_blocks(array, half) for array in (x, y, b, c)), strict=strict)
    while half < size:
        (_, lower_x), (upper_y, _), (upper_b, _), (_, lower_c) = (
            _halves(_blocks(array, 2 * half)) for array in (x, y, b, c)
        )
        boundary = upper_b[..., -1:, :]
        lower_x = lower_x * jnp.exp(lower_c - boundary)
        upper_y = upper_y * jnp.exp(boundary - upper_b)
        below = jnp.matmul(lower_x, upper_y.swapaxes(-1, -2), precision=precision)
        first, second = blocks[..., 0::2, :, :], blocks[..., 1::2, :, :]
        blocks = jnp.block([[first, jnp.zeros_like(below)], [below, second]])
        half *= 2
    return blocks[..., 0, :length, :length]


def _direct(x: jax.Array, y: jax.Array, b: jax.Array, c: jax.Array, *, strict: bool) -> jax.Array:
    """Computes the matrix [..., C,C] of `pairs`, with its arguments and a gate for each channel,
    diagonal by diagonal: sums over D, with no array [..., C,C,D].
    """
    size, total = x.shape[-2], jnp.zeros(())
    for offset in range(1 if strict else 0, size):
        later, first = slice(offset, None), slice(0, size - offset)
        products = x[..., later, :] * y[..., first, :]
        sums = (products * jnp.exp(c[..., later, :] - b[..., first, :])).sum(axis=-1)
        sums = jnp.pad(sums, [(0, 0)] * (sums.ndim - 1) + [(offset, 0)])
        total = total + sums[..., None] * np.eye(size, k=-offset, dtype=sums.dtype)
    rows = jnp.broadcast_shapes(*(array.shape[:-1] for array in (x, y, b, c)))
    return jnp.broadcast_to(total, (*rows, size))


def _blocks(x: jax.Array, size: int) -> jax.Array:
    """[..., C,D] to [..., C/size,size,D]."""
    return x.reshape(*x.shape[:-2], x.shape[-2] // size, size, x.shape[-1])


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    half = x.shape[-2] // 2
    return x[..., :half, :], x[..., half:, :]


def _filled(x: jax.Array, size: int, mode: str) -> jax.Array:
    """Pads [..., C,D] to [..., size,D] in the mode of `jnp.pad`."""
    padding = size - x.shape[-2]
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, padding), (0, 0)], mode=mode) if padding else x


@jax.custom_jvp
def inverse(lower: jax.Array) -> jax.Array:
    """Computes (I + L)^-1 of strictly lower triangular L [..., C,C], by blocks of doubling size."""
    length = lower.shape[-1]
    size = 1 << (length - 1).bit_length()
    padding = size - length
    filled = jnp.pad(lower, [(0, 0)] * (lower.ndim - 2) + [(0, padding)] * 2) if padding else lower
    half = min(SUBSTITUTED, size)
    blocks = _substituted(_diagonal(filled, half))
    while half < size:
        below = _diagonal(filled, 2 * half)[..., half:, :half]
        first, second = blocks[..., 0::2, :, :], blocks[..., 1::2, :, :]
        below = -_product(second, _product(below, first))
        blocks = jnp.block([[first, jnp.zeros_like(below)], [below, second]])
        half *= 2
    return blocks[..., 0, :length, :length]


@inverse.defjvp
def _slope(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """d M = -M dL M; substitution need not be differentiated."""
    inverted = inverse(*primals)
    return inverted, -_product(inverted, _product(tangents[0], inverted))


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=EXACT)


def _diagonal(x: jax.Array, size: int) -> jax.Array:
    """The blocks of `size` rows on the diagonal of [..., C,C]: [..., C/size,size,size]."""
    count = x.shape[-1] // size
    cut = x.reshape(*x.shape[:-2], count, size, count, size)
    return jnp.moveaxis(jnp.diagonal(cut, axis1=-4, axis2=-2), -1, -3)


def _substituted(lower: jax.Array) -> jax.Array:
    """Computes (I + L)^-1 = M [..., C,C] of strictly lower triangular L [..., C,C], row by row for
    all matrices at once, with row M_i = e_i - sum_{j<i} L_ij M_j.
    """
    size = lower.shape[-1]
    blocks = jnp.moveaxis(lower.reshape(-1, size, size), 0, -1)
    rows = [jnp.zeros_like(blocks[0]).at[0].set(1.0)]
    for i in range(1, size):
        solved = jnp.stack(rows)
        row = -(blocks[i, :i, None] * solved).sum(axis=0)
        rows.append(row.at[i].add(1.0))
    return jnp.moveaxis(jnp.stack(rows), -1, 0).reshape(lower.shape)
