"""What our networks compute with the weights of models of images, against numbers of `transformers`
and of torch, and the way back; `golden_images.py` says how these came about. Nothing here needs
torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import save_file

import attnlab
from attnlab import config as configs
from attnlab import weights
from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.tasks import TASKS
from attnlab.weights import folder as folders
from attnlab.weights.names import Name, flat
from attnlab.weights.writing import completed, config_of
from tests.weights import comparing, models

NAMES = sorted(f"images/{file.stem}" for file in (models.GOLDEN / "images").glob("*.json"))
VIT = "images/vit"


def loaded(name: str, path: Path) -> tuple[Any, Any, list[Name]]:
    """System, parameters and lines of names of a golden model."""

    def system_of(node: Any, content: Any) -> Any:
        read = weights.pictures(path)
        assert read is not None
        return build(SYSTEMS, node, "system")(classes=len(read.classes))

    images = jnp.zeros((1, *models.numbers(name)["images"].shape[1:]))
    return comparing.loaded(name, path, system_of, images)


@comparing.over(NAMES)
def test_logits_loss_and_gradients(name: str, tmp_path: Path) -> None:
    system, params, lines = loaded(name, tmp_path)
    golden = models.numbers(name)

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = system.apply({"params": params}, golden["images"])
        cost = optax.softmax_cross_entropy_with_integer_labels
        return cost(logits, golden["labels"]).mean(), logits

    (value, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    comparing.assert_numbers(name, loss=value, logits=logits)
    comparing.assert_gradients(name, gradients, lines, "running", "key.bias")


@comparing.over(NAMES, comparing.BACK)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    _, params, _ = loaded(name, tmp_path / "in")
    comparing.assert_out_and_back(name, params, tmp_path / "in", tmp_path / "out")


def test_what_a_folder_says_of_images(tmp_path: Path) -> None:
    """Size, mean and deviation, classes; what it leaves out is as in transformers, or of ImageNet."""
    folder = models.folder(VIT, tmp_path / "vit")
    plain = weights.pictures(folder)
    assert plain is not None
    assert (plain.shape, plain.mean, plain.deviation) == ((6, 9, 3), (0.5,) * 3, (0.5,) * 3)
    assert plain.classes == tuple(f"LABEL_{one}" for one in range(5))
    said = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    named = models.folder(VIT, folder, id2label={"0": "b", "2": "c", "1": "a"})
    read = weights.pictures(named)
    assert read is not None
    assert (read.mean, read.deviation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert read.classes == ("b", "a", "c")
    for wrong, words in (
        ({"rescale_factor": 1 / 127.5}, "pixels are divided by 255 here"),
        ({"do_rescale": False}, "pixels are divided by 255 here"),
        ({"image_mean": [0.1]}, r"image_mean=\[0.1\]; expected 3 numbers"),
    ):
        (folder / "preprocessor_config.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=words):
            weights.pictures(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**said, "do_normalize": False}))
    read = weights.pictures(folder)
    assert read is not None and (read.mean, read.deviation) == ((0.0,) * 3, (1.0,) * 3)

    bare = models.folder("images/resnet18", tmp_path / "resnet")
    (bare / "config.json").write_text('{"architecture": "resnet18"}')
    read = weights.pictures(bare)
    assert read is not None and read.shape == (224, 224, 3)
    assert read.mean == (0.485, 0.456, 0.406) and read.classes == tuple("01234")
    of = {"input_size": [3, 32, 40], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    (bare / "config.json").write_text(
        json.dumps({"architecture": "resnet18", "pretrained_cfg": of, "label_names": list("vwxyz")})
    )
    read = weights.pictures(bare)
    assert read is not None and read.classes == tuple("vwxyz") and read.shape == (32, 40, 3)
    assert (read.mean, read.deviation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_counters_of_batches_and_poolers_are_left_out(tmp_path: Path) -> None:
    for name, more in (
        ("images/resnet18", {"bn1.num_batches_tracked": np.array(7)}),
        (VIT, {"vit.pooler.dense.weight": np.zeros((24, 24), np.float32)}),
    ):
        _, wanted, _ = loaded(name, tmp_path / name)
        tensors = {**models.tensors(name), **more}
        save_file(tensors, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
        found = flat(weights.parameters(tmp_path / name, wanted))
        for path, one in flat(wanted).items():
            np.testing.assert_array_equal(found[path], one)


def test_what_is_not_known_is_named(tmp_path: Path) -> None:
    for number, (name, changes, message) in enumerate(
        (
            (VIT, {"architectures": ["ViTModel"]}, "known is ViTForImageClassification"),
            (VIT, {"image_size": 7}, "patch_size=3 does not divide image_size=7 x 7"),
            (VIT, {"hidden_act": "tanh"}, "hidden_act='tanh'"),
            ("images/resnet18", {"architecture": "resnet18d"}, "architecture='resnet18d'; known"),
            ("images/resnet18", {"model_args": {"act_layer": "silu"}}, "model_args=.* not known"),
        )
    ):
        folder = models.folder(name, tmp_path / str(number), **changes)
        with pytest.raises(UserError, match=message):
            weights.system(folder)
    node = weights.system(models.folder(VIT, tmp_path / "vit"))
    with pytest.raises(UserError, match="system.class_token=False, it has True"):
        config_of(completed({**node, "class_token": False}))
    with pytest.raises(UserError, match="it has learned positions"):
        config_of(completed({**node, "positions": {"name": "sinusoidal_2d"}}))
    node = weights.system(models.folder("images/resnet50", tmp_path / "resnet"))
    with pytest.raises(UserError, match="system.strided='first', it has 'second'"):
        config_of(completed({**node, "strided": "first"}))


@pytest.mark.parametrize("name", [VIT, pytest.param("images/resnet18", marks=pytest.mark.full)])
def test_a_model_is_a_run_and_a_run_is_a_folder(name: str, tmp_path: Path) -> None:
    """Without any data: classes and normalisation are those of the folder, and are written again."""
    folder = models.folder(name, tmp_path / "in")
    of = {"input_size": [3, 40, 33], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    content = folders.settings(folder) | {"pretrained_cfg": of, "label_names": list("vwxyz")}
    (folder / "config.json").write_text(json.dumps(content))
    said = {"image_mean": of["mean"], "image_std": of["std"]}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    run, read = attnlab.load_pretrained(folder), weights.pictures(folder)
    assert read is not None and read.mean == (0.1, 0.2, 0.3)
    learned = run.task.data.learned
    assert (learned.shape, learned.classes) == (read.shape, read.classes)
    pixels = (np.random.default_rng(0).random((2, *read.shape)) * 255).astype(np.uint8)
    batch = {"image": pixels, "label": np.ones(2, np.int32)}
    normalised = (pixels / 255 - np.array(read.mean)) / np.array(read.deviation)
    pixels = normalised.astype(np.float32)

    @jax.jit
    def both(params: Any) -> Any:
        return run.task.apply(params, batch), run.task.system.apply({"params": params}, pixels)

    np.testing.assert_allclose(*both(run.params), rtol=1e-5, atol=1e-5)
    attnlab.save_pretrained(run, tmp_path / "out")
    assert weights.pictures(tmp_path / "out") == read
    written = dict(folders.tensors(folders.files(tmp_path / "out")))
    for key, one in models.tensors(name).items():
        np.testing.assert_array_equal(written[key], one)


def test_what_begins_with_a_model_of_images_reads_as_it_does(tmp_path: Path) -> None:
    """All of its weights: its classes, of which data has no others. Those that match: classes of the
    data, and a head that is drawn.
    """
    folder = models.folder("images/resnet18", tmp_path)
    data = {"data": "shapes", "data.examples": 60, "data.side": 33}
    words = "has the label '.*', which the model of pretrained.fol.*=matching"
    with pytest.raises(UserError, match=words):
        task_of(folder, data)
    task = task_of(folder, {**data, "pretrained.take": "matching"})
    learned = task.data.learned
    assert "red star" in learned.classes and learned.mean == (0.485, 0.456, 0.406)
    assert task.drawn_anew() == ("out/bias", "out/kernel")
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    assert flat(shapes)["out/kernel"].shape == (32, len(learned.classes))


def task_of(folder: Path, overrides: dict[str, Any]) -> Any:
    """The task of a run that begins with a folder, its training split read."""
    changes = [f"{key}={value}" for key, value in overrides.items()]
    config = configs.prepare(configs.from_dict(weights.run_config(folder)), changes)
    return TASKS.resolve(config.task).load(config, None, ("train",))
