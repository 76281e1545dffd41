"""Maps of Vision Transformers, norms over a batch, and what is refused. Formulas are tested in
`tests/systems/test_systems.py`, what may stand in the slot in `tests/tasks/test_configs.py`.
"""

from typing import Any

import jax
import pytest

from attnlab import config as configs
from attnlab.config.registry import made
from attnlab.errors import UserError
from attnlab.layers.backbones import BACKBONES
from attnlab.systems.vision.vit import ViT
from tests.systems.image_classifiers import SPECS, make
from tests.systems.image_systems import check_padding

VIT = SPECS["vit"]


def test_a_norm_over_the_batch_sees_the_tokens_of_images() -> None:
    spec = {**VIT, "normalisation": "batch_norm", "layers": 1}
    assert make(spec).over_batch
    check_padding(spec)


class Captioner(ViT):
    """Has a backbone as a part."""

    backbone: Any = "cnn"

    parts = {**ViT.parts, "backbone": BACKBONES}

    def setup(self) -> None:
        super().setup()
        self.eye = made(BACKBONES, self.backbone)(name="backbone")

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        return self.eye(images, valid)


def test_what_a_part_of_a_system_cannot_do_is_refused() -> None:
    path = f"{Captioner.__module__}:Captioner"
    base = ["system.attention=multihead", "system.backbone=vit", "system.positions=none"]
    base += [f"system.backbone.{one}" for one in ("patch=4", "width=8", "positions=none")]
    config = lambda *more: configs.load(
        "configs/image_classification.py:cnn", [f"system={path}", *base, *more]
    )
    from attnlab.tasks.images import ImageClassification

    build_system = ImageClassification.built
    build_system(config("system.backbone.attention=linear", "system.patch=4"), 2, (8, 8, 3))
    with pytest.raises(UserError, match=r"system\.backbone\.attention=mamba: Mamba does not supp"):
        build_system(config("system.backbone.attention=mamba"), 2, None)
    chosen = config("system.backbone.attention=linear", "system.backbone.initial=bert")
    with pytest.raises(UserError, match="leave initial=own"):
        build_system(chosen, 2, (8, 8, 3))
