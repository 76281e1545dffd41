"""What a backbone is: images [B,H,W,C'], normalised, to a feature map [B,h,w,C]; and what the
convolutional ones share: the norm and the gate. The first of them: a plain network, `CNN`.

Axis letters: B batch, H height, W width, h and w those of the feature map, C channels.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import flax.linen as nn
import jax

from attnlab.config.registry import Part, Parts, made
from attnlab.errors import UserError, at_least
from attnlab.layers import NORMS
from attnlab.layers.gates import GATES
from attnlab.layers.gates.protocol import Gate, any_over_batch
from attnlab.layers.images import Convolution, normed, pooled
from attnlab.layers.norms import Norm


class Backbone(nn.Module, kw_only=True):
    """Base of everything that may stand at the place of a backbone. Its fields are its whole
    configuration.
    """

    parts: ClassVar[Parts] = {}

    @property
    def over_batch(self) -> bool:
        """Whether a pass of training leaves statistics of its batch, see `layers.norms.BatchNorm`."""
        return False

    @property
    def looks(self) -> bool:
        """Whether a pass hands out maps or gates."""
        return False

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Images [B,H,W,C'], normalised, to a feature map [B,h,w,C].

        Args:
          images: float, the channels last.
          valid: [B] bool, which rows are images and not padding; None for all.

        Raises:
          UserError: the images are too small, or the fields make no network.
        """
        raise NotImplementedError


class Convolutional(Backbone, kw_only=True):
    """Base of the convolutional backbones.

    Attributes:
      normalisation: the norm behind convolutions, over channels.
      gate: what attends to channels or places, see `list gates`.
      gated: the stages that have gates, from 0; empty for all of them.
      often: whether "every" block of such a stage has a gate or its "last" one.
      place: where a gate stands: on the "branch" of a residual block, behind its last norm and
        before the sum, or "after" the block. A network without sums has it behind its convolutions.
    """

    normalisation: Part = "batch_norm"
    gate: Part = "none"
    gated: tuple[int, ...] = ()
    often: Literal["every", "last"] = "every"
    place: Literal["branch", "after"] = "branch"

    parts: ClassVar[Parts] = {"normalisation": NORMS, "gate": GATES}

    @property
    def normaliser(self) -> Callable[..., Norm]:
        """Makes a norm."""
        return made(NORMS, self.normalisation)

    @property
    def over_batch(self) -> bool:
        """See `Backbone.over_batch`."""
        return any_over_batch(self)

    @property
    def looks(self) -> bool:
        """Whether a pass hands out maps or gates."""
        gate: Gate = made(GATES, self.gate)(parent=None)
        return gate.maps != "none"

    @nn.nowrap
    def gate_of(self, stage: int, stages: int) -> Callable[..., Gate] | None:
        """Returns the factory of the gate of stage number `stage` of `stages` stages, None if this
        stage has no gate; raises `UserError` if the field `gated` names a stage that does not
        exist.

        Raises:
          UserError: `gated` names a stage that is not there.
        """
        for number in self.gated:
            if not 0 <= number < stages:
                raise UserError(
                    f"gated={self.gated}: there is no stage {number}; expected 0 to {stages - 1}"
                )
        chosen = self.gate != "none" and (not self.gated or stage in self.gated)
        return made(GATES, self.gate) if chosen else None

    @nn.nowrap
    def check_size(self, images: jax.Array, name: str, least: int) -> None:
        """Raises `UserError`, with the network's `name` in its message, if images [B,H,W,C] have
        fewer than `least` rows or columns of pixels.
        """
        if min(images.shape[1:3]) < least:
            height, width = images.shape[1:3]
            raise UserError(
                f"{name} halves images until {least} x {least} pixels are one; these are"
                f" {height} x {width}; take larger images, or fewer stages"
            )


class CNN(Convolutional):
    """Convolutions and pooling (Simonyan and Zisserman 2015), with norms and without hidden layers:
    stages of convolutions, each of which halves the image.

        stage    x = relu(N(conv(x)))      `layers` times, k x k, the same number of channels
                 x = gate(x)               none unless told otherwise
                 x = pool(x)               2 x 2, the largest or the mean

    Source: K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", ICLR 2015. It has three hidden layers behind the last stage where a mean over the
    image stands here (M. Lin, Q. Chen, S. Yan, "Network In Network", ICLR 2014), biases, and no
    norms.

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
