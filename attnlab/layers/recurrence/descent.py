"""A recurrence whose state is a small model that learns: a token is an example, and gradient descent
on its loss is the step.

    f(x)  = x + N(z_L),     z_l = x_{l-1} W_l + b_l,     x_0 = x,  x_l = gelu(z_l)         one layer: linear; two: a perceptron
    l_t   = |N(z_L(k_t)) - (v_t - k_t)|^2 / 2                                              f(k_t) should be v_t
    W_t   = W - c_i sum_{j<=i} eta_j dl_j/dW                                               b_l likewise
    o_t   = f(q_t) with W_t

N is a layer norm. Tokens come in mini-batches of b; i is the place of t in its own, the sum is over
the tokens of that mini-batch, and all gradients are taken at W, the weights at its beginning; after
its last token W_t is the next W. As dl_j/dW_l = x_{l-1}(k_j)^T g_j with g_j = dl_j/dz_l, any C tokens
of a mini-batch are products of matrices, without a W_t (the dual form):

    z_l(q_i) = x W_l + b_l - c_i (x S_l + s_l + sum_{j<=i} (x . x_{l-1}(k_j) + 1) eta_j g_j)               x = x_{l-1}(q_i)

where S_l and s_l are the sums of eta_j dl_j/dW_l and eta_j dl_j/db_l over the tokens of the mini-batch
before these C. C = 1 is the scan over tokens, C = b whole mini-batches. Source: Y. Sun et al.,
"Learning to (Learn at Test Time): RNNs with Expressive Hidden States", 2024 (arXiv 2407.04620),
sections 2.4 and 2.5.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, b tokens of a mini-batch, C
tokens that are computed at once, N slots that T tokens take, n = N / C.
"""

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.layers.dense import inner_dtype
from attnlab.layers.history import slots

Layers = tuple[tuple[jax.Array, jax.Array], ...]
"""W_l [B,H,m,n] and b_l [B,H,1,n] of every layer l."""
Norm = Callable[[jax.Array], jax.Array]


@flax.struct.dataclass
class Learner:
    """W_l and b_l at the beginning of a mini-batch, and S_l and s_l of its tokens so far."""

    weights: Layers
    sums: Layers


@flax.struct.dataclass
class Examples:
    """What tokens ask and teach, in the order of the text.

    Attributes:
      q, k, v: [B,H,T,D].
      eta: [B,H,T,1].
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    eta: jax.Array


@flax.struct.dataclass
class _Piece:
    """C tokens: examples [B,H,C,...]; their places in the mini-batch [B or 1,C], from 0; and whether
    the last of them ends it, [B or 1].
    """

    examples: Examples
    place: jax.Array
    ends: jax.Array


def begun(weights: Layers, rows: int) -> Learner:
    """Returns the state before the first token of `rows` texts, from W_l [H,m,n], b_l [H,1,n]."""
    repeated = jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape)), weights)
    return Learner(repeated, jax.tree.map(jnp.zeros_like, repeated))


def descend(
    examples: Examples,
    state: Learner,
    norm: Norm,
    shares: jax.Array,
    *,
    read: jax.Array | None = None,
    valid: jax.Array | None = None,
    chunk: int = 0,
) -> tuple[jax.Array, Learner]:
    """Trains an inner network by gradient descent on `examples` (q, k, v, eta of T tokens) in
    mini-batches of len(`shares`) tokens, from its weights in `state`; returns its outputs o
    [B,H,T,D] for the queries q, and the state after the last token.

    Args:
      examples: the tokens of a piece.
      state: before the piece.
      norm: N, [B,H,C,D] to the same shape.
      shares: c, [b].
      read: how many tokens of the text were read before the piece, [B] int32; None: it is the
        beginning, and `state` is as `begun` makes it.
      valid: [B,T] bool; a token that is not real leaves the state as it is, exactly, and its o is
        0.
      chunk: C, a divisor of b: 1 for a scan over tokens; 0 for mini-batches, but token by token
        where a piece that goes on is shorter than b. It does not change the result.

    Returns:
      o [B,H,T,D] and the state, in the inner precision.
    """
    kind = inner_dtype(examples.q, *jax.tree.leaves(state))
    examples, state = jax.tree.map(lambda x: x.astype(kind), (examples, state))
    length, count = examples.q.shape[2], len(shares)
    if not length:
        return examples.q, state
    size = together(length, count, chunk, read is None)
    pieces, slot = _cut(examples, read, valid, size, count)
    summed = read is not None or size not in (length, count)  # else S and s are 0 before a piece

    def step(state: Learner, piece: _Piece) -> tuple[Learner, jax.Array]:
        return _learn(state, piece, norm, shares.astype(kind), summed)

    if len(pieces.ends) == 1:
        last, o = step(state, jax.tree.map(lambda x: x[0], pieces))
    else:
        # the backward pass computes a piece again, so that of it the weights before it are kept
        last, o = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), state, pieces)
        o = jnp.moveaxis(o, 0, 2).reshape(*examples.q.shape[:2], -1, examples.q.shape[3])
    o = o[:, :, :length] if slot is None else _take_slots(o, slot)
    return (o if valid is None else jnp.where(valid[:, None, :, None], o, 0.0)), last


def together(length: int, count: int, chunk: int, beginning: bool) -> int:
    """Returns C, the tokens computed at once, for T = `length` tokens, at the `beginning` of a text or
    not, and mini-batches of b = `count`: `chunk`, or what fits where that is 0.
    """
    size = chunk or (count if beginning or length >= count else 1)
    return min(size, length) if beginning else size


def _learn(
    state: Learner, piece: _Piece, norm: Norm, shares: jax.Array, summed: bool
) -> tuple[Learner, jax.Array]:
    """Returns the state after a piece of C tokens, its weights changed only where the piece ends a
    mini-batch, and the outputs o [B,H,C,D] for the queries of the piece, with the inner norm N and
    the `shares` c [b]; `summed`: whether S and s in `state` may be other than 0.
    """
    share, x, sums = shares[piece.place][:, None, :, None], piece.examples.q, []
    gradients = _layer_gradients(state.weights, norm, piece.examples)
    for number, (inputs, slopes) in enumerate(gradients):
        x = _gelu(x) if number else x
        keys = inputs.swapaxes(-1, -2)
        change = jnp.tril(x @ keys + 1.0) @ slopes
        change = change + _affine(x, state.sums[number]) if summed else change
        x = _affine(x, state.weights[number]) - share * change
        of_w, of_b = state.sums[number]
        sums.append((of_w + keys @ slopes, of_b + slopes.sum(axis=-2, keepdims=True)))
    ends = piece.ends[:, None, None, None]
    total, step = tuple(sums), shares[-1]
    weights = jax.tree.map(lambda w, s: jnp.where(ends, w - step * s, w), state.weights, total)
    open_sums = jax.tree.map(lambda s: jnp.where(ends, 0.0, s), total)
    return Learner(weights, open_sums), piece.examples.q + norm(x)


def _layer_gradients(
    weights: Layers, norm: Norm, examples: Examples
) -> list[tuple[jax.Array, jax.Array]]:
    """Returns a list with a pair for every layer of the inner network, with `weights` and N =
    `norm`: its inputs x_{l-1}(k_j) [B,H,C,m] for the keys, and the gradients eta_j g_j [B,H,C,n] of
    the loss of the examples by x W + b, before GELU or norm.
    """
    x, inputs, pullbacks = examples.k, [], []
    for number, layer in enumerate(weights, start=1):
        inputs.append(x)
        x, pullback = jax.vjp(norm if number == len(weights) else _gelu, _affine(x, layer))
        pullbacks.append(pullback)
    slope, slopes = examples.eta * (x - (examples.v - examples.k)), []
    for (w, _), pullback in zip(reversed(weights), reversed(pullbacks), strict=True):
        (slope,) = pullback(slope)
        slopes.append(slope)
        slope = slope @ w.swapaxes(-1, -2)
    return list(zip(inputs, reversed(slopes), strict=True))


def _affine(x: jax.Array, layer: tuple[jax.Array, jax.Array]) -> jax.Array:
    return x @ layer[0] + layer[1]


def _gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=True)


def _cut(
    examples: Examples, read: jax.Array | None, valid: jax.Array | None, size: int, count: int
) -> tuple[_Piece, jax.Array | None]:
    """Cuts examples [B,H,T,...] into one `_Piece` of stacked pieces [n,...] of `size` tokens, each
    within one mini-batch of `count`; returns it and the slot of each token [B,T] (None where it is
    the token's index); `read` [B] tokens came before, `valid` [B,T] are real (None: 0, all).
    """
    length = examples.q.shape[2]
    if read is None and valid is None:
        padding = -length % size
        examples = jax.tree.map(
            lambda x: jnp.pad(x, ((0, 0), (0, 0), (0, padding), (0, 0))), examples
        )
        positions, slot = jnp.arange(length + padding)[None], None
        real = positions < length
    else:
        real = jnp.ones((len(examples.q), length), bool) if valid is None else valid
        token, slot, positions = slots(read, real, size)
        examples = jax.tree.map(lambda x: _take_slots(x, token), examples)
        real = token < length
    pieces = -1, size
    place = positions.reshape(len(positions), *pieces) % count
    ends = real.reshape(len(positions), *pieces)[..., -1] & (place[..., -1] == count - 1)
    examples = jax.tree.map(
        lambda x: jnp.moveaxis(x.reshape(*x.shape[:2], *pieces, x.shape[-1]), 2, 0), examples
    )
    return _Piece(examples, jnp.moveaxis(place, 1, 0), ends.T), slot


def _take_slots(x: jax.Array, slot: jax.Array) -> jax.Array:
    """Returns x [B,H,T,D] at slots [B,N]; 0 where there is none."""
    return jnp.take_along_axis(x, slot[:, None, :, None], axis=2, mode="fill", fill_value=0)
