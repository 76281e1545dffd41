"""Non-local blocks (Wang et al. 2018): attention among the N = H W places of a map, added to it.

    y_i = 1 / c_i sum_j f(x_i, s_j) g(s_j),    z_i = x_i + y_i W_z           g(s) = s W_g; W_g [C,C/r], W_z [C/r,C]

    non_local             f = exp(theta(x_i) . phi(s_j))                     c_i = sum_j f: self-attention (embedded Gaussian)
    non_local_gaussian    f = exp(x_i . s_j)                                 c_i = sum_j f
    non_local_dot         f = theta(x_i) . phi(s_j)                          c_i = n
    non_local_concat      f = relu(w . [theta(x_i) ; phi(s_j)])              c_i = n

theta and phi are matrices [C,C/r], r = 2; s are the n places that keys are taken from: those of x,
or the largest numbers of tiles of pool x pool places. W_z starts at zero, so a block starts as the
identity and may be put into a trained network. All four are the mechanism `single`, whose keys and
values may come from two arrays, with theta, phi and g in front: the first two with the score `dot`
and the alignment `softmax`, and `non_local` takes any others of the tables (scaled_dot, entmax,
...). What the tables do not have are the alignment e_ij / n and the score of non_local_concat; they
stand here.

Parameters: 4 C^2 / r; 2 C^2 / r of non_local_gaussian; 2 C / r more of non_local_concat. Source: X.
Wang, R. Girshick, A. Gupta, K. He, "Non-local Neural Networks", CVPR 2018, equations 1 to 6 and
section 3. There a batch norm follows W_z, whose scale starts at zero; here W_z itself starts at
zero, as they say below equation 6, and there is no norm. Tiles are of x; the paper pools what phi
and g give in its figure, and x in its formula, as the released code does. That code also
divides the scores of non_local by sqrt(C/r), `score=scaled_dot`; the paper does not. Matrices start
Glorot uniform; there are no biases.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.protocol import Alignment, full_mask
from attnlab.attention.kernels import KernelName
from attnlab.attention.mechanisms.single import Single
from attnlab.attention.needs import Need
from attnlab.attention.scores import SCORES
from attnlab.attention.scores.protocol import Score
from attnlab.attention.view import View
from attnlab.config.registry import Part
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, widened
from attnlab.layers.gates.protocol import Gate, check_maps, reduced
from attnlab.layers.images import tiled

SLOT = Need(role="cross", values=True)  # with tiles, queries and keys are two sequences


class ByNumber(Alignment):
    """a_ij = e_ij / n_i, n_i the keys that query i may see; no parameters.

    Card: element-wise; Wang et al., Non-local Neural Networks, CVPR 2018; time T^2.
    """

    form = "elementwise"
    sums_to = "any"

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Returns the weights [B,H,Tq,Tk]: each score divided by the number of keys that its query
        may see (counted in `mask`, or `key_counts` of the view if given), 0 where the mask is
        False. See `Alignment.__call__`.
        """
        allowed = full_mask(mask, scores.shape[-1])
        counts = allowed.sum(axis=-1, keepdims=True) if view.key_counts is None else view.key_counts
        scores = widened(scores)
        return jnp.where(allowed, scores / jnp.maximum(counts, 1).astype(scores.dtype), 0.0)


class Joined(Score):
    """e_ij = relu(w . [q_i ; k_j]), as relu(u . q_i + v . k_j): no array of N n C numbers.

    Card: perceptron; Wang et al., Non-local Neural Networks, CVPR 2018; time T^2 + T D; state T.
    """

    def setup(self) -> None:
        self.w_query = Dense(1, use_bias=False)
        self.w_key = Dense(1, use_bias=False)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`; A = 1."""
        return self.w_query(q)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`."""
        return self.w_key(k)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return nn.relu(widened(q) + widened(k).swapaxes(-1, -2))


class Block(Gate):
    """Base of the non-local blocks: x [B,H,W,C] to x + y W_z.

    Attributes:
      reduction: r.
      pool: side of a tile of places that is one key; 1 for every place.
      kernel: how attention is computed; none changes the result (see `kernels`).
    """

    reduction: int = 2
    pool: int = 1
    kernel: KernelName = "auto"

    embeds: ClassVar[bool] = True  # whether theta and phi exist
    parts_compared: ClassVar[tuple[Part, Part]]  # score and alignment
    maps = "exact"

    @nn.nowrap
    def compared(self) -> tuple[Part, Part]:
        """Score and alignment."""
        return self.parts_compared

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Returns the feature map x [B,height,width,channels] plus the projected context of
        attention from each of its pixels to all pixels, or, if `pool` > 1, to the largest number of
        each channel in every tile of side `pool`; `valid` is not used. See `Gate.__call__`.
        """
        check_maps(self, x)
        self._check(*x.shape[1:3])
        channels, inner = x.shape[-1], reduced(self, x.shape[-1], self.reduction)
        queries, source = _in_a_row(x), _in_a_row(tiled(x, self.pool))
        values = Dense(inner, use_bias=False, name="g")(source)
        keys = source
        if self.embeds:
            queries = Dense(inner, use_bias=False, name="theta")(queries)
            keys = Dense(inner, use_bias=False, name="phi")(source)
        score, alignment = self.compared()
        look = Single(inner, score=score, alignment=alignment, kernel=self.kernel, name="attention")
        y = look.read(queries, look.remember_pairs(keys, values), View(positions=0)).context
        out = Dense(channels, use_bias=False, kernel_init=nn.initializers.zeros, name="out")(y)
        return x + out.reshape(x.shape).astype(x.dtype)

    @nn.nowrap
    def _check(self, height: int, width: int) -> None:
        """Checks that `pool` is from 1 to the longer side of a map of this height and width, and
        that score, alignment and kernel fit each other; raises UserError if not.
        """
        score, alignment = self.compared()
        chosen = {"score": score, "alignment": alignment, "kernel": self.kernel}
        SLOT.check(Single, f"gate {type(self).__name__}", chosen)
        if not 1 <= self.pool <= max(height, width):
            raise UserError(
                f"gate {type(self).__name__}: pool={self.pool}: expected 1 to"
                f" {max(height, width)} on maps of {height} x {width}"
            )


class NonLocal(Block):
    """Self-attention among places, exp(theta(x_i) . phi(s_j)) over its sum; other fields as in
    `Block`.

    Attributes:
      score: how two places fit.
      alignment: scores to weights.

    Card: non-local; Wang et al., Non-local Neural Networks, CVPR 2018; time N^2 C / r + N C^2 / r.
    """

    score: Part = "dot"
    alignment: Part = "softmax"

    parts = {"score": SCORES, "alignment": ALIGNMENTS}

    @nn.nowrap
    def compared(self) -> tuple[Part, Part]:
        """See `Block.compared`."""
        return self.score, self.alignment


class NonLocalGaussian(Block):
    """exp(x_i . s_j) over its sum. The fields are those of `Block`.

    Card: non-local; Wang et al., Non-local Neural Networks, CVPR 2018; time N^2 C + N C^2 / r.
    """

    embeds = False
    parts_compared = "dot", "softmax"


class NonLocalDot(Block):
    """theta(x_i) . phi(s_j) / n. The fields are those of `Block`.

    Card: non-local; Wang et al., Non-local Neural Networks, CVPR 2018; time N^2 C / r + N C^2 / r.
    """

    parts_compared = "dot", ByNumber


class NonLocalConcat(Block):
    """relu(w . [theta(x_i) ; phi(s_j)]) / n. The fields are those of `Block`.

    Card: non-local; Wang et al., Non-local Neural Networks, CVPR 2018; time N^2 C / r + N C^2 / r.
    """

    parts_compared = Joined, ByNumber


def _in_a_row(x: jax.Array) -> jax.Array:
    """[B,H,W,C] to [B,HW,C]."""
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3])
