"""The soft mask of a residual attention network (Wang et al. 2017) as a gate: down, up, sigmoid.

    h_0 = x;   h_l = units(pool(h_{l-1})), l = 1 .. D          pool: 3 x 3 max, every second place; at l = D twice as many units
    u_D = h_D; u_l = units(up(u_{l+1}) + unit(h_l)), l = D-1 .. 1          up: bilinear, to the size of h_l
    M = sigmoid( norm-relu-W_2 norm-relu-W_1 up(u_1) ) [B,H,W,C]           W_1, W_2 [C,C]
    y = x * (a + M)                                            a = 1 by default; 0 is the paper's naive attention learning

    unit(x) = x + W'' relu norm (w * relu norm (W' relu norm x))           W' [C,C/q], w [3,3,C/q,C/q], W'' [C/q,C]

In the paper H = (a + M(x)) T(x): the trunk T, t = 2 residual units, lies beside the mask, and p = 1
unit stands before and after both. Trunk and units belong to a backbone. A gate has what the mask
reads and what it multiplies in one array, so T(x) = x; a network with a trunk of its own is another
model than a backbone with this gate. `activation` is how the last logits become M:

    mixed      sigmoid(e_ijc)
    channel    e_ijc / |e_ij|                                  over the channels of a place, in [-1, 1]
    spatial    sigmoid((e_ijc - mean_c) / deviation_c)         over the places of a channel

Source: F. Wang, M. Jiang, C. Qian, S. Yang, C. Li, H. Zhang, X. Wang, X. Tang, "Residual Attention
Network for Image Classification", CVPR 2017, equations 1 to 6, r = 1 unit; q = 4 as in its network
definition, D = 3, 2, 1 where maps are 56, 28, 14 wide (until 7 or less are left). Corners lie on
corners in `up`, odd sizes are rounded up in `pool`; the paper leaves both open. No convolution has
a bias; all start He normal. Cost: about 2 N C^2 FLOPs for each of the two matrices of the end, and
less on the smaller maps.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers import NORMS
from attnlab.layers.dense import widened
from attnlab.layers.gates.protocol import Factor, sigmoid
from attnlab.layers.images import HE, convolved, enlarged, normed, pooled

LEFT = 7  # places of a side at which the paper stops halving
SMALL = 1e-12  # below the root of a length or a variance


class Step(nn.Module):
    """norm, relu, a convolution without bias: [B,H,W,C] to [B,H,W,features].

    Attributes:
      features: channels of the result.
      kernel: k, the height and width of the window of its convolution, odd.
      normalisation: the norm.
    """

    features: int
    kernel: int
    normalisation: Part

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """x [B,H,W,C], valid [B]."""
        norm = made(NORMS, self.normalisation)(name="normalisation")
        shape = (self.kernel, self.kernel, x.shape[-1], self.features)
        kernel = self.param("kernel", HE, shape)
        return convolved(nn.relu(normed(norm, x, valid)), kernel)


class Unit(nn.Module):
    """A residual unit with pre-activation and a bottleneck.

    Attributes:
      hidden: channels in between, C / q.
      normalisation: the norm.
    """

    hidden: int
    normalisation: Part

    @nn.nowrap
    def steps(self, channels: int) -> list[tuple[int, int]]:
        """Features and kernel of the three convolutions."""
        return [(self.hidden, 1), (self.hidden, 3), (channels, 1)]

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """x [B,H,W,C] to the same shape."""
        y = x
        for number, (features, kernel) in enumerate(self.steps(x.shape[-1])):
            y = Step(features, kernel, self.normalisation, name=f"step_{number}")(y, valid)
        return x + y


class ResidualAttention(Factor):
    """g = a + M, M a mask from a small network that looks at ever larger surroundings.

    Attributes:
      depth: D, how often the map is halved; 0: until 7 or less are left, at least once.
      units: how many residual units stand on a level, on the way down and on the way up.
      bottleneck: q.
      identity: a.
      activation: how logits become M.
      normalisation: the norm before each convolution.

    Card: mask; Wang et al., Residual Attention Network, CVPR 2017; time N C^2.
    """

    depth: int = 0
    units: int = 1
    bottleneck: int = 4
    identity: float = 1.0
    activation: Literal["mixed", "channel", "spatial"] = "mixed"
    normalisation: Part = "batch_norm"

    parts = {"normalisation": NORMS}

    @nn.nowrap
    def sizes(self, height: int, width: int) -> list[tuple[int, int]]:
        """Returns a list of (height, width) of the maps h_0, of `height` x `width`, to h_D, each
        half of the one before, rounded up (`depth` 0: halved until small); raises `UserError` if
        the depth is too large for the map.
        """
        sizes = [(height, width)]
        while len(sizes) <= self.depth or (not self.depth and self._goes_on(sizes)):
            if max(sizes[-1]) == 1:
                raise UserError(
                    f"gate ResidualAttention: depth={self.depth or 1} is too much for maps of"
                    f" {height} x {width}, which can be halved {len(sizes) - 1} times"
                )
            sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
        return sizes

    @nn.nowrap
    def _goes_on(self, sizes: list[tuple[int, int]]) -> bool:
        return len(sizes) == 1 or max(sizes[-1]) > LEFT

    @nn.nowrap
    def hidden(self, channels: int) -> int:
        """Returns the inner width C / q for C channels; raises `UserError` for a bottleneck q above
        C or fields below 1.
        """
        if self.units < 1 or not 1 <= self.bottleneck <= channels:
            raise UserError(
                f"gate ResidualAttention: units={self.units} and bottleneck={self.bottleneck}:"
                f" expected at least 1, and a bottleneck of at most the {channels} channels"
            )
        return channels // self.bottleneck

    @nn.compact
    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes g = a + M [B,H,W,C] of x [B,H,W,C], a the field `identity`, M the mask made by
        residual units on maps that are halved D times and enlarged again, with connections between
        equal sizes; `valid` [B]: which images are real, for norms. See `Factor.factor`.
        """
        sizes, channels, maps = self.sizes(*x.shape[1:3]), x.shape[-1], [x]
        last, hidden = len(sizes) - 1, self.hidden(channels)

        def unit(h: jax.Array, name: str) -> jax.Array:
            return Unit(hidden, self.normalisation, name=name)(h, valid)

        def through(h: jax.Array, name: str) -> jax.Array:
            for number in range(self.units):
                h = unit(h, f"{name}_{number}")
            return h

        for level in range(1, last + 1):
            maps.append(through(pooled(maps[-1], 3, 2), f"down_{level}"))
        u = through(maps[-1], f"up_{last}")
        for level in range(last - 1, 0, -1):
            skip = unit(maps[level], f"skip_{level}")
            u = through(enlarged(u, *sizes[level]) + skip, f"up_{level}")
        u = enlarged(u, *sizes[0])
        for name in ("first", "second"):
            u = Step(channels, 1, self.normalisation, name=name)(u, valid)
        return self.identity + self._mask(widened(u))

    def _mask(self, logits: jax.Array) -> jax.Array:
        """Computes the mask M [B,H,W,C] of logits [B,H,W,C] by the field `activation`: logits
        divided by their length over channels for "channel", else their sigmoid, for "spatial" after
        standardising each channel over its pixels.
        """
        if self.activation == "channel":
            squared = jnp.square(logits).sum(axis=-1, keepdims=True)
            return logits / jnp.sqrt(jnp.maximum(squared, SMALL))
        if self.activation == "spatial":
            centred = logits - logits.mean(axis=(1, 2), keepdims=True)
            variance = jnp.square(centred).mean(axis=(1, 2), keepdims=True)
            logits = centred / jnp.sqrt(jnp.maximum(variance, SMALL))
        return sigmoid(logits)
