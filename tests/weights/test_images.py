"""What a folder of a model of images says of images and classes is read, and written again."""

import contextlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

import attnlab
from attnlab import config as configs
from attnlab import weights
from attnlab.data.images.files import ImageFolder, read_images
from attnlab.data.learned import Learned
from attnlab.errors import UserError
from attnlab.tasks import TASKS
from attnlab.weights import folder as folders
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.names import flat
from attnlab.weights.pictures import READ, SILENT, Pictures, parse, timm_sizes
from tests.weights import models, rule
from tests.weights.comparing import loaded

VIT = "images/vit"
SIZE = {"size": {"height": 6, "width": 9}}  # that the tiny ViT reads


def pictures(folder: Path) -> Pictures:
    """What a folder says of images, which it does."""
    said = weights.pictures(folder)
    assert said is not None
    return said


def test_what_a_folder_says_of_images(tmp_path: Path) -> None:
    """Size, mean and deviation, classes; what it leaves out is as in transformers, or of ImageNet."""
    folder = models.folder(VIT, tmp_path / "vit")
    plain = pictures(folder)
    assert (plain.shape, plain.mean, plain.deviation) == ((6, 9, 3), (0.5,) * 3, (0.5,) * 3)
    assert plain.classes == tuple(f"LABEL_{one}" for one in range(5))
    said = {**SIZE, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    named = models.folder(VIT, folder, id2label={"0": "b", "2": "c", "1": "a"})
    read = pictures(named)
    assert (read.mean, read.deviation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert read.classes == ("b", "a", "c")
    (folder / "preprocessor_config.json").write_text(json.dumps({**said, "do_normalize": False}))
    read = pictures(folder)
    assert (read.mean, read.deviation) == ((0.0,) * 3, (1.0,) * 3)

    bare = models.folder("images/resnet18", tmp_path / "resnet")
    (bare / "config.json").write_text('{"architecture": "resnet18"}')
    read = pictures(bare)
    assert read.shape == (224, 224, 3)
    assert read.mean == (0.485, 0.456, 0.406) and read.classes == tuple("01234")
    assert (read.resize, read.resample) == ((256,), "bilinear")
    of = {"input_size": [3, 40, 40], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    of |= {"crop_pct": 0.95, "interpolation": "bicubic", "tag": "a1_in1k", "license": "mit"}
    content = {"architecture": "resnet18", "pretrained_cfg": of, "label_names": list("vwxyz")}
    (bare / "config.json").write_text(json.dumps(content))
    read = pictures(bare)
    assert read.classes == tuple("vwxyz") and read.shape == (40, 40, 3)
    assert (read.resize, read.resample) == ((42,), "bicubic")
    assert (read.mean, read.deviation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


PROCESSED = {
    12: {"size": {"height": 12, "width": 12}, "resample": 3, "image_mean": [0.1, 0.2, 0.3]},
    11: {
        "size": {"shortest_edge": 14},
        "resample": 0,
        "do_center_crop": True,
        "crop_size": {"height": 11, "width": 11},
        "do_normalize": False,
    },
    14: {"feature_extractor_type": "DeiTFeatureExtractor", "size": 16, "crop_size": 14},
}
"""By the side of what comes out."""
ALONG = {12: 8.037139860563911, 11: 7.484724143752828, 14: -2.691648780586547}
"""x . u of what ViTImageProcessorPil and DeiTImageProcessorPil of transformers 5.24 make of the image
of the test, u from `rule.uniform`.
"""


@pytest.mark.parametrize("side", PROCESSED)
def test_images_become_what_the_processor_makes_of_them(side: int, tmp_path: Path) -> None:
    """From a file, as `generate` reads it, and from a folder of training."""
    drawn = ((rule.uniform("pixels", (31, 47, 3)) + 1) * 127.5).astype(np.uint8)
    Image.fromarray(drawn).save(path := tmp_path / "drawn.png")
    read = parse(ForeignConfig(PROCESSED[side], "it"), (side, side, 3), ("a", "b"))
    node = {key: value for key, value in read.run()["data"].items() if key != "name"}
    source = ImageFolder(**node)
    assert source.shape == read.shape
    learned = Learned(shape=read.shape, mean=read.mean, deviation=read.deviation)
    (image,) = learned.normalised(read_images([str(path)], read.shape, source.fitted))
    assert np.array_equal(learned.normalised(source.read(path)), image)
    along = (image * rule.uniform("along", image.shape)).sum(dtype=np.float64)
    np.testing.assert_allclose(along, ALONG[side], rtol=1e-5)


KEYS: tuple[tuple[str, Any, str], ...] = (
    *((key, None, "") for key in (*READ.split(), *SILENT.split(), "do_pad", "x")),
    ("do_resize", False, "do_resize=False is not computed here"),
    ("size", 224, "it makes images of 224 x 224, and the model reads 6 x 9"),
    ("size", {"shortest_edge": 6}, "it makes images of 6, and the model reads 6 x 9"),
    ("size", {"longest_edge": 9}, "expected height and width, or shortest_edge alone"),
    ("size", "large", "size='large'; expected a whole number"),
    ("default_to_square", 3, "default_to_square=3; expected true or false"),
    ("resample", 3, ""),
    ("resample", 6, "resample=6; expected a filter of Pillow, 0 to 5"),
    ("do_center_crop", True, "crop_size=None|lacks 'crop_size'"),
    ("crop_size", 5, ""),
    ("do_rescale", False, "do_rescale=False is not computed here"),
    ("rescale_factor", 1 / 127.5, "expected 1 / 255, by which pixels are divided here"),
    ("do_normalize", False, ""),
    ("image_mean", [0.1], r"image_mean=\[0.1\]; expected 3 numbers"),
    ("image_std", [0.5, 0.5, 0.0], "a deviation of .* expected numbers above 0"),
    ("image_processor_type", "CLIPImageProcessor", "known are: ViT, DeiT"),
    ("image_processor_type", "ViTImageProcessorFast", ""),
    ("do_convert_rgb", True, ""),
    ("do_pad", True, "do_pad=True; expected nothing, for the key is not known"),
    ("crop_pct", 0.875, "crop_pct=0.875; expected nothing"),
)


@pytest.mark.parametrize(("key", "value", "words"), KEYS)
def test_every_key_of_a_processor_is_taken_or_refused(key: str, value: Any, words: str) -> None:
    value = SIZE["size"] if key == "size" and value is None else value
    of = ForeignConfig({**SIZE, key: value}, "it")
    with pytest.raises(UserError, match=words) if words else contextlib.nullcontext():
        parse(of, (6, 9, 3), ("a", "b"))


OF_TIMM = [
    ("tag", "a1_in1k", ""),
    ("crop_mode", "border", "crop_mode='border'; expected center, of squares alone, or squash"),
    ("crop_pct", 1.5, "crop_pct=1.5"),
    ("interpolation", "random", "interpolation='random'"),
    ("label_offset", 1, "label_offset=1 is not computed here"),
]


@pytest.mark.parametrize(("key", "value", "words"), OF_TIMM)
def test_every_key_of_timm_is_taken_or_refused(key: str, value: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) if words else contextlib.nullcontext():
        assert timm_sizes(ForeignConfig({key: value}, "it"), 40, 40) == ((45,), "bilinear")


def test_counters_of_batches_and_poolers_are_left_out(tmp_path: Path) -> None:
    for name, more in (
        ("images/resnet18", {"bn1.num_batches_tracked": np.array(7)}),
        (VIT, {"vit.pooler.dense.weight": np.zeros((24, 24), np.float32)}),
    ):
        _, expected, _ = loaded(name, tmp_path / name)
        tensors = {**models.tensors(name), **more}
        save_file(tensors, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
        actual = weights.parameters(tmp_path / name, expected)
        np.testing.assert_equal(actual, expected)


@pytest.mark.parametrize("name", [VIT, pytest.param("images/resnet18", marks=pytest.mark.full)])
def test_a_model_is_a_run_and_a_run_is_a_folder(name: str, tmp_path: Path) -> None:
    """Without any data: classes and normalisation are those of the folder, and are written again."""
    folder = models.folder(name, tmp_path / "in")
    of = {"input_size": [3, 40, 33], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    of |= {"interpolation": "bicubic", "crop_mode": "squash", "crop_pct": 1.0}
    content = folders.settings(folder) | {"pretrained_cfg": of, "label_names": list("vwxyz")}
    (folder / "config.json").write_text(json.dumps(content))
    said = {**SIZE, "resample": 3, "image_mean": of["mean"], "image_std": of["std"]}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    run, read = attnlab.load_pretrained(folder), pictures(folder)
    assert read.mean == (0.1, 0.2, 0.3)
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
    np.testing.assert_equal(written, models.tensors(name))


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
    assert task.beginning.drawn_paths() == ("out/bias", "out/kernel")
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    assert flat(shapes)["out/kernel"].shape == (32, len(learned.classes))


def task_of(folder: Path, overrides: dict[str, Any]) -> Any:
    """The task of a run that begins with a folder, its training split read."""
    changes = [f"{key}={value}" for key, value in overrides.items()]
    config = configs.prepare(configs.from_dict(weights.run_config(folder)), changes)
    return TASKS.resolve(config.task).load(config, None, ("train",))
