"""A plain convolutional network: stages of convolutions, each of which halves the image.

    stage    x = relu(N(conv(x)))      `layers` times, k x k, the same number of channels
             x = gate(x)               none unless told otherwise
             x = pool(x)               2 x 2, the largest or the mean

Source: K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
Recognition", ICLR 2015. It has three hidden layers behind the last stage where a mean over the image
stands here (M. Lin, Q. Chen, S. Yan, "Network In Network", ICLR 2014), biases, and no norms.

Axis letters: B batch, H height, W width, C channels.
"""

from typing import Literal

import flax.linen as nn
import jax

from attnlab.errors import UserError, at_least
from attnlab.layers.backbones.protocol import Convolutional
from attnlab.layers.images import Convolution, normed, pooled


class CNN(Convolutional):
    """Convolutions and pooling (Simonyan and Zisserman 2015), with norms and without hidden layers.

    Attributes:
      widths: how many channels each stage has; there are as many stages.
      layers: how many convolutions a stage has.
      kernel: k, the height and width of the window of a convolution, odd.
      pooling: how the end of a stage halves the image: the largest number or the mean.
    """

    widths: tuple[int, ...] = (16, 32, 64)
    layers: int = 1
    kernel: int = 3
    pooling: Literal["max", "mean"] = "max"

    @nn.compact
    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes feature maps [B,h,w,C] of images [B,H,W,C'] by stages of convolutions with norm
        and ReLU, a gate if any, and pooling by 2; `valid` [B]: which images are real, for norms;
        raises `UserError` for invalid fields or too small images. See `Backbone.__call__`.
        """
        self._check()
        self.check_size(images, "cnn", 2 ** len(self.widths))
        x = images
        for stage, width in enumerate(self.widths):
            gate = self.gate_of(stage, len(self.widths))
            for layer in range(self.layers):
                number = f"{stage}_{layer}"
                x = Convolution(width, self.kernel, name=f"convolution_{number}")(x)
                x = nn.relu(normed(self.normaliser(name=f"normalisation_{number}"), x, valid))
            x = x if gate is None else gate(name=f"gate_{stage}")(x, valid)
            x = pooled(x, 2, 2) if self.pooling == "max" else nn.avg_pool(x, (2, 2), (2, 2))
        return x

    @nn.nowrap
    def _check(self) -> None:
        """Raises `UserError` for invalid fields: widths or layers below 1, no stage, or a kernel
        that is not odd.
        """
        if not self.widths or min(self.widths) < 1:
            raise UserError(f"cnn: widths={self.widths}: expected channels of at least 1 a stage")
        at_least(1, "cnn", layers=self.layers)
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise UserError(f"cnn: kernel={self.kernel}: expected an odd number of at least 1")
