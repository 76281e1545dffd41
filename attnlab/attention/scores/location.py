"""The location score (Luong et al. 2015): e_ij = (q_i W_l)[j], W_l [dq, limit]; it depends on the
query only.

Keys are not used: they get no gradient, and a memory keeps one zero for each. Short sources use the
first columns of W_l. Positions of `limit` and beyond have no column and get the score `NEVER`,
-1e30: beside any position below the limit a softmax, sparsemax or entmax gives them weight exactly
0, and so does a sigmoid; no gradient reaches W_l from them. A query that may see *only* such
positions has equal scores, so a softmax gives them equal weights: choose a limit of at least the
longest source. Cost: 2 dq limit FLOPs per query and nothing for a pair. Parameters: dq limit. W_l
starts Glorot uniform. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective Approaches to
Attention-based Neural Machine Translation", EMNLP 2015, section 3.1, equation 8 (whose sentences
have up to 50 words). They start W_l at U(-0.1, 0.1).
"""

import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import NEVER, Score
from attnlab.attention.visibility.given import looked_up
from attnlab.errors import at_least
from attnlab.layers.dense import Dense
from attnlab.layers.precision import widened


class Location(Score):
    """e_ij = (q_i W_l)[j] for j below the limit, `NEVER` from there on.

    Attributes:
      limit: positions that can get weight, the columns of W_l; in a config that does not name it,
        at least `batch.max_length`.

    Card: location; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015;
    time T D L; state T.
    """

    limit: int = 50

    places = True
    lengths = {"limit": "covers"}

    def setup(self) -> None:
        at_least(1, "score location", limit=self.limit)
        self.w_l = Dense(self.limit, use_bias=False)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`; A = limit."""
        return self.w_l(q)

    def of_key(self, k: jax.Array) -> jax.Array:
        """k [B,K,Tk,dk] to zeros [B,K,Tk,1]: keys are not used, but a memory has one slot for each."""
        return jnp.zeros((*k.shape[:-1], 1), k.dtype)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        scores, exists = looked_up(q, j, axis=3)
        return jnp.where(exists, widened(scores), NEVER)
