"""Scores linear in a projected query: its product with the key (general or bilinear, biased general,
activated general), or one number for each position of the source (`Location`, which has its own formula,
cost and source).

    general            e_ij = (q_i W) . k_j                      W [dq,dk]
    biased general     e_ij = (q_i W + b) . k_j                  b [dk]
    activated general  e_ij = act((q_i W) . k_j + b)             b a scalar; act = tanh in the source

Cost: 2 dq dk FLOPs per query for q W (the keys are not projected, which is cheap if a decoder
attends to one source many times), and 2 dk for each pair. Parameters: dq dk, and dk or 1 more for
b. W starts Glorot uniform, b at zero. A tanh bounds the activated score to [-1, 1]: over N keys no
weight of a softmax exceeds e / (e + (N - 1) / e), 0.28 for N = 20, so it cannot become sharp,
however long it is trained. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective Approaches to
Attention-based Neural Machine Translation", EMNLP 2015, section 3.1 (general); A. Sordoni, P.
Bachman, A. Trischler, Y. Bengio, "Iterative Alternating Neural Attention for Machine Reading", 2016
(biased); D. Ma, S. Li, X. Zhang, H. Wang, "Interactive Attention Networks for Aspect-Level
Sentiment Classification", IJCAI 2017 (activated); the last two as G. Brauwers and F. Frasincar, "A
General Survey on Attention Mechanisms in Deep Learning", IEEE TKDE 2023, give them. Luong et al.
start W at U(-0.1, 0.1).
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import NEVER, Score, inner
from attnlab.attention.visibility.given import looked_up
from attnlab.errors import at_least
from attnlab.layers.dense import Dense, widened

ACTS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "identity": lambda x: x,
}


class General(Score):
    """e_ij = (q_i W) . k_j; the two sides may have different widths.

    Card: product; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015;
    time T^2 D + T D^2; state T D.
    """

    product = True
    rotary = True
    biased: ClassVar[bool] = False

    @nn.compact
    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`; A = dk."""
        return Dense(key_width, self.biased, name="w")(q)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return inner(q, k)


class BiasedGeneral(General):
    """e_ij = (q_i W + b) . k_j: b prefers some keys for every query.

    Card: product; Sordoni et al., Iterative Alternating Neural Attention, 2016; time T^2 D + T D^2;
    state T D.
    """

    biased = True


class ActivatedGeneral(General):
    """e_ij = act((q_i W) . k_j + b); b is one number.

    Attributes:
      act: the activation.

    Card: product; Ma et al., Interactive Attention Networks, IJCAI 2017; time T^2 D + T D^2;
    state T D.
    """

    act: Literal["tanh", "relu", "sigmoid", "identity"] = "tanh"

    product = False

    def setup(self) -> None:
        self.b = self.param("b", nn.initializers.zeros, (1,))

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return ACTS[self.act](inner(q, k) + widened(self.b))


class Location(Score):
    """Scores by the position of a key alone, for positions below the limit, `NEVER` from there on.

        e_ij = (q_i W_l)[j]

    W_l is [dq, limit]. The score depends on the query only: keys get no gradient, and a memory keeps
    one zero for each. Short sources use the first columns of W_l. Positions of `limit` and beyond have no column and get the
    score `NEVER`, -1e30: beside any position below the limit a softmax, sparsemax or entmax gives
    them weight exactly 0, and so does a sigmoid; no gradient reaches W_l from them. A query that may
    see *only* such positions has equal scores, so a softmax gives them equal weights: choose a limit
    of at least the longest source. W_l starts Glorot uniform. Cost: 2 dq limit FLOPs per query and
    nothing for a pair. Parameters: dq limit. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective
    Approaches to Attention-based Neural Machine Translation", EMNLP 2015, section 3.1, equation 8
    (whose sentences have up to 50 words). They start W_l at U(-0.1, 0.1).

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
