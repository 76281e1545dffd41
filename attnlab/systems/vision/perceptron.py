"""A perceptron with hidden layers, which reads an image as one long vector.

    x = relu(x W + b)      for each hidden layer
    logits = x W + b

Source: D. Rumelhart, G. Hinton, R. Williams, "Learning representations by back-propagating errors",
Nature 1986 (with a sigmoid); with relu and two layers of 256 the control of V. Mnih et al., NIPS 2014.

Axis letters: B batch, H height, W width, C channels.
"""

import flax.linen as nn
import jax

from attnlab.errors import UserError
from attnlab.layers.dense import Dense
from attnlab.systems.vision.protocol import ImageClassifier


class Perceptron(ImageClassifier):
    """A perceptron with hidden layers (Rumelhart et al. 1986) over all pixels of an image.

    Attributes:
      widths: the widths of the hidden layers, one for each.

    Card: Rumelhart et al., Learning by back-propagating errors, Nature 1986.
    """

    widths: tuple[int, ...] = (256, 256)

    @nn.compact
    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes the logits [B,C] of images [B,H,W,C'], flattened, by the hidden layers with
        ReLU; raises `UserError` for widths below 1; `valid` is not used. See
        `ImageClassifier.__call__`.
        """
        if min(self.widths, default=1) < 1:
            raise UserError(f"perceptron: widths={self.widths}: expected at least 1 each")
        x = images.reshape(len(images), -1)
        for number, width in enumerate(self.widths):
            x = nn.relu(Dense(width, name=f"hidden_{number}")(x))
        return Dense(self.classes, name="out")(x)
