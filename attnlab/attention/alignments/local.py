"""Local attention: a window around one position of the source (Luong et al. 2015).

    local_m    p_i = min(i, n - 1)                                           a_ij = softmax over |j - p_i| <= D of e_ij
    local_p    p_i = n sigmoid(v_h . tanh(q_i W_p)),  centre floor(p_i)       a_ij = (softmax over |j - centre| <= D of e_ij) g_ij
               g_ij = exp(-(j - p_i)^2 / (2 s^2)),  s = D / 2
    local_p_renormalised    the same, divided by its sum

Positions count from 0, n is the number of real keys of the row, q_i the mechanism's own query. Keys
off the window weigh exactly 0. local_p sums to less than one: the authors report that dividing by
the sum is worse, here it is a name of its own. p_i learns through g alone. The plain kernel cuts
the window from all scores, so its cost is that of softmax; "auto" scores the window alone where
that is at most half of the keys (`kernels.gathered`). local_p adds 2 dq (dq + H) FLOPs for each
query and dq (dq + H) parameters. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective Approaches to
Attention-based Neural Machine Translation", EMNLP 2015, section 3.2, equations 9 and 10; centre and
start values (uniform in [-0.1, 0.1]) as in the authors' code. With several heads, which the paper
does not have, every head has its own v_h and so its own p_i. The positions are those of the memory:
a source that is stored reversed has windows over the reversed source. Real keys must stand first,
padding last.
"""

from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment, softmax
from attnlab.attention.view import View
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import Dense, widened


class Local(Alignment):
    """Base of windows around one position of the source; a subclass implements `centres` and
    `weights`.

    Attributes:
      reach: D, keys on either side of the centre.

    Attributes of the class:
      of_heads: every head has a window of its own.
    """

    reach: int = 10

    of_heads: ClassVar[bool] = False
    own_kernel = "attnlab.attention.kernels.gathered:Windows"
    lengths = {"reach": "within"}
    looks_at = frozenset({"positions", "lengths"})

    def centres(self, view: View, heads: int) -> tuple[jax.Array, Any]:
        """Returns the centres of the windows, int32 [B or 1, 1 or H, Tq, 1], and what else `weights`
        needs.
        """
        raise NotImplementedError

    def weights(
        self, scores: jax.Array, mask: jax.Array, columns: jax.Array, position: Any
    ) -> jax.Array:
        """Computes the weights [B,H,Tq,W] of the keys in the window.

        Args:
          scores: [B,H,Tq,W].
          mask: bool, False outside the window.
          columns: positions of the keys, broadcastable to the scores.
          position: what `centres` returned besides the centres.
        """
        return softmax(scores, mask)

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        centre, position = self.centres(view, scores.shape[1])
        near = abs(view.columns - centre) <= self.reach
        window = near if mask is None else near & mask
        return self.weights(scores, window, view.columns, position)


class LocalM(Local):
    """Monotonic windows: query i looks at the 2 D + 1 keys around key i; no parameters. The fields
    are those of `Local`.

    Card: local; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015; time T^2.
    """

    def setup(self) -> None:
        at_least(0, "alignment local_m", reach=self.reach)

    def centres(self, view: View, heads: int) -> tuple[jax.Array, None]:
        """See `Local.centres`."""
        last = jnp.maximum(view.lengths - 1, 0)[:, None, None, None]
        return jnp.minimum(view.rows, last), None


class Diagonal(LocalM):
    """a_ij = 1 / m_i in a window around i: a fixed diagonal; no parameters.

        a_ij = 1 / m_i for |j - p_i| <= D          p_i = min(i, n - 1), m_i the keys in the window that it may see

    A control for learned attention: scores have no effect and get no gradient. n is the number of
    real keys of the row; with D = 0 every query takes the key at its own position, or the last key
    if the source is shorter. Cost: that of `LocalM`, whose window it has. Source: A. Raganato, Y.
    Scherrer, J. Tiedemann, "Fixed Encoder Self-Attention Patterns in Transformer-Based Machine
    Translation", Findings of EMNLP 2020.

    Attributes:
      reach: D, keys on either side of the centre.

    Card: control; Raganato et al., Fixed Encoder Self-Attention Patterns, Findings of EMNLP 2020;
    time T^2.
    """

    reach: int = 0

    form = "fixed"

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return super().__call__(jnp.zeros_like(scores), mask, view)


class LocalP(Local):
    """Predictive windows: the query predicts a position in the source, and keys near it get more
    weight.

    Attributes:
      reach: D, keys on either side of the centre, and twice the standard deviation of the Gaussian.
      span: the factor of the sigmoid: "n" as in the paper, or "n - 1", so that p_i can reach both
        ends.

    Card: local; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015;
    time T^2 + T d^2.
    """

    span: Literal["n", "n - 1"] = "n"

    of_heads = True
    sums_to: ClassVar[Literal["one", "at most one", "any"]] = "at most one"

    def setup(self) -> None:
        """Checks that `reach` is at least 1; raises UserError if not."""
        if self.reach < 1:
            raise UserError(
                f"alignment local_p: reach={self.reach}, must be at least 1: it is twice the width"
                " of the Gaussian"
            )

    @nn.compact
    def centres(self, view: View, heads: int) -> tuple[jax.Array, jax.Array]:
        """Predicts for each query and each of `heads` heads a real position p = n sigmoid(v^T
        tanh(q W)) in a source of n tokens (n - 1 times the sigmoid by the field `span`), and
        returns two arrays [B,H,Tq,1]: the window's centre floor(p), at most n - 1, int32, and p.
        See `Local.centres`.
        """
        query = widened(view.query)
        raised = jnp.tanh(
            Dense(query.shape[-1], use_bias=False, kernel_init=_small, name="w_position")(query)
        )
        v = widened(self.param("v", _small, (query.shape[-1], heads)))
        # [B,H,Tq,1]
        p = (
            self.times(view, raised.dtype)
            * jax.nn.sigmoid(raised @ v).transpose(0, 2, 1)[..., None]
        )
        last = jnp.maximum(view.lengths - 1, 0)[:, None, None, None]
        # a sigmoid rounded to 1 would lie beyond the end
        centre = jnp.minimum(jnp.floor(jax.lax.stop_gradient(p)).astype(jnp.int32), last)
        return centre, p

    def weights(
        self, scores: jax.Array, mask: jax.Array, columns: jax.Array, position: jax.Array
    ) -> jax.Array:
        """See `Local.weights`; `position` is p."""
        distance = (columns - position) / (self.reach / 2)
        return self.weigh(scores, mask, distance**2 / 2)

    def times(self, view: View, dtype: Any) -> jax.Array:
        """The factor of the sigmoid, [B,1,1,1] float32."""
        span = view.lengths if self.span == "n" else jnp.maximum(view.lengths - 1, 0)
        return span.astype(dtype)[:, None, None, None]

    def weigh(self, scores: jax.Array, window: jax.Array, far: jax.Array) -> jax.Array:
        """Computes the weights [B,H,Tq,Tk] from scores, the mask `window` and `far`, minus the
        logarithm of the Gaussian, of the same shape.
        """
        return softmax(scores, window) * jnp.exp(-far)


class RenormalisedLocalP(LocalP):
    """`LocalP` divided by its sum, a_ij proportional to exp(e_ij) g_ij in the window.

    Card: local; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015; here divided
    by its sum; time T^2 + T d^2.
    """

    sums_to = "one"

    def weigh(self, scores: jax.Array, window: jax.Array, far: jax.Array) -> jax.Array:
        """See `LocalP.weigh`."""
        return softmax(widened(scores) - far, window)


def _small(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = float
) -> jax.Array:
    """The paper's start values, uniform in [-0.1, 0.1]."""
    return jax.random.uniform(key, shape, dtype, -0.1, 0.1)
