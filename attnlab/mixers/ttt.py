"""Mixers whose state is a model that learns at test time: a linear one, and one with a hidden layer. The
class of each has its formula and its source.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, d width, b tokens of a
mini-batch, C tokens that are computed at once, k taps.
"""

import dataclasses
import itertools
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import head_width
from attnlab.config.registry import Part, made
from attnlab.errors import UserError, at_least
from attnlab.layers.convolution import ShortConvolution, nothing_before
from attnlab.layers.dense import Dense, inner_dtype, joined, split, unbiased, widened
from attnlab.layers.norms import LayerNorm
from attnlab.layers.recurrence import Examples, begun, descend
from attnlab.mixers.passing import PASSING
from attnlab.mixers.stateful import State, Stateful, Steps

EPSILON = 1e-6  # of both norms


@flax.struct.dataclass
class LearningSteps(Steps):
    """What is asked (q), given (w) and wanted (v) of the inner model, and eta [B,H,T,1]."""

    eta: Any = None


class TttLinear(Stateful):
    """TTT-Linear, and the base of mixers with another inner model (`widths`).

    TTT-Linear (Sun et al. 2024): a state that is a linear model, and learns at test time. Each
    head trains it on the text it reads, to say v_t of k_t, and asks it for q_t.

        q, k  = rotated(conv(x W_qk)),  rotated(conv'(x W_qk))                      two convolutions of k taps, one projection
        v     = x W_v,   eta_t = r sigmoid(x W_r + a) / D                           one rate in (0, r / D) for each head
        f(x)  = x + LayerNorm(x W + u)                                              the inner model of a head
        l_t   = |f(k_t) - v_t|^2 / 2
        W_t   = W - c_i sum_{j<=t} eta_j dl_j/dW,   c_i = max(0, 1/i + p_i)         u likewise
        o_t   = f(q_t) with W_t                     y = (gelu(x W_g) * LayerNorm(o)) W_o

    The sum is over the tokens of a mini-batch of b, i = 1, ..., b is the place of t in its own,
    positions of rotation are such places too, and gradients are those at W, the weights at the
    beginning of the mini-batch: W_t after its last token is the next W. The first W and u, the p_i
    (from 0) and the inner layer norm (one g and one b for each head, in loss and output) are
    learned with the model around them. W starts from N(0, 0.02^2), u from 0.
    `layers.recurrence.descent` computes it, token by token or mini-batches as products of matrices
    (the dual form).

    Source: Y. Sun et al., "Learning to (Learn at Test Time): RNNs with Expressive Hidden States",
    2024 (arXiv 2407.04620), section 2, with the projections, convolutions and gate of its Mamba
    backbone; eta_j / D, c_i and the rotation are in the authors' code alone. Other matrices start
    as everywhere in this package. With b = 1, and neither norm nor residual, DeltaNet; with all of
    the text as one mini-batch from W = 0, linear attention.

    Attributes:
      heads: H; must divide the width.
      mini_batch: b, tokens that learn from the same weights.
      largest: r; the rate of learning is below r / D.
      kernel: k, taps of the short convolutions; 1 for none but a weight.
      positions: a scheme that acts on queries and keys, at places in the mini-batch.
      chunk: C, which must divide b: 1 for a scan over tokens; 0 for mini-batches, but token by
        token where fewer than b tokens follow others. It does not change the result.

    Card: state; Sun et al., Learning to (Learn at Test Time), 2024; time T d^2;
    state d^2 / H + k d; path 1; steps T / C.
    """

    heads: int = 4
    mini_batch: int = 16
    largest: float = 1.0
    kernel: int = 4
    positions: Part = "rope"

    called: ClassVar[str] = "ttt_linear"
    parts = {"positions": POSITIONS}
    capabilities = dataclasses.replace(PASSING, positions=frozenset({"query_key"}))

    def setup(self) -> None:
        """Checks the fields (raises UserError if they do not fit), and creates the projections, the
        short convolutions, the position scheme, and the inner model's first weights, norm and
        learning rates.
        """
        if min(self.mini_batch, self.kernel) < 1 or self.largest <= 0:
            raise UserError(
                f"{self.called}: mini_batch={self.mini_batch} and kernel={self.kernel} must be at"
                f" least 1, and largest={self.largest} above 0"
            )
        if self.chunk < 0 or (self.chunk and self.mini_batch % self.chunk):
            divisors = [n for n in range(1, self.mini_batch + 1) if not self.mini_batch % n]
            near = min(divisors, key=lambda n: abs(n - self.chunk))
            raise UserError(
                f"{self.called}: chunk={self.chunk} must divide mini_batch={self.mini_batch}, or be"
                f" 0 for the best; the nearest is {near}"
            )
        self.w_query, self.w_value, self.w_gate, self.out = unbiased(4, self.width)
        self.w_rate = Dense(self.heads)
        self.convolution_query, self.convolution_key = (
            ShortConvolution(self.kernel, activation="none", use_bias=True) for _ in range(2)
        )
        self.scheme = made(POSITIONS, self.positions)(name="positions")
        ones, zeros, normal = nn.initializers.ones, nn.initializers.zeros, nn.initializers.normal
        self.place = self.param("place", zeros, (self.mini_batch,))
        size = (self.heads, 1, self.widths()[-1])
        self.scale, self.offset = self.param("scale", ones, size), self.param("offset", zeros, size)
        self.first = tuple(
            (
                self.param(f"kernel_{number}", normal(0.02), (self.heads, m, n)),
                self.param(f"bias_{number}", zeros, (self.heads, 1, n)),
            )
            for number, (m, n) in enumerate(itertools.pairwise(self.widths()))
        )
        self.norm = LayerNorm(EPSILON)

    @nn.nowrap
    def widths(self) -> tuple[int, ...]:
        """D, those of hidden layers, and D again."""
        size = head_width(self.called, self.width, self.heads)
        return size, size

    def begin(self, rows: int, room: int, dtype: Any) -> State:
        """Creates the state before the first token of `rows` texts: the learned first weights of
        the inner model, zeros for the convolution, and no tokens read. See `Mixer.begin`.
        """
        kind = inner_dtype(jnp.zeros((), dtype))
        return State(
            begun(jax.tree.map(lambda x: x.astype(kind), self.first), rows),
            nothing_before(rows, self.width, self.kernel, dtype),
            jnp.zeros(rows, jnp.int32),
        )

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> LearningSteps:
        """Returns the `LearningSteps` for x [B,T,d], the training examples of the inner model:
        queries and keys rotated by their place in the mini-batch (of `positions`), values, the
        learning rate eta of each token and head, and the next `recent`, last inputs of the
        convolutions. See `Stateful.steps`.
        """
        projected_x, place = self.w_query(x), positions % self.mini_batch
        q, _ = self.convolution_query(projected_x, recent, valid)
        k, recent = self.convolution_key(projected_x, recent, valid)
        q, k, v = (split(projected, self.heads) for projected in (q, k, self.w_value(x)))
        eta = self.largest / q.shape[-1] * jax.nn.sigmoid(widened(self.w_rate(x)))
        q, k = self.scheme.of_query(q, place), self.scheme.of_key(k, place)
        return LearningSteps(q, k, v, recent=recent, eta=eta.swapaxes(1, 2)[..., None])

    def recurrence(
        self, steps: Steps, state: State, valid: jax.Array | None, at_start: bool
    ) -> tuple[jax.Array, Any]:
        """Trains the inner model by gradient descent on the examples `steps`, mini-batch by
        mini-batch from the weights in `state` (`at_start`: these are the first), at tokens that are
        `valid` [B,T]; returns its outputs [B,H,T,D] for the queries and the next `Learner`
        (weights, and sums of the open mini-batch). See `Stateful.recurrence`.
        """
        assert isinstance(steps, LearningSteps)
        norm = LayerNorm(EPSILON, use_scale=False, use_bias=False, parent=None)
        scale, offset = widened(self.scale), widened(self.offset)
        count = jnp.arange(1, self.mini_batch + 1, dtype=inner_dtype(steps.q))

        def inner(x: jax.Array) -> jax.Array:
            standard: Any = norm.apply({}, x)
            return standard * scale + offset

        return descend(
            Examples(steps.q, steps.w, steps.v, steps.eta),
            state.matrix,
            inner,
            jnp.maximum(0.0, 1.0 / count + widened(self.place)),
            read=None if at_start else state.read,
            valid=valid,
            chunk=self.chunk,
        )

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        gate = jax.nn.gelu(widened(self.w_gate(x)), approximate=True)
        return self.out((gate * self.norm(joined(o))).astype(x.dtype))


class TttMlp(TttLinear):
    """TTT-MLP. The fields not named here are those of `TttLinear`.

    TTT-MLP (Sun et al. 2024): TTT-Linear (`ttt_linear`) whose inner model has a hidden layer.

        f(x) = x + LayerNorm(gelu(x W_1 + u_1) W_2 + u_2)                           the hidden layer is `expansion` times as wide as a head

    W_1, u_1, W_2 and u_2 learn as W and u do there, the slope going backward through W_2 as it was
    at the beginning of the mini-batch. r is 0.1. Source: Y. Sun et al., "Learning to (Learn at
    Test Time): RNNs with Expressive Hidden States", 2024 (arXiv 2407.04620), section 2.7; the
    authors raise r from 0.01 in the first tenth of training, here it is the same all along.

    Attributes:
      largest: r; the rate of learning is below r / D.
      expansion: the width of the hidden layer, in widths of a head.

    Card: state; Sun et al., Learning to (Learn at Test Time), 2024; time T d^2;
    state d^2 / H + k d; path 1; steps T / C.
    """

    largest: float = 0.1
    expansion: int = 4

    called: ClassVar[str] = "ttt_mlp"

    @nn.nowrap
    def widths(self) -> tuple[int, ...]:
        """See `TttLinear.widths`."""
        at_least(1, self.called, expansion=self.expansion)
        depth, _ = super().widths()
        return depth, self.expansion * depth, depth
