"""Vision Transformers: sizes of the paper, what patches and positions mean, what may stand in the
slot, and what is refused. Formulas are tested in `tests/systems/test_systems.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.attention import MECHANISMS
from attnlab.attention.protocol import MAPS
from attnlab.config.registry import made
from attnlab.errors import UserError
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.norms import STATISTICS
from attnlab.mixers import MIXERS
from attnlab.systems.vision.vit import ViT
from tests.systems.image_classifiers import SPECS, images_for, make, parameters

VIT = SPECS["vit"]
READ = images_for(VIT)


@pytest.mark.full
def test_patches_mean_nothing_but_what_they_show_and_where_they_stand() -> None:
    """Patches in another order are another image; not if their positions go with them, nor if there
    are no positions.
    """
    system, order = make(VIT), np.array([4, 0, 5, 1, 2, 3])
    params = parameters(system, READ)
    cut = READ.reshape(2, 2, 2, 3, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 6, 2, 2, 3)
    moved = cut[:, order].reshape(2, 2, 3, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(READ.shape)
    table = params["positions"]["table"]
    along = {**params, "positions": {"table": table[np.array([0, *(1 + order)])]}}
    nowhere = {**params, "positions": {"table": np.zeros_like(table)}}
    logits = jax.jit(lambda params, read: system.apply({"params": params}, read))
    np.testing.assert_allclose(logits(along, moved), logits(params, READ), atol=1e-5)
    np.testing.assert_allclose(logits(nowhere, moved), logits(nowhere, READ), atol=1e-5)
    assert np.abs(logits(params, moved) - logits(params, READ)).max() > 1e-2


def test_maps_are_of_all_tokens_the_class_token_first() -> None:
    system = make(VIT)
    params = {"params": parameters(system, READ)}
    look = jax.jit(lambda params: system.apply(params, READ, mutable=[MAPS])[1])
    maps = ViT.maps(look(params)[MAPS])
    assert list(maps) == ["layer_0/attention", "layer_1/attention"]
    for one in maps.values():
        assert (one.rows, one.columns) == ("image", "image")
        assert one.weights.shape == (2, 2, 7, 7)
        np.testing.assert_allclose(one.weights.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.full
def test_a_scheme_on_the_grid_reads_rows_and_columns() -> None:
    """6 patches in a row, in a column and on two rows are other images to it; to positions in reading
    order they are one.
    """
    line = np.random.default_rng(3).normal(size=(1, 2, 12, 3)).astype(np.float32)
    cut = line.reshape(1, 1, 2, 6, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(6, 2, 2, 3)
    upright = cut.reshape(1, 12, 2, 3)
    for name, differ in (("vit", False), ("vit-mean", True), ("vit-rope", True)):
        system = make({**SPECS[name], "layers": 1})
        params = parameters(system, READ)

        def both(params: Any, system: Any = system) -> Any:
            return [system.apply({"params": params}, x) for x in (line, upright)]

        one, other = jax.jit(both)(params)
        assert bool(np.abs(one - other).max() > 1e-3) == differ, name


def test_a_norm_over_the_batch_sees_the_tokens_of_images() -> None:
    spec = {**VIT, "normalisation": "batch_norm", "layers": 1}
    system = make(spec)
    params = parameters(system, READ)
    more = jnp.concatenate([READ, jnp.full_like(READ[:1], 9.0)])

    def both(params: Any) -> Any:
        told = jnp.array([True, True, False])
        padded = system.apply({"params": params}, more, told, mutable=[STATISTICS])
        return padded, system.apply({"params": params}, READ, mutable=[STATISTICS])

    (padded, seen), (logits, wanted) = jax.jit(both)(params)
    assert system.over_batch
    np.testing.assert_allclose(padded[:2], logits, rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), seen, wanted)


def fitting(rule: str) -> list[str]:
    """The mechanisms and mixers whose slot takes them, with their own defaults, under a rule."""
    need = ViT.asks({"visibility": rule})["attention"]
    found = []
    for name in sorted({*MECHANISMS.names(), *MIXERS.names()} - {"by_layer", "none"}):
        try:
            need.check(MIXERS.resolve(name), "slot")
        except UserError:
            continue
        found.append(name)
    return found


@pytest.mark.full
def test_whatever_the_slot_takes_gives_logits() -> None:
    """By shapes alone, with their own defaults."""
    both = {"multihead", "linear", "differential", "latent", "performer", "fourier"}
    names, in_order = fitting("full"), set(fitting("causal"))
    assert both <= set(names) and (both - {"fourier"} | {"mamba", "gated_delta_net"}) <= in_order
    assert not {"mamba", "gated_delta_net"} & set(names)
    read = jax.ShapeDtypeStruct((1, 8, 8, 3), jnp.float32)
    refused = {}
    for name in names:
        spec = {**VIT, "width": 48, "layers": 1, "class_token": False, "positions": "none"}
        system = make({**spec, "attention": name})
        try:
            found, _ = jax.eval_shape(system.init_with_output, jax.random.key(0), read)
        except UserError as error:
            refused[name] = str(error)
            continue
        assert found.shape == (1, 3), name
    assert not refused, refused


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
    from attnlab.tasks.image_classification import ImageClassification

    build_system = ImageClassification.built
    build_system(config("system.backbone.attention=linear", "system.patch=4"), 2, (8, 8, 3))
    with pytest.raises(UserError, match=r"system\.backbone\.attention=mamba: Mamba does not supp"):
        build_system(config("system.backbone.attention=mamba"), 2, None)
    chosen = config("system.backbone.attention=linear", "system.backbone.initial=bert")
    with pytest.raises(UserError, match="leave initial=own"):
        build_system(chosen, 2, (8, 8, 3))
