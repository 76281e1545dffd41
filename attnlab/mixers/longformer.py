"""Longformer (Beltagy et al. 2020): a sliding window, and global tokens that see everything, and are
seen by everything, through projections of their own.

    i not global    softmax over j with |i - j| <= w / 2, and over the global j:   q_i = x_i W_q, k_j = x_j W_k, v_j = x_j W_v
    i global        softmax over every j:                                          q_i = x_i W_q', k_j = x_j W_k', v_j = x_j W_v'

w is the whole window, w / 2 on each side, beside the token itself. A global key in the window is
counted once. Scores are over sqrt(D); padding is not seen, and its y is 0. The windows are computed
in blocks of w / 2 queries and 3 w / 2 keys, over all pairs only where that is less. The visibility
`longformer` has the same pattern without the projections of its own, for any mechanism. Cost: 4 T
(3 w / 2 + g) d FLOPs for the blocks with g global keys, 4 g T d for the global queries. Parameters: 7
d^2. Source: I. Beltagy, M. E. Peters, A. Cohan, "Longformer: The Long-Document Transformer", 2020
(arXiv 2004.05150), sections 3.1-3.2. What differs: the global projections start with numbers of
their own (there as copies of the others, which come from a trained model); global tokens are the
same positions in every text; there is no dilation.

Axis letters: B batch, H heads, T tokens, D head width, N blocks, c queries of a block, g global
tokens.
"""

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import head_width
from attnlab.attention.visibility.sparse import half_of
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, joined, split, widened
from attnlab.mixers.whole import WholeText, weights


class Longformer(WholeText):
    """H heads of width D = width / H with windows and global tokens (Beltagy et al. 2020).

    Attributes:
      heads: H; must divide the width.
      window: w, even.
      tokens: positions of the global tokens, from 0; those beyond a text are left out.

    Card: window; Beltagy et al., Longformer, 2020; time T d (w + g) + T d^2; path T / w; steps 1.
    """

    heads: int = 4
    window: int = 64
    tokens: tuple[int, ...] = (0,)

    def setup(self) -> None:
        """Checks heads, `window` and `tokens` (raises UserError if they do not fit), and creates
        the projections, with others for global tokens.
        """
        head_width("longformer", self.width, self.heads)
        self.half = half_of(self.window)
        if len(set(self.tokens)) < len(self.tokens) or min(self.tokens, default=0) < 0:
            raise UserError(
                f"longformer: tokens={tuple(self.tokens)} must be different positions from 0 on"
            )
        for name in ("query", "key", "value", "query_global", "key_global", "value_global"):
            setattr(self, f"w_{name}", Dense(self.width, use_bias=False))
        self.out = Dense(self.width, use_bias=False)

    def mix_text(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """Computes attention over whole texts x [B,T,d], real at `real` [B,T], to [B,T,d]: every
        token sees its window and the global tokens, global tokens see all real tokens with
        projections of their own. See `WholeText.mix_text`.
        """
        length = x.shape[1]
        scale = (self.width // self.heads) ** -0.5
        tokens = np.array([position for position in self.tokens if position < length], np.int32)
        q, k, v = (
            split(getattr(self, f"w_{name}")(x), self.heads) for name in ("query", "key", "value")
        )
        has_globals = self.tokens and (len(tokens) or self.is_initializing())
        if has_globals:
            queries = split(self.w_query_global(x[:, tokens]), self.heads) * scale
            global_keys = split(self.w_key_global(x), self.heads)
            v = jnp.concatenate([v, split(self.w_value_global(x), self.heads)], axis=1)

        def summed(v: jax.Array, _: None) -> tuple[jax.Array, None]:
            context = self.in_blocks(q * scale, k, v[:, : self.heads], real, tokens)
            if has_globals:
                mask = real[:, None, None]
                of_tokens = attend(queries, global_keys, v[:, self.heads :], mask).astype(x.dtype)
                context = context.at[:, :, tokens].set(of_tokens)
            return context, None

        return self.out(joined(self.sum_values(summed, v)[0]))

    def in_blocks(
        self, q: jax.Array, k: jax.Array, v: jax.Array, real: jax.Array, tokens: np.ndarray
    ) -> jax.Array:
        """Computes the context [B,H,T,D] of each token attending to the real tokens within half the
        window and to the global tokens, in blocks of queries.

        Args:
          q, k, v: [B,H,T,D], queries divided by sqrt(D).
          real: [B,T] bool, True at tokens that are not padding.
          tokens: positions of the global tokens.
        """
        length = q.shape[2]
        c = max(block(length, self.window), 1)
        spare, one_block = -length % c, c >= length
        positions = np.arange(length + spare)
        is_global = np.isin(positions, tokens)

        def cut(x: jax.Array) -> jax.Array:
            """Pads x [B,n,T,...] and reshapes it to blocks [B,n,N,c,...]."""
            x = jnp.pad(x, [(0, spare if axis == 2 else 0) for axis in range(x.ndim)])
            return x.reshape(*x.shape[:2], len(positions) // c, c, *x.shape[3:])

        def around(x: jax.Array) -> jax.Array:
            """Joins each block [B,n,N,c,...] with the one before and the one after, [B,n,N,3c,...],
            zeros at the ends; unchanged if there is one block.
            """
            if one_block:
                return x
            nothing = jnp.zeros_like(x[:, :, :1])
            before = jnp.concatenate([nothing, x[:, :, :-1]], axis=2)
            after = jnp.concatenate([x[:, :, 1:], nothing], axis=2)
            return jnp.concatenate([before, x, after], axis=3)

        place = jnp.asarray(positions, jnp.int32).reshape(1, 1, len(positions) // c, c)
        local = cut((real & ~is_global[:length])[:, None])  # global keys are not counted twice
        mask = around(local)[..., None, :]
        mask = mask & (abs(place[..., None] - around(place)[..., None, :]) <= self.half)
        keys, values = around(cut(k)), around(cut(v))
        if len(tokens):
            shape = (*keys.shape[:3], len(tokens))
            keys, values = (
                jnp.concatenate(
                    [near, jnp.broadcast_to(far[:, :, None, tokens], (*shape, far.shape[3]))],
                    axis=3,
                )
                for near, far in ((keys, k), (values, v))
            )
            global_mask = jnp.broadcast_to(
                real[:, None, None, None, tokens], (*mask.shape[:4], len(tokens))
            )
            mask = jnp.concatenate([mask, global_mask], axis=4)
        context = attend(cut(q), keys, values, mask).astype(q.dtype)
        return context.reshape(*q.shape[:2], length + spare, v.shape[-1])[:, :, :length]


def block(length: int, window: int) -> int:
    """Returns how many queries a block has for texts of this length: half a window, or all where
    blocks would be no less work.
    """
    half = max(window // 2, 1)
    return half if 3 * half < length else length


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    """Computes softmax(q k^T) v [...,q,D] float32 over the keys where `mask` [...,q,k] is True, 0
    where there are none.
    """
    return weights(q, k, mask) @ widened(v)
