"""PaTH attention (Yang et al. 2025): what lies between a key and a query is a product of learned
Householder-like matrices, one of each token.

    H_t  = I - beta_t w_t w_t^T        |w_t| = 1,  beta_t = 2 sigmoid(s_t u + c) in (0, 2)
    e_ij = q_i^T H_i H_{i-1} ... H_{j+1} k_j / sqrt(D)          j <= i; then as in multi-head attention

beta = 0 is attention without positions. The product is never formed. With M = (I + tril(diag(beta) W
W^T, -1))^-1 of a block of tokens, a query behind the block passes it by x = q W^T M, q - x diag(beta)
W, and its scores in the block are q K^T - x tril(diag(beta) W K^T, -1); blocks are taken from the
last to the first. A memory keeps its keys as they are seen from before the last piece, k_j <-
k_j - beta_t (k_j . w_t) w_t for each token t since, so that a step of decoding is one such change
and a product. Axis letters: H heads, K key heads, D head width, r rank, C tokens of a block (c on
the card). Cost: multi-head attention, and (4 D + 2 C) FLOPs for each pair and head; parameters d
r + r K D + (d + 1) K more. Memory for decoding: K (D + 1) numbers more per token, of which only
those of the last piece are used. Source: S. Yang, Y. Shen, K. Wen, S. Tan, M. Mishra, L. Ren, R.
Panda, Y. Kim, "PaTH Attention: Position Encoding via Accumulating Householder Transformations",
2025 (arXiv 2505.16381), section 3. There w also passes a short convolution; here it is x W_1 W_2
over its norm. Keys of a memory are float32. Causal self-attention.
"""

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.kernels.blocks import padded
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.multihead import OF_CAUSAL_TEXTS, MultiHead, MultiHeadMemory
from attnlab.attention.protocol import Tokens
from attnlab.attention.scores.similarities import unit
from attnlab.attention.view import View
from attnlab.errors import at_least
from attnlab.layers.dense import Dense, widened

EPSILON = 1e-6


@flax.struct.dataclass
class PathMemory(MultiHeadMemory):
    """keys float32; w [B,K,Tk,D] and beta [B,K,Tk,1] float32, 0 where the keys before have passed."""

    w: jax.Array
    beta: jax.Array


class Path(MultiHead):
    """Multi-head attention whose scores pass the tokens between; other fields as in `MultiHead`, the
    score an inner product.

    Attributes:
      rank: r, width between the two matrices that make w.
      block: C, tokens that are passed at once; it changes nothing.

    Card: heads, passing; Yang et al., PaTH Attention, 2025; time T^2 (d + H c) + T d^2;
    state T d K / H; path 1; steps 1.
    """

    rank: int = 8
    block: int = 16

    kernels = ("auto", "plain")
    turns = True
    capabilities = OF_CAUSAL_TEXTS

    memory_class = PathMemory

    def setup(self) -> None:
        """Checks that `rank` and `block` are at least 1 (raises UserError if not), and creates the
        projections for w and beta besides those of multi-head attention.
        """
        super().setup()
        at_least(1, "path", rank=self.rank, block=self.block)
        shared = self.key_heads or self.heads
        self.w_down = Dense(self.rank, use_bias=False)
        self.w_up = Dense(shared * self.size(), use_bias=False)
        self.w_beta = Dense(shared)

    def passing(self, source: jax.Array, valid: jax.Array | None) -> dict[str, jax.Array]:
        """Computes for each token of a source [B,t,ds] a dict of "w", a unit vector [B,K,t,D], and
        "beta", a strength in (0, 2) [B,K,t,1], which make its matrix I - beta w w^T; beta is 0 at
        padding (`valid` False).
        """
        w = widened(unit(self.split(self.w_up(self.w_down(source))), EPSILON))
        beta = 2.0 * jax.nn.sigmoid(widened(self.w_beta(source))).transpose(0, 2, 1)[..., None]
        return {
            "w": w,
            "beta": beta if valid is None else jnp.where(valid[:, None, :, None], beta, 0.0),
        }

    def remember(  # type: ignore[override]
        self, source: jax.Array, valid: jax.Array | None = None, capacity: int | None = None
    ) -> PathMemory:
        """See `Attention.remember`; the sequence begins at 0."""
        return self.remember_pairs(source, source, valid, capacity)

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`; w and beta are of the array for keys."""
        arrays = super().arrays(tokens) | self.passing(tokens.keys, tokens.valid)
        return {**arrays, "keys": widened(arrays["keys"])}

    def extend_pairs(
        self, memory: Any, keys: jax.Array, values: jax.Array, valid: jax.Array | None = None
    ) -> Any:
        """Returns the memory with its stored keys multiplied by the matrices I - beta w w^T of the
        stored tokens after them, not yet applied, and with the keys and values of new tokens
        appended, computed from `keys` and `values` [B,t,ds]. See `Attention.extend_pairs`.
        """
        beta = written_only(memory)
        passed = jax.lax.cond(
            several(beta),
            functools.partial(passed_by_blocks, size=self.block),
            passed_by_one,
            memory.keys,
            memory.w,
            beta,
        )
        old = memory.replace(keys=passed, beta=jnp.zeros_like(beta))
        return super().extend_pairs(old, keys, values, valid)

    def look(
        self, query: jax.Array, memory: MultiHeadMemory, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] on a memory, with scores computed at
        once for all pairs: inner products of query and key with the matrices I - beta w w^T of the
        tokens between them. See `MultiHead.look`.
        """
        assert isinstance(memory, PathMemory)
        look = super().look(query, memory, view, history)
        first = widened(jax.tree.leaves(look.queries)[0])
        batch, heads, queries, width = first.shape
        shared, slots = memory.keys.shape[1], memory.keys.shape[2]
        q = first.reshape(batch, shared, heads // shared, queries, width)
        beta = written_only(memory)
        passed = look.view.columns <= look.view.rows  # tokens that a query has passed
        if not (slots and queries):
            scores = jnp.zeros((*q.shape[:4], slots), q.dtype)
        else:
            scores = jax.lax.cond(
                several(beta),
                functools.partial(scores_past_blocks, size=self.block),
                scores_past_one,
                q,
                memory.keys,
                memory.w,
                beta,
                passed[:, :, None],
            )
        scores = scores.reshape(batch, heads, queries, slots)

        def score(queries: Any, keys: Any, i: jax.Array, j: jax.Array) -> jax.Array:
            bias = look.bias(queries, i, j) if look.bias else None
            return scores if bias is None else scores + widened(bias)

        between = look.between or (lambda scores, mask, view: (scores, mask))
        return look.replace(score=score, product=False, bias=None, between=between)


def written_only(memory: PathMemory) -> jax.Array:
    """beta [B,K,Tk,1], 0 in slots that hold no real token."""
    return jnp.where(jnp.asarray(memory.valid)[:, None, :, None], memory.beta, 0.0)


def several(beta: jax.Array) -> jax.Array:
    """Returns a bool array [], True if in some row more than one token has a `beta` [B,K,Tk,1] that
    is not 0 in any head.
    """
    return ((beta != 0.0).any(axis=1).sum(axis=1) > 1).any()


def unpassed(w: jax.Array, beta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the slot [B,1,1,1], w [B,K,1,D] and beta [B,K,1,1] of the first token of each row
    whose beta is not 0, from the w [B,K,Tk,D] and beta [B,K,Tk,1] of all tokens.
    """
    slot = jnp.argmax((beta != 0.0).any(axis=1), axis=1)[:, None, :, None]
    index = jnp.broadcast_to(slot, (*w.shape[:2], 1, 1))
    token_w, token_beta = (jnp.take_along_axis(x, index, axis=2) for x in (w, beta))
    return slot, token_w, token_beta


def passed_by_one(keys: jax.Array, w: jax.Array, beta: jax.Array) -> jax.Array:
    """Returns keys [B,K,Tk,D], multiplied by the matrix I - beta w w^T where they are before the
    only token of their row whose beta is not 0; `w` and `beta` are of all tokens.
    """
    slot, w, beta = unpassed(w, beta)
    earlier = jnp.arange(keys.shape[2])[None, None, :, None] < slot
    return keys - jnp.where(earlier, beta * (keys * w).sum(axis=-1, keepdims=True) * w, 0.0)


def scores_past_one(
    q: jax.Array, keys: jax.Array, w: jax.Array, beta: jax.Array, passed: jax.Array
) -> jax.Array:
    """Computes the scores [B,K,G,Tq,Tk] as `scores_past_blocks` does, from the same arguments
    (queries, keys, w and beta of tokens, bool `passed`), for the case that only one token of a row
    has beta > 0, without blocks.
    """
    slot, w, beta = unpassed(w, beta)
    slots, token = jnp.arange(keys.shape[2]), slot[..., None]
    passes = (passed & (slots == token)).any(axis=-1, keepdims=True) & (slots < token)
    met = jnp.einsum("bkgqd,bktd->bkgqt", q, beta * w)
    along = met * jnp.einsum("bkjd,bktd->bktj", keys, w)[:, :, None]
    return jnp.einsum("bkgqd,bkjd->bkgqj", q, keys) - jnp.where(passes, along, 0.0)


def cut(size: int, *arrays: jax.Array) -> list[jax.Array]:
    """Cuts arrays [B,K,Tk,n] into blocks of `size` tokens, the last padded with zeros: [N,B,K,C,n]."""
    count = -(-arrays[0].shape[2] // size)
    full = (padded(x, 2, count * size) for x in arrays)
    return [jnp.moveaxis(x.reshape(*x.shape[:2], count, size, x.shape[-1]), 2, 0) for x in full]


def inverses(w: jax.Array, beta: jax.Array) -> jax.Array:
    """Computes by repeated squaring the matrices M = (I + tril(diag(beta) W W^T, -1))^-1,
    [...,C,C], of blocks of C tokens with vectors w [...,C,D] and strengths beta [...,C,1]. M = (I -
    L)(I + L^2)(I + L^4) ..., for L^C = 0.
    """
    size = w.shape[-2]
    power = -jnp.tril(beta * (w @ w.swapaxes(-1, -2)), -1)
    inverse = jnp.eye(size, dtype=w.dtype) + power
    for _ in range((size - 1).bit_length() - 1):
        power = power @ power
        inverse = inverse + inverse @ power
    return inverse


def scores_past_blocks(
    q: jax.Array, keys: jax.Array, w: jax.Array, beta: jax.Array, passed: jax.Array, size: int
) -> jax.Array:
    """Computes the scores [B,K,G,Tq,Tk] of queries q and keys, in blocks of `size` tokens: the
    inner product of query i and key j with the product of the matrices H = I - beta w w^T of the
    tokens between in the middle (as far as `passed`). That is q_i^T H_i ... H_{j+1} k_j.

    Args:
      q: [B,K,G,Tq,D].
      keys, w, beta: [B,K,Tk,D], [B,K,Tk,D] and [B,K,Tk,1] of tokens in their order.
      passed: bool broadcastable to [B,K,G,Tq,Tk], which tokens l <= i a query has passed.
      size: C.
    """
    slots = keys.shape[2]
    k, w, beta = cut(size, keys, w, beta)
    past = jnp.pad(passed, [(0, 0)] * 4 + [(0, len(k) * size - slots)])
    past = jnp.moveaxis(past.reshape(*past.shape[:-1], len(k), size), -2, 0)
    lower = jnp.tril(beta * jnp.einsum("nbkld,nbkjd->nbklj", w, k), -1)

    def step(q: jax.Array, block: Any) -> tuple[jax.Array, jax.Array]:
        """Computes the scores of the keys in one block, and multiplies the queries by the matrices
        of its tokens.
        """
        k, w, beta, inverse, lower, past = block
        met = jnp.where(past, jnp.einsum("bkgqd,bkld->bkgql", q, w), 0.0)
        x = jnp.einsum("bkgql,bklm->bkgqm", met, inverse)
        scores = jnp.einsum("bkgqd,bkjd->bkgqj", q, k) - jnp.einsum("bkgql,bklj->bkgqj", x, lower)
        return q - jnp.einsum("bkgql,bkld->bkgqd", x, beta * w), scores

    _, scores = jax.lax.scan(step, q, (k, w, beta, inverses(w, beta), lower, past), reverse=True)
    return jnp.moveaxis(scores, 0, -2).reshape(*q.shape[:4], len(k) * size)[..., :slots]


def passed_by_blocks(keys: jax.Array, w: jax.Array, beta: jax.Array, size: int) -> jax.Array:
    """Multiplies each key k_j of keys [B,K,Tk,D], in blocks of `size` tokens, by the matrices H = I
    - beta w w^T of all n tokens after it: [B,K,Tk,D]. That is H_n ... H_{j+1} k_j.
    """
    w, beta = cut(size, w, beta)
    slots, firsts = jnp.arange(keys.shape[2]), jnp.arange(len(w)) * size

    def step(keys: jax.Array, block: Any) -> tuple[jax.Array, None]:
        """Multiplies the keys of tokens before the end of a block by the matrices of the block's
        tokens after them.
        """
        w, beta, inverse, first = block
        later = (first + jnp.arange(size))[:, None] > slots
        met = jnp.where(later, beta * jnp.einsum("bkld,bkjd->bklj", w, keys), 0.0)
        return keys - jnp.einsum("bklj,bkld->bkjd", inverse @ met, w), None

    return jax.lax.scan(step, keys, (w, beta, inverses(w, beta), firsts))[0]
