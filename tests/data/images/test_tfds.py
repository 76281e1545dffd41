"""Images of TensorFlow Datasets are read without TensorFlow, with labels and with captions;
mistakes are one line.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SOURCES
from attnlab.data.images.tfds import TfdsImages
from tests.data.tfds_sets import AttnlabTinyImages, pixels
from tests.refusals import check_refused


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared set."""
    folder = AttnlabTinyImages.prepared(tmp_path_factory.mktemp("images"))
    return folder / "attnlab_tiny_images" / "1.0.0"


def made(prepared: Path, **fields: Any) -> TfdsImages:
    kind: Any = SOURCES.resolve("tfds_images")
    given = {"directory": str(prepared), "side": 0, "held_out": 0.3, **fields}
    return kind(**given)  # type: ignore[no-any-return]


def numbered(images: np.ndarray, grey: bool = False) -> list[int]:
    """Which images these are."""
    known = {pixels(k)[..., : 1 if grey else 3].tobytes(): k for k in range(13)}
    return [known[image.tobytes()] for image in images]


@pytest.mark.quick
def test_images_with_labels(prepared: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bit for bit, with the names of their classes; one without a label is left out, and said."""
    source = made(prepared)
    actual = {split: source.images(split) for split in ("train", "valid", "test")}
    read = {split: numbered(one.images) for split, one in actual.items()}
    assert sorted(read["train"] + read["valid"]) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sorted(read["test"]) == [10, 11, 12] and source.shape is None
    for split, one in actual.items():
        assert list(one.labels) == [["even", "odd"][k % 2] for k in read[split]]
    assert "skipped 1 images of the dataset in" in caplog.text and "a label" in caplog.text
    assert numbered(source.images("train").images) == read["train"]
    own = made(prepared, train="train[:60%]", valid="train[60%:]", label="number")
    parts = [own.images(split) for split in ("train", "valid")]
    assert [len(one.labels) for one in parts] == [6, 4]
    for one in parts:
        assert list(one.labels) == [str(k) for k in numbered(one.images)]
    titles = made(prepared, label="title").images("test")
    assert list(titles.labels) == [f"Title {k}" for k in numbered(titles.images)]
    grey = made(prepared, image="grey", grey=True).images("test")
    assert grey.images.shape == (3, 4, 6, 1) and sorted(numbered(grey.images, True)) == [10, 11, 12]


def test_images_with_captions(prepared: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An image stands there once for each of its captions, and none of them is in two splits."""
    source = made(prepared)
    actual = {split: source.captions(split) for split in ("train", "valid", "test")}
    for one in actual.values():
        numbers = numbered(one.images)
        texts = [int(text.split()[-1]) for text in one.captions]
        assert texts == [j for k in dict.fromkeys(numbers) for j in range(k % 3)]
        assert one.captions == [f"Image {k}, text {j}" for k, j in zip(numbers, texts, strict=True)]
    train, valid = ({*numbered(actual[split].images)} for split in ("train", "valid"))
    assert sorted(train | valid) == [1, 2, 4, 5, 7, 8] and not train & valid
    assert re.search(r"skipped \d images of .* without a caption", caplog.text)
    titles = made(prepared, caption="title").captions("test")
    assert titles.captions == [f"Title {k}" for k in numbered(titles.images)]


def test_images_are_resized_as_those_of_a_folder(prepared: Path) -> None:
    source = made(prepared, side=3, image="sizes")
    assert source.shape == (3, 3, 3) and source.images("train").images.shape[1:] == (3, 3, 3)
    test = source.images("test")
    whole = made(prepared, image="sizes").images("test")
    for small, image in zip(test.images, whole.images, strict=True):
        expected = Image.fromarray(image).resize((3, 3), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(small, expected)
    grey = made(prepared, side=3, grey=True).images("test").images
    assert grey.shape == (3, 3, 3, 1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "imag"}, "config.data.image='imag' is no feature of .*; did you mean 'image'"),
        ({"label": "labl"}, "config.data.label='labl' is no feature of .*; did you mean 'label'"),
        ({"image": "title"}, "config.data.image='title' of .* is no feature of images, but Text"),
        ({"image": "grey"}, "images of one channel; set config.data.grey=true"),
        ({"image": "clear"}, "images of 4 channels, uint8; expected 1 or 3 channels, uint8"),
        ({"image": "deep"}, "images of 1 channels, uint16; expected 1 or 3"),
        ({"label": "share"}, "feature 'share' is no text, but float"),
        ({"label": "captions"}, "feature 'captions' is no text, but dict"),
        ({"label": "blank"}, "has no image with a label there"),
        ({"train": "trian"}, "config.data.train='trian' is no split of .*"),
        ({"train": "train[:1%]"}, r"config.data.train='train\[:1%\]' of .* has no record; take a"),
        ({"image": "sizes"}, r"of the train split .* is (4|5) x 6 pixels, image .* (4|5) x 6; set"),
        ({"side": -1}, r"config.data.side=-1 must be in 0 ... 4096"),
        ({"held_out": 0.01}, "both splits need one"),
        ({"directory": "nowhere"}, "set config.data.dataset to a name of the TFDS catalogue"),
    ],
)
def test_what_is_wrong_with_labels(prepared: Path, fields: dict[str, Any], words: str) -> None:
    check_refused(words, lambda: made(prepared, **fields).images("train"))


def test_what_is_wrong_with_captions(prepared: Path) -> None:
    for caption, words in (
        ("captions.txt", "'captions.txt' is no feature of .*; did you mean 'captions.text'"),
        ("captions.id", "feature 'captions.id' is no text, but int64"),
        ("blank", "has no image with a caption there"),
    ):
        check_refused(words, made(prepared, caption=caption).captions, "test")
    words = r"image . of the test split of .* is damaged or no image"
    check_refused(words, made(prepared, image="broken").captions, "test")


def test_tensorflow_stays_away(prepared: Path) -> None:
    """From images by folder, an older set, and one whose class is not known in a fresh process. The
    library warns of a decoder that it prefers; it does not decode here.
    """
    code = (
        "import sys\n"
        "from attnlab.data.tfds import Tfds\n"
        "from attnlab.data.images.tfds import TfdsImages\n"
        "assert 'tensorflow_datasets' not in sys.modules\n"
        f"source = TfdsImages(directory={str(prepared)!r})\n"
        "assert len(source.captions('test').captions) == 3 and len(source.images('test').labels)\n"
        f"tiny = Tfds('attnlab_tiny_images', {str(prepared.parents[1])!r}, source='title')\n"
        "assert len(tiny.texts('test')) == 3\n"
        "import tensorflow_datasets as library\n"
        "with library.testing.mock_data(num_examples=2): assert len(Tfds('wmt14_translate/de-en',"
        " source='de').pairs('train')) == 2\n"
        "assert 'tensorflow' not in sys.modules and 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "OpenCV" not in done.stderr, done.stderr
