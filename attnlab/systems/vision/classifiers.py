"""Classifiers of images without attention: convolutional networks, which read the mean of their last
feature map, and a perceptron, which reads an image as one long vector.

The backbones of convolutional networks stand in `attnlab.layers.backbones`, with their formulas and
sources; here is what makes systems of them:

    logits = mean over h and w of x, times W, plus b

The weights of the read-out start Glorot uniform.

Axis letters: B batch, H and W height and width of an image, h and w those of the feature map, C
channels.
"""

import flax.linen as nn
import jax

from attnlab.errors import UserError
from attnlab.layers.backbones import protocol, resnet
from attnlab.layers.dense import Dense, widened
from attnlab.systems.vision.protocol import ImageClassifier


class Pooled(nn.Module):
    """Mixin of the classifiers that read the mean over a feature map. Named before the backbone."""

    @nn.compact
    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """See `ImageClassifier.__call__`."""
        x: jax.Array = super().__call__(images, valid)  # type: ignore[misc]
        mean = widened(x).mean(axis=(1, 2)).astype(x.dtype)
        return Dense(self.classes, name="out")(mean)  # type: ignore[attr-defined]


class CNN(Pooled, protocol.CNN, ImageClassifier):
    """Convolutions and pooling (Simonyan and Zisserman 2015), with norms and without hidden layers.
    Its fields are those of the backbone `cnn`.

    Card: Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015.
    """


class ResNet(Pooled, resnet.ResNet, ImageClassifier):
    """Residual networks (He et al. 2016), with norms before or behind convolutions. Its fields are
    those of the backbone `resnet`.

    Card: He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
    """


class Perceptron(ImageClassifier):
    """A perceptron with hidden layers (Rumelhart et al. 1986) over all pixels of an image.

    A perceptron with hidden layers, which reads an image as one long vector.

        x = relu(x W + b)      for each hidden layer
        logits = x W + b

    Source: D. Rumelhart, G. Hinton, R. Williams, "Learning representations by back-propagating
    errors", Nature 1986 (with a sigmoid); with relu and two layers of 256 the control of V. Mnih
    et al., NIPS 2014.

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
