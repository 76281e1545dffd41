"""What a backbone is: images [B,H,W,C'], normalised, to a feature map [B,h,w,C]; and what the
convolutional ones share: the norm and the gate.

Axis letters: B batch, H height, W width, h and w those of the feature map, C channels.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import flax.linen as nn
import jax

from attnlab.config.registry import Part, Parts, made
from attnlab.errors import UserError
from attnlab.layers import NORMS
from attnlab.layers.gates import GATES
from attnlab.layers.gates.protocol import Gate, any_over_batch
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
