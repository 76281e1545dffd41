"""Scores by a small perceptron: v . tanh(...) of query and key, of the key alone, and with what earlier
queries looked at.

The class of each has its formula, cost and source. Axis letters: see `protocol`.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import Score, same_width
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import GLOROT, Dense, inner_dtype, matmul, widened


class Additive(Score):
    """e_ij = v . tanh(q_i W_a + k_j U_a); the two sides may have different widths.

    Cost: `hidden` tanh evaluations for each pair; k U_a is computed once per source. Parameters:
    (dq + dk + 1) hidden. Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by
    Jointly Learning to Align and Translate", ICLR 2015 (arXiv 1409.0473), section 3.1 and appendix
    A.1.2. As there, no biases; W_a and U_a start at N(0, 0.001^2), v at zero, so that attention
    starts exactly uniform.

    Attributes:
      hidden: A, the width of the hidden layer in which queries and keys are added.

    Card: perceptron; Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015;
    time T^2 A + T D A; state T A.
    """

    hidden: int = 256

    def setup(self) -> None:
        """Checks that `hidden` is at least 1 (raises UserError if not), and creates the projections
        of query and key and the vector v.
        """
        at_least(1, "score additive", hidden=self.hidden)
        tiny = nn.initializers.normal(0.001)
        self.w_query = Dense(self.hidden, use_bias=False, kernel_init=tiny)
        self.w_key = Dense(self.hidden, use_bias=False, kernel_init=tiny)
        self.v = self.param("v", nn.initializers.zeros, (self.hidden,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        return self.w_query(q)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`."""
        return self.w_key(k)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return perceptron(q, k, self.v)


def perceptron(
    q: jax.Array, k: jax.Array, v: jax.Array, extra: jax.Array | float = 0.0
) -> jax.Array:
    """Computes v . tanh(q + k + extra) [B,H,Tq,Tk], summed in float32, for q [B,H,Tq,A], k
    [B,H,Tk,A], v [A], and `extra` [B,H,Tq,Tk,A] or a number.
    """
    total = q[:, :, :, None, :] + k[:, :, None, :, :]
    hidden = jnp.tanh(total if isinstance(extra, float) else total + extra)
    return jnp.matmul(hidden, v, preferred_element_type=inner_dtype(hidden, v))


class Stacked(nn.Module):
    """W_a [2 d, features] for two inputs of width d that are never concatenated.

    Attributes:
      features: A.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array, half: int) -> jax.Array:
        """x [...,d] times half 0 (the upper) or 1 of the rows of W_a: [...,A]."""
        width = x.shape[-1]
        kernel = self.param("kernel", GLOROT, (2 * width, self.features))
        return matmul(x, kernel[half * width : (half + 1) * width])


class Concat(Additive):
    """e_ij = v . tanh([q_i ; k_j] W_a); both sides equally wide (for others the additive score is the
    same function).

        e_ij = v . tanh([q_i ; k_j] W_a)        W_a [2 d, A], the rows of the query first, v [A]

    [q ; k] W_a is q times the upper half of W_a plus k times the lower half. So `concat` equals the
    additive score; each half is applied once per query and once per source. Only the initializers
    differ: here W_a is Glorot uniform as one matrix and v is N(0, 1 / A); with `additive` attention
    starts uniform. Cost: A tanh evaluations for each pair. Parameters: (2 d + 1) A. Source: M.-T.
    Luong, H. Pham, C. D. Manning, "Effective Approaches to Attention-based Neural Machine
    Translation", EMNLP 2015, section 3.1. They have no biases and start everything at U(-0.1, 0.1).

    Attributes:
      hidden: A, the columns of W_a.

    Card: perceptron; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015;
    time T^2 A + T D A; state T A.
    """

    def setup(self) -> None:
        at_least(1, "score concat", hidden=self.hidden)
        self.w_a = Stacked(self.hidden)
        self.v = self.param("v", nn.initializers.normal(self.hidden**-0.5), (self.hidden,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width("concat", q.shape[-1], key_width)
        return self.w_a(q, 0)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`."""
        return self.w_a(k, 1)


class ConcatIdentity(Score):
    """e_ij = v . tanh(q_i W_a + k_j); the two sides may have different widths.

        e_ij = v . tanh(q_i W_a + k_j)          W_a [dq, dk], v [dk]

    Cost: dk tanh evaluations for each pair. Parameters: (dq + 1) dk. Source: the released code of
    Luong et al., EMNLP 2015 (see `Concat`), where the half of W_a that meets the source is the
    identity; a footnote of the paper names this as the likely reason for the poor perplexities of
    concat.

    Card: perceptron; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015 (their
    released code); time T^2 D + T D^2; state T D.
    """

    def setup(self) -> None:
        self.v = Dense(1, use_bias=False)

    @nn.compact
    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`; A = dk."""
        return Dense(key_width, use_bias=False, name="w_a")(q)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return widened(self.v(jnp.tanh(q[:, :, :, None, :] + k[:, :, None, :, :]))[..., 0])


class LocationAware(Additive):
    """e_ij = v . tanh(q_i W_a + k_j U_a + f_ij U_f + b), f_i the last weights through filters.

        f_i  = F * a_{i-1}                                                n filters of w = 2 r + 1 keys; a_0 = 0
        e_ij = v . tanh(q_i W_a + k_j U_a + f_ij U_f + b)

    a_{i-1} are the weights of the query before, of the same head, by whatever alignment the
    mechanism has. Queries are computed one by one. Cost: 2 w n + 2 n A FLOPs for each pair beside
    those of the additive score. Parameters: (dq + dk + n + 2) A + w n. Source: J. Chorowski, D.
    Bahdanau, D. Serdyuk, K. Cho, Y. Bengio, "Attention-Based Models for Speech Recognition",
    NeurIPS 2015 (arXiv 1506.07503), section 2.1, equations 8 and 9; they have 10 filters of 201
    frames of speech, here the filters are as wide as words need. The paper leaves the start open:
    here W_a, U_a and U_f start at N(0, 0.001^2), F at N(0, 1 / w), b and v at zero, so that
    attention starts uniform. The paper's sharpening of weights is not here; the cosine score has
    it.

    Attributes:
      hidden: width A of the alignment model.
      filters: n.
      reach: r, keys on either side that a filter sees.

    Card: perceptron; Chorowski et al., Attention-Based Models for Speech Recognition, NeurIPS 2015;
    time T^2 (A n + n w) + T D A; state T A.
    """

    filters: int = 10
    reach: int = 10

    looks_back = True
    lengths = {"reach": "within"}

    def setup(self) -> None:
        """Checks `filters` and `reach` (raises UserError if they are too small), and creates the
        parameters of the additive score, the convolution filter, its projection and a bias.
        """
        super().setup()
        at_least(1, "score location_aware", filters=self.filters)
        at_least(0, "score location_aware", reach=self.reach)
        width, tiny = 2 * self.reach + 1, nn.initializers.normal(0.001)
        self.filter = self.param(
            "filter", nn.initializers.normal(width**-0.5), (width, self.filters)
        )
        self.of_filter = self.param("of_filter", tiny, (self.filters, self.hidden))
        self.bias = self.param("bias", nn.initializers.zeros, (self.hidden,))

    def pairs(
        self, q: jax.Array, k: jax.Array, j: jax.Array, past: jax.Array | None = None
    ) -> jax.Array:
        """Computes the additive scores [B,H,Tq,Tk] float32 of queries q and keys k, with the
        weights `past` [B,H,Tq,Tk] of the query before, convolved along the keys, inside the tanh;
        without them if `past` is None; positions j are not used. See `Score.pairs`.
        """
        if past is None:
            return perceptron(q + self.bias, k, self.v)
        padding = [(0, 0)] * (past.ndim - 1) + [(self.reach, self.reach)]
        window = jnp.arange(past.shape[-1])[:, None] + jnp.arange(2 * self.reach + 1)
        windows = jnp.pad(past, padding)[..., window]  # [B,H,Tq,Tk,w]
        convolved = (windows @ widened(self.filter)) @ widened(self.of_filter)
        return perceptron(q + self.bias, k, self.v, convolved.astype(q.dtype))

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """See `Score.after`: the weights themselves."""
        return weights


LEAST = -30.0  # bound of k . u_f: no division by zero for a key that needs no attention


class Coverage(Additive):
    """e_ij = v . tanh(q_i W_a + k_j U_a + C_ij v_c), C_i the weights so far over the fertility.

        P_j  = N sigmoid(k_j . u_f)                         how often key j should be looked at
        C_ij = C_{i-1,j} + a_{i-1,j} / P_j,   C_1j = 0
        e_ij = v . tanh(q_i W_a + k_j U_a + C_ij v_c)

    That is the paper's linguistic coverage with fertility, N its `fertility` (2 in the paper); with
    fertility=0 P_j = 1, the coverage of See et al. 2017. a_{i-1} are the weights of the query
    before, of the same head, by whatever alignment the mechanism has. Queries are computed one by
    one. Cost: 2 A + 1 FLOPs for each pair beside those of the additive score. Parameters: (dq + dk
    + 2) A + dk. Source: Z. Tu, Z. Lu, Y. Liu, X. Liu, H. Li, "Modeling Coverage for Neural Machine
    Translation", ACL 2016 (arXiv 1601.04811), section 3.1; A. See, P. J. Liu, C. D. Manning, "Get
    To The Point", ACL 2017. Its coverage by a neural network is not here. Starts as the additive
    score does, v_c at N(0, 0.001^2) and u_f at zero.

    Attributes:
      hidden: width A of the alignment model.
      fertility: N, the largest sum of weights for one key; 0 means 1 for every key.

    Card: perceptron; Tu et al., Modeling Coverage for Neural Machine Translation, ACL 2016;
    time T^2 A + T D A; state T A.
    """

    fertility: float = 2.0

    looks_back = True

    def setup(self) -> None:
        super().setup()
        if not 0.0 <= self.fertility < math.inf:
            raise UserError(f"score coverage: fertility={self.fertility}, must be at least 0")
        self.of_covered = self.param("of_covered", nn.initializers.normal(0.001), (self.hidden,))

    @nn.compact
    def of_key(self, k: jax.Array) -> jax.Array:
        """Projects keys k [B,K,Tk,dk] to [B,K,Tk,A], A = `hidden`, or, if `fertility` is not 0, to
        [B,K,Tk,A+1], whose last number is k . u_f with u_f learned. See `Score.of_key`.
        """
        if not self.fertility:
            return self.w_key(k)
        kernel = self.param("fertile", nn.initializers.zeros, (k.shape[-1], 1))
        return jnp.concatenate([self.w_key(k), matmul(k, kernel)], axis=-1)

    def pairs(
        self, q: jax.Array, k: jax.Array, j: jax.Array, past: jax.Array | None = None
    ) -> jax.Array:
        """Computes the additive scores [B,H,Tq,Tk] float32 of queries q and keys k, with the
        coverage before each query, `past` [B,H,Tq,Tk] (None for zero), times a learned vector
        inside the tanh; positions j are not used. See `Score.pairs`.
        """
        if past is None:
            return perceptron(q, k[..., : self.hidden], self.v)
        coverage = past[..., None] * widened(self.of_covered)
        return perceptron(q, k[..., : self.hidden], self.v, coverage.astype(q.dtype))

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """Returns the coverage [B,H,Tk] for the next query: `past`, the coverage so far, plus the
        weights [B,H,Tk] of this query, which alone are first divided by the fertility of each key,
        the last number of what `of_key` made of it (`keys`), if `fertility` is set. See `Score.after`.
        """
        if not self.fertility:
            return past + weights
        fertile = jnp.maximum(widened(keys[..., self.hidden]), LEAST)
        often = self.fertility * jax.nn.sigmoid(fertile)  # [B,K,Tk]
        return past + weights / jnp.repeat(often, past.shape[1] // often.shape[1], axis=1)


class SourceOnly(Score):
    """e_ij = v . tanh(k_j U_a), the same for every query.

    It is the additive score without its query: one learned summary of the source. As a control it
    lies between a fixed vector and a new context at every step. With one learned query instead of a
    state it is the attention of hierarchical attention networks. Cost: `hidden` tanh evaluations
    for each key. Parameters: (dk + 1) hidden; U_a starts Glorot uniform, v at zero, so that
    attention starts uniform. Source: Z. Yang et al., "Hierarchical Attention Networks for Document
    Classification", NAACL 2016, equations 5 and 6, without the bias.

    Attributes:
      hidden: width A of the alignment model.

    Card: control; Yang et al., Hierarchical Attention Networks for Document Classification, NAACL
    2016; time T^2 + T D A; state T.
    """

    hidden: int = 64

    def setup(self) -> None:
        at_least(1, "score source_only", hidden=self.hidden)
        self.w_key = Dense(self.hidden, use_bias=False)
        self.v = self.param("v", nn.initializers.zeros, (self.hidden,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`: zeros [B,H,Tq,1], a query is not used."""
        return jnp.zeros((*q.shape[:-1], 1), q.dtype)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`: the score itself, [B,K,Tk,1]."""
        raised = jnp.tanh(widened(self.w_key(k)))
        return (raised @ widened(self.v))[..., None].astype(k.dtype)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return widened(q) + widened(k).swapaxes(-1, -2)
