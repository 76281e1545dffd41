"""What all convolutional classifiers of images share: the norm, the gate, and what becomes of the
last feature map.

    logits = mean over H and W of x, times W, plus b

Axis letters: B batch, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax

from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers import NORMS
from attnlab.layers.dense import Dense
from attnlab.layers.gates import GATES
from attnlab.layers.gates.protocol import Gate
from attnlab.layers.norms import Norm
from attnlab.layers.precision import widened
from attnlab.systems.protocol import ImageClassifier


class Backbone(ImageClassifier, kw_only=True):
    """Base of the convolutional classifiers. Not a system by itself.

    Attributes:
      normalisation: the norm behind convolutions, over channels.
      gate: what attends to channels or places, see `list gates`.
      gated: the stages that have gates, from 0; empty for all of them.
      place: where a gate stands: on the "branch" of a residual block, behind its last norm and
        before the sum, or "after" the block. A network without sums has it behind its convolutions.
    """

    normalisation: Part = "batch_norm"
    gate: Part = "none"
    gated: tuple[int, ...] = ()
    place: Literal["branch", "after"] = "branch"

    parts = {"normalisation": NORMS, "gate": GATES}

    @property
    def normaliser(self) -> Callable[..., Norm]:
        """Makes a norm."""
        return made(NORMS, self.normalisation)

    @property
    def over_batch(self) -> bool:
        """See `System.over_batch`."""
        norm = bool(getattr(kind(self.normaliser), "over_batch", False))
        gate: Gate = made(GATES, self.gate)(parent=None)
        return norm or gate.over_batch

    @nn.nowrap
    def gate_of(self, stage: int, stages: int) -> Callable[..., Gate] | None:
        """Makes the gate of a stage; None if it has none.

        Raises:
          UserError: `gated` names a stage that is not there.
        """
        for one in self.gated:
            if not 0 <= one < stages:
                raise UserError(
                    f"system.gated={self.gated}: there is no stage {one}; expected 0 to {stages - 1}"
                )
        chosen = self.gate != "none" and (not self.gated or stage in self.gated)
        return made(GATES, self.gate) if chosen else None

    @nn.nowrap
    def check_size(self, images: jax.Array, name: str, least: int) -> None:
        """`UserError` unless images [B,H,W,C] have at least so many rows and columns of pixels."""
        if min(images.shape[1:3]) < least:
            height, width = images.shape[1:3]
            raise UserError(
                f"system={name} halves images until {least} x {least} pixels are one; these are"
                f" {height} x {width}; take larger images, or fewer stages"
            )

    @nn.nowrap
    def logits(self, x: jax.Array) -> jax.Array:
        """The last feature map [B,H,W,C] to logits; called while the module is compact."""
        mean = widened(x).mean(axis=(1, 2)).astype(x.dtype)
        return Dense(self.classes, name="out")(mean)
