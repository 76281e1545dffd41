"""A recurrent network that looks at a few small places of an image (Mnih et al. 2014), and so learns
where to look.

    sensor       rho_t = k patches of n x n around l_t; a pixel of patch j is the mean over a square
                         of side 2^j, and the image is 0 outside
    glimpse      g_t   = relu(W_1 relu(W_rho rho_t) + W_2 relu(W_l l_t))              biases left out here
    core         h_t   = cell(h_{t-1}, g_t)
    where next   mu_t  = tanh(W_mu sg(h_t)),  l_{t+1} ~ N(mu_t, sigma^2), clipped to [-1, 1];  l_1 = 0
    baseline     b_t   = w sg(h_t)
    answer       logits = W h_T

sg stops gradients. A location is (row, column): -1 is the upper or left edge of the image, 1 the
lower or right one. Locations are drawn where the caller passes the random stream "sample"; else
l_{t+1} = mu_t. Nothing but REINFORCE trains where to look: log p(l_{t+1}) of what was drawn, before
it was clipped, and b_t go to the collection "samples" (see `tasks.auxiliary`). Locations [B,T,2] go
to the collection "glimpses" while that is mutable; `squares` makes rectangles of them, and `coverage`
what is drawn on the image.

Source: V. Mnih, N. Heess, A. Graves, K. Kavukcuoglu, "Recurrent Models of Visual Attention", NIPS
2014, section 3. The paper cuts patches at whole pixels, draws the first location too, has a core
h_t = relu(W h_{t-1} + W g_t) on images (an LSTM in its game), and in tests averages over several draws.

Axis letters: B batch, H height, W width, C channels, T glimpses, k scales, n size of a patch.
"""

import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.config.registry import Part, made
from attnlab.errors import UserError, at_least
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense, inner_dtype
from attnlab.systems.protocol import GLIMPSES
from attnlab.systems.vision.protocol import ImageClassifier


def covered(centre: jax.Array, size: int, side: int, length: int) -> jax.Array:
    """Computes which share of each of `size` pixels of a patch around `centre` [B], `side` image
    pixels wide each, lies in each of `length` pixels of the image, along one axis: [B,size,length],
    which sums to 1 over `length` inside the image.

    Pixel i of the patch is the stretch of `side` pixels that begins at centre + (i - size / 2) side;
    shares are of its length, so they sum to 1 where all of it lies within the image.

    Args:
      centre: [B], in pixels from the edge of the image.
      size: pixels of the patch.
      side: how many pixels of the image are one of the patch.
      length: pixels of the image.
    """
    begin = centre[:, None] + jnp.asarray((np.arange(size) - size / 2) * side, centre.dtype)
    edge = jnp.arange(length, dtype=centre.dtype)
    start = jnp.maximum(begin[..., None], edge)
    end = jnp.minimum(begin[..., None] + side, edge + 1)
    return jnp.maximum(end - start, 0.0) / side


def patches(images: jax.Array, locations: jax.Array, size: int, scales: int) -> jax.Array:
    """Cuts k = `scales` square patches of n x n pixels, n = `size`, each twice as coarse as the one
    before, out of images [B,H,W,C] around `locations` [B,2] (row and column, -1 to 1), to
    [B,k,n,n,C].
    """
    dtype, sizes = inner_dtype(images), images.shape[1:3]
    centres = (locations.astype(dtype) + 1) / 2 * jnp.asarray(sizes, dtype)
    rows, columns = (
        jnp.stack(
            [covered(centres[:, axis], size, 2**scale, sizes[axis]) for scale in range(scales)], 1
        )
        for axis in (0, 1)
    )
    cut = jnp.einsum("bkih,bhwc->bkiwc", rows, images.astype(dtype))
    return jnp.einsum("bkjw,bkiwc->bkijc", columns, cut)


def squares(locations: np.ndarray, size: int, scales: int, height: int, width: int) -> np.ndarray:
    """Returns the patches around locations [...,2] as (top, left, bottom, right) in pixels of an
    image of this height and width, [...,k,4], k = `scales`, the finest `size` wide; they may reach
    beyond the image.
    """
    centre = (np.asarray(locations, np.float64) + 1) / 2 * (height, width)
    reach = size * 2.0 ** np.arange(scales) / 2
    corners = [centre[..., None, :] + sign * reach[:, None] for sign in (-1, 1)]
    return np.concatenate(corners, axis=-1)


def coverage(locations: np.ndarray, size: int, scales: int, height: int, width: int) -> np.ndarray:
    """Returns, for each pixel of an image of this height and width, the share of the k = `scales`
    patches around each of the locations [T,2] (-1 to 1) that contain the pixel's middle, [T,H,W];
    it is 1 inside the finest patch, `size` pixels wide.
    """
    edges = squares(locations, size, scales, height, width)[:, :, :, None, None]
    row, column = np.mgrid[:height, :width] + 0.5
    inside = (edges[:, :, 0] <= row) & (row < edges[:, :, 2])
    inside &= (edges[:, :, 1] <= column) & (column < edges[:, :, 3])
    share: np.ndarray = inside.mean(axis=1)
    return share


class Glimpses(ImageClassifier):
    """A recurrent network that looks at a few places of an image (Mnih et al. 2014).

    Attributes:
      glimpses: T, how many times it looks at an image.
      size: n, the height and width of a patch that it sees, in pixels.
      scales: k, how many patches it sees at once; each shows a square of twice the side of the one
          before.
      hidden: numbers that stand for what is seen, and as many for where.
      width: of the glimpse vector g and of the state h.
      cell: the core.
      deviation: sigma, how far places are drawn from the middle of where it would look, in units of
          half an image.

    Card: Mnih et al., Recurrent Models of Visual Attention, NIPS 2014.
    """

    glimpses: int = 6
    size: int = 8
    scales: int = 3
    hidden: int = 128
    width: int = 256
    cell: Part = "lstm"
    deviation: float = 0.1

    parts = {"cell": CELLS}

    def setup(self) -> None:
        """Creates the layers of sensor, recurrent core, locations, baseline and classes; raises
        `UserError` for sizes below 1 or an invalid deviation.
        """
        at_least(1, "glimpses", glimpses=self.glimpses, size=self.size, scales=self.scales)
        at_least(1, "glimpses", hidden=self.hidden, width=self.width)
        if not 0 < self.deviation < math.inf:
            raise UserError(f"glimpses: deviation={self.deviation}: expected a number above 0")
        self.what, self.where = Dense(self.hidden), Dense(self.hidden)
        self.of_what, self.of_where = Dense(self.width), Dense(self.width)
        self.core = made(CELLS, self.cell)(self.width)
        self.location, self.expected, self.out = Dense(2), Dense(1), Dense(self.classes)

    @property
    def looks(self) -> bool:
        """See `System.looks`; its glimpses are drawn."""
        return True

    @nn.nowrap
    def overlaid(
        self, collected: Mapping[str, Any], height: int, width: int
    ) -> dict[str, tuple[Any, list[str]]]:
        """See `System.overlaid`: for each glimpse the share of its patches in which a pixel lies."""
        (locations,) = collected[GLIMPSES]["locations"]
        shares = coverage(np.asarray(locations[0]), self.size, self.scales, height, width)
        return {"glimpses": (shares, [f"glimpse {number}" for number in range(1, len(shares) + 1)])}

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes the logits [B,C] of images [B,H,W,C'] after a number of glimpses; sows in
        collections the locations of all glimpses, and log p and the baseline of each choice but the
        last, for learning by reward; `valid` is not used. See `ImageClassifier.__call__`.
        """
        rows = len(images)
        sensed = self._sense(images, jnp.zeros((rows, 2), images.dtype))
        dtype = sensed.dtype  # that of the parameters
        begin = self.core.State.zeros(rows, self.width, dtype), jnp.zeros((rows, 2), dtype)

        def glimpse(self: Glimpses, carried: tuple[Any, jax.Array], _: None) -> Any:
            """Takes one glimpse from `carried`, the state and the location: returns the next of
            both, and as outputs the location of this one, log p of the next and the baseline.
            """
            state, location = carried
            state = self.core.step(state, self._sense(images, location))
            following, log_prob = self._choose(jax.lax.stop_gradient(state.h))
            baseline = self.expected(jax.lax.stop_gradient(state.h))[:, 0]
            return (state, following), (location, log_prob, baseline)

        scan = nn.scan(
            glimpse,
            variable_broadcast="params",
            split_rngs={"params": False, "sample": True},
            length=self.glimpses,
            out_axes=1,
        )
        (state, _), (locations, log_prob, baseline) = scan(self, begin, None)
        if not self.is_initializing():
            # Nothing is looked at behind the last glimpse, so what is decided there counts for nothing.
            self.sow(SAMPLES, "log_prob", log_prob[:, None, :-1])
            self.sow(SAMPLES, "baseline", baseline[:, None, :-1])
            self.sow(GLIMPSES, "locations", locations)
        return self.out(state.h)

    def _sense(self, images: jax.Array, locations: jax.Array) -> jax.Array:
        """The glimpse vector [B,width] of images at locations [B,2]."""
        pixels = patches(images, locations, self.size, self.scales).reshape(len(images), -1)
        content, where = nn.relu(self.what(pixels)), nn.relu(self.where(locations))
        return nn.relu(self.of_what(content) + self.of_where(where))

    def _choose(self, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Chooses the next location [B,2] from the state h [B,width], without a gradient (drawn if
        there is a "sample" stream, else the mean); returns it, cut to [-1, 1], and the log density
        [B] of the choice before the cut, under a Gaussian around the mean.
        """
        mean = jnp.tanh(self.location(h))
        location = mean
        if self.has_rng("sample"):
            noise = jax.random.normal(self.make_rng("sample"), mean.shape, mean.dtype)
            location = mean + self.deviation * noise
        location = jax.lax.stop_gradient(location)
        away = jnp.square((location - mean) / self.deviation).sum(axis=-1) / 2
        return jnp.clip(location, -1, 1), -away - math.log(2 * math.pi * self.deviation**2)
