"""Convolutional networks that classify images (Simonyan and Zisserman 2015; He et al. 2016): a
backbone, and logits from its last feature map.

    logits = mean over h and w of x, times W, plus b

The backbones stand in `attnlab.layers.backbones`, with their formulas and sources; here is what makes
systems of them. The weights of the read-out start Glorot uniform.

Axis letters: B batch, h and w height and width of the feature map, C channels.
"""

import flax.linen as nn
import jax

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
