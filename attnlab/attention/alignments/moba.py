"""Mixture of block attention (Lu et al. 2025): a query attends to its own block of keys and to the
blocks whose mean key fits it best.

    g_ib = mean of e_ij over the keys j of block b,  b before the block of i        block(j) = floor(j / block)
    S_i  = the block of i and the blocks - 1 others with the largest g_ib
    a_ij = softmax over the allowed j with block(j) in S_i of e_ij

The score of a mean key is the mean of the scores wherever a score is linear in its keys, as in the
paper, q_i . mean_j k_j; so this is the paper's gate for inner products, and a definition for other
scores and for biases of positions. The mean of a block is over the keys that the query may see;
earlier blocks are complete, so cached decoding equals the full pass. Of equal blocks the earlier
one is taken. `blocks` of at least the number of blocks is softmax, 1 is attention within blocks. No
parameters: a trained model can change between both. The choice has no gradient. Cost: 5 FLOPs for
each pair, and one for the means; the kernel `gathered` computes only the
chosen blocks. Source: E. Lu et al., "MoBA: Mixture of Block Attention for Long-Context LLMs", 2025
(arXiv 2502.13189), section 2.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.protocol import Alignment, full_mask, softmax
from attnlab.attention.alignments.relatives import largest
from attnlab.attention.view import View, concrete_value
from attnlab.errors import at_least
from attnlab.layers.dense import widened


class MoBA(Alignment):
    """Softmax over the keys of the query's own block and of the best earlier ones; no parameters.

    Attributes:
      block: keys of a block.
      blocks: how many blocks a query attends to, its own counted.

    Card: block-sparse; Lu et al., MoBA, 2025; time T^2.
    """

    block: int = 16
    blocks: int = 3

    looks_at = frozenset({"positions"})
    looks_between = True
    own_kernel = "attnlab.attention.kernels.gathered:Gathered"

    def setup(self) -> None:
        at_least(1, "alignment moba", block=self.block, blocks=self.blocks)

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes softmax weights [B,H,Tq,Tk] of each query over the allowed keys of at most
        `blocks` blocks, its own block and the earlier ones with the largest mean score, and 0 for
        all other keys. See `Alignment.__call__`.
        """
        scores = widened(scores)
        if not scores.shape[-1]:
            return scores
        allowed = jnp.ones((1, 1, 1, scores.shape[-1]), bool) if mask is None else mask
        allowed = full_mask(allowed, scores.shape[-1])
        blocks = Blocks(self.block, self.reach(scores.shape[-1]), view)
        sums = blocks.sums(jnp.where(allowed, jax.lax.stop_gradient(scores), 0.0))
        counts = blocks.sums(allowed.astype(scores.dtype))
        current = view.rows // self.block - blocks.first
        chosen = routed(sums / jnp.maximum(counts, 1.0), counts > 0.0, current, self.blocks)
        return softmax(scores, allowed & blocks.of_keys(chosen, scores.shape[-1]))

    @nn.nowrap
    def reach(self, keys: int) -> int:
        """N, the most blocks that as many consecutive keys can lie in."""
        return (keys + self.block - 2) // self.block + 1


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Keys by block, numbered from the block of the earliest key. Keys with positions of their own
    must stand at consecutive positions, in any order.

    Attributes:
      size: keys of a block.
      count: N, how many blocks there are.
      view: of the look.
    """

    size: int
    count: int
    view: View

    @property
    def scattered(self) -> bool:
        """Whether each key has a position of its own."""
        assert self.view.keys is not None
        return np.ndim(self.view.keys) == 2

    @property
    def first(self) -> jax.Array:
        """The number of the earliest key's block, broadcastable to [B,1,1,1]."""
        return self.view.columns.min(axis=-1, keepdims=True) // self.size

    @property
    def shift(self) -> jax.Array:
        """Where in its block the first slot lies, [] or [B], if slots are consecutive."""
        return jnp.asarray(self.view.keys) % self.size

    def sums(self, x: jax.Array) -> jax.Array:
        """Sums x [B,H,Tq,Tk] over the keys of each block, by the positions of the keys, and returns
        [B,H,Tq,N], N the number of blocks.
        """
        if self.scattered:
            member = (self.view.columns // self.size - self.first)[..., None]
            member = member == jnp.arange(self.count)  # [B,1,1,Tk,N]
            return x @ jnp.broadcast_to(member[:, 0], (len(x), 1, *member.shape[-2:])).astype(
                x.dtype
            )
        spare = self.count * self.size - x.shape[-1]
        wide = rolled(jnp.pad(x, [(0, 0)] * 3 + [(0, spare)]), self.shift)
        return wide.reshape(*x.shape[:-1], self.count, self.size).sum(axis=-1)

    def of_keys(self, x: jax.Array, keys: int) -> jax.Array:
        """Repeats the entry of each block in x [B,H,Tq,N] for all keys of the block, and returns
        [B,H,Tq,Tk] with Tk = `keys`.
        """
        if self.scattered:
            index = jnp.clip(self.view.columns // self.size - self.first, 0, self.count - 1)
            index = jnp.broadcast_to(index, (*x.shape[:-1], keys))
            return jnp.take_along_axis(x, index, axis=-1)
        return rolled(jnp.repeat(x, self.size, axis=-1), -self.shift)[..., :keys]


def rolled(x: jax.Array, shift: jax.Array) -> jax.Array:
    """Rolls the last axis of x [B,...,n] cyclically by `shift`, [] or [B] (one for each row);
    returns x itself where the shift is known to be 0.
    """
    fixed_shift = concrete_value(shift)
    if fixed_shift is not None and not fixed_shift.any():
        return x
    if shift.ndim:
        x = jnp.broadcast_to(x, (len(shift), *x.shape[1:]))
        return jax.vmap(lambda row, by: jnp.roll(row, by, axis=-1))(x, shift)
    return jnp.roll(x, shift, axis=-1)


def routed(gates: jax.Array, visible: jax.Array, current: jax.Array, blocks: int) -> jax.Array:
    """Chooses at most `blocks` blocks that a query attends to, its own and those before it with the
    largest `gates`, if `visible`: bool [B,H,Tq,N].

    Args:
      gates: [B,H,Tq,N], how well each block fits.
      visible: bool broadcastable to the gates: the block has a key that may be seen.
      current: broadcastable to [B,H,Tq,1], the number of the query's own block.
      blocks: how many, its own counted.
    """
    number = jnp.arange(gates.shape[-1])
    gates = jnp.where(number == current, jnp.inf, gates)
    eligible = visible & (number <= current)
    return largest(jnp.where(eligible, gates, -jnp.inf), blocks) & eligible
