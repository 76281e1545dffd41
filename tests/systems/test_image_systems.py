"""Systems that read images alone, beyond what their oracles hold: statistics of batches, norms over them, and
what is refused of a backbone; the sensor of recurrent glimpses, where they look, and when it is drawn.
Formulas are tested in `test_systems.py`, what may stand in the slot in `tests/tasks/test_configs.py`.
"""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.config.registry import made
from attnlab.errors import UserError
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.norms import STATISTICS
from attnlab.systems.protocol import GLIMPSES as LOOKED
from attnlab.systems.vision.glimpses import coverage, patches, squares
from attnlab.systems.vision.vit import ViT
from tests.rounding import assert_close
from tests.systems.image_systems import SPECS, check_padding, make, parameters, shown

GLIMPSES, ASIDE = SPECS["glimpses"], [LOOKED, SAMPLES]


def test_statistics_are_those_of_the_images_and_not_of_padding() -> None:
    """In training, those of what a convolution gives over all pixels; rows of padding change neither
    them nor logits.
    """
    check_padding(SPECS["cnn"])
    system, read = make(SPECS["cnn"]), shown(SPECS["cnn"])
    params = parameters(system, read)
    run = jax.jit(lambda params: system.apply({"params": params}, read, mutable=[STATISTICS])[1])
    seen = run(params)
    kernel = params["convolution_0_0"]["kernel"]
    edged = np.pad(read, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(edged, (3, 3), axis=(1, 2))
    y = np.einsum("bijcuv,uvcf->bijf", windows, kernel).reshape(-1, kernel.shape[-1])
    ((_, actual),) = seen[STATISTICS]["normalisation_0_0"]["seen"]
    np.testing.assert_allclose(actual["mean"], y.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(actual["variance"], y.var(axis=0, ddof=1), rtol=1e-4)


def test_statistics_are_of_batches_where_a_norm_is() -> None:
    """Of a backbone, or at the pixels that a segmenter gives a class."""
    plain = {"backbone": {**SPECS["cnn"], "normalisation": "layer_norm"}}
    segmenter = {**SPECS["segmenter"], "normalisation": "layer_norm"}
    for spec, over_batch in (
        (SPECS["cnn"], True),
        ({**SPECS["cnn"], "normalisation": "layer_norm"}, False),
        (SPECS["detr"], True),
        ({**SPECS["detr"], **plain}, False),
        (segmenter, True),
        ({**segmenter, **plain}, False),
        ({**segmenter, **plain, "normalisation": "batch_norm"}, True),
        ({**segmenter, **plain, "normalisation": "batch_norm", "width": 0}, False),
    ):
        assert make(spec).over_batch == over_batch


def test_a_norm_over_the_batch_sees_the_tokens_of_images() -> None:
    spec = {**SPECS["vit"], "normalisation": "batch_norm", "layers": 1}
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


def test_a_patch_on_whole_pixels_is_a_cut_and_the_next_is_its_mean() -> None:
    """In the middle of 8 x 10 pixels; what lies outside of the image is 0."""
    read = np.random.default_rng(0).normal(size=(1, 8, 10, 2)).astype(np.float32)
    small, large = np.asarray(patches(read, np.zeros((1, 2)), 4, 2))[0]
    np.testing.assert_allclose(small, read[0, 2:6, 3:7], atol=1e-6)
    middle = read[0, :, 1:9].reshape(4, 2, 4, 2, 2).mean(axis=(1, 3))
    assert_close(large, middle, eps=8)
    corner = np.asarray(patches(read, np.array([[-1.0, 1.0]]), 4, 1))[0, 0]
    np.testing.assert_allclose(corner[2:, :2], read[0, :2, 8:], atol=1e-6)
    assert not corner[:2].any() and not corner[:, 2:].any()


def test_squares_are_where_patches_look() -> None:
    actual = squares(np.array([[0.0, 0.0], [-1.0, 0.5]]), 8, 2, 60, 40)
    expected = [[[26, 16, 34, 24], [22, 12, 38, 28]], [[-4, 26, 4, 34], [-8, 22, 8, 38]]]
    assert actual.tolist() == expected
    share = coverage(np.array([[0.0, 0.0], [-1.0, 0.5]]), 8, 2, 60, 40)
    assert share.shape == (2, 60, 40) and share.sum() == (64 + 256) / 2 + (32 + 128) / 2
    assert share[0, 30, 20] == share[1, 0, 30] == 1 and share[0, 22, 12] == 0.5
    assert share[0, 21, 12] == share[0, 38, 20] == 0


def test_glimpses_are_drawn_over_the_image() -> None:
    system, read = make(GLIMPSES), shown(GLIMPSES, 1)
    look = jax.jit(lambda params: system.apply({"params": params}, read, mutable=[LOOKED])[1])
    left = look(parameters(system, read))
    weights, rows = system.overlaid(left, 8, 9)["glimpses"]
    assert system.looks and weights.shape == (len(rows), 8, 9) == (system.glimpses, 8, 9)
    assert weights[0, 4, 4] == 1  # the first in the middle


def test_locations_are_drawn_by_the_stream_alone_and_around_the_mean() -> None:
    """Without the stream every pass looks at the same places, the first of them the middle."""
    system, read = make(GLIMPSES), shown(GLIMPSES, 2)
    params = parameters(system, read)

    def look(params: Any, key: Any) -> Any:
        rngs = None if key is None else {"sample": key}
        logits, aside = system.apply({"params": params}, read, rngs=rngs, mutable=ASIDE)
        return logits, aside[LOOKED]["locations"][0], aside[SAMPLES]["log_prob"][0]

    plain = jax.jit(lambda params: look(params, None))
    keys = jax.random.split(jax.random.key(0), 400)
    logits, at, log_prob = plain(params)
    drawn, places, chances = jax.jit(jax.vmap(look, (None, 0)))(params, keys)
    number = GLIMPSES["glimpses"]
    assert at.shape == (2, number, 2) and not at[:, 0].any() and (np.abs(at) <= 1).all()
    assert log_prob.shape == (2, 1, number - 1)
    np.testing.assert_allclose(log_prob, -np.log(2 * np.pi * GLIMPSES["deviation"] ** 2), rtol=1e-5)
    away = np.asarray(places[:, :, 1] - at[:, 1])  # the second is drawn around the same mean
    free = np.abs(at[:, 1]) < 1 - 4 * GLIMPSES["deviation"]
    assert free.any()
    np.testing.assert_allclose(away.std(axis=0)[free], GLIMPSES["deviation"], rtol=0.15)
    expected = -np.square(away / GLIMPSES["deviation"]).sum(-1) / 2 + log_prob[0, 0, 0]
    both = free.all(axis=-1)
    np.testing.assert_allclose(chances[:, both, 0, 0], expected[:, both], rtol=1e-3, atol=1e-3)
    assert np.abs(drawn - logits).max() > 1e-3


def test_decisions_train_the_layer_of_locations_alone() -> None:
    """What is drawn is a constant, and the state behind it is left to the labels."""
    system, read = make(GLIMPSES), shown(GLIMPSES, 2)
    params = parameters(system, read)

    @jax.jit
    @jax.value_and_grad
    def likely(params: Any) -> Any:
        rngs = {"sample": jax.random.key(3)}
        _, aside = system.apply({"params": params}, read, rngs=rngs, mutable=[SAMPLES])
        return aside[SAMPLES]["log_prob"][0].sum()

    _, gradient = likely(params)
    of_locations = gradient.pop("location")
    assert all(np.abs(one).max() > 1e-3 for one in jax.tree.leaves(of_locations))
    assert not any(np.any(one) for one in jax.tree.leaves(gradient))
