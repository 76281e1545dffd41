"""The hooks of a position scheme. A scheme overrides the ones it uses and names them in `hooks`.

No positions at all is a scheme too: under a causal mask the first layer can count the keys it sees.

Axis letters: B batch, H heads, T length (Tq, Tk), D head width, Dv value width, d model width.
Source of none at all: A. Kazemnejad et al., "The Impact of Positional Encoding on Length
Generalization in Transformers", NeurIPS 2023.
"""

from typing import ClassVar

import flax.linen as nn
import jax

from attnlab.attention.view import View


class PositionScheme(nn.Module):
    """No positions at all: every hook returns its input. The base of every scheme. `hooks` names
    the hooks that a scheme uses; a mechanism or system refuses those it does not offer:
      "embedding": `embed`, on embeddings.
      "query_key": `of_query` and `of_key`, on the two sides of an inner product.
      "score": `bias`, added to scores after their scale.
      "value": `values`, added to contexts.
      "row": `of_rows`, on whole rows of scores, with the mask; kernels by blocks have none.

    Card: none; Kazemnejad et al., Positional Encoding and Length Generalization, NeurIPS 2023;
    time 0.
    """

    hooks: ClassVar[frozenset[str]] = frozenset()
    trees: ClassVar[bool] = False  # whether it needs dependency trees, which few systems have
    on_grid: ClassVar[bool] = False  # whether it needs rows and columns, which slots of images know
    looks_between: ClassVar[bool] = False  # whether it needs that no query sees a later key

    @property
    def longest(self) -> int | None:
        """How many positions the scheme knows, from 0 on; None for any number."""
        return None

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Hook "embedding": computes [B,T,d] from x [B,T,d] at absolute positions [T] or [B,T], 0
        at the first token; this base returns x unchanged.
        """
        return x

    def of_query(self, q: jax.Array, i: jax.Array) -> jax.Array:
        """Hook "query_key": unscaled q [B,H,Tq,D] at positions i, [Tq] or [B,Tq], to [B,H,Tq,D]."""
        return q

    def of_key(self, k: jax.Array, j: jax.Array) -> jax.Array:
        """Hook "query_key": computes [B,K,Tk,D], which a memory keeps, from k [B,K,Tk,D] at
        positions j, [Tk] or [B,Tk]; this base returns k unchanged.
        """
        return k

    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array | None:
        """Hook "score": from q [B,H,Tq,D], unscaled and before `of_query`, computes a bias
        broadcastable to [B,H,Tq,Tk], or None for none, which is what this base returns.

        Args:
          q: queries of any block of a look.
          view: positions of queries and keys; whether the view is causal (a scheme may then use its
            range for the past only); trees.
          scale: the scale of the score; a bias that is itself an inner product needs it too.
        """
        return None

    def values(self, weights: jax.Array, view: View, width: int) -> jax.Array | None:
        """Hook "value": computes from weights [B,H,Tq,Tk] a term [B,H,Tq,width] that is added to
        the context, or None for none, which is what this base returns.
        """
        return None

    def of_rows(
        self, q: jax.Array, scores: jax.Array, mask: jax.Array | None, view: View, scale: float
    ) -> jax.Array:
        """Hook "row": computes new scores from scores [B,H,Tq,Tk]; this base returns them
        unchanged.

        Args:
          q: [B,H,Tq,D], all queries of a look, unscaled and before `of_query`.
          scores: with the bias, if there is one.
          mask: bool broadcastable to the scores, True may be seen; None allows all.
          view: positions of queries and keys.
          scale: the scale of the score.
        """
        return scores
