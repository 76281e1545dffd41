"""IDX, .npz and folders of images: what is in them comes out, classes of folders are the folders, sizes
are made alike, and whatever is wrong with them is one line.
"""

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SOURCES
from attnlab.data.files import find_file
from attnlab.data.images.files import Idx, ImageFolder, Npz, read_images
from attnlab.data.readers.images import read_image
from tests.refusals import check_refused

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 4, 5)).astype(np.uint8)
LABELS = np.arange(20).astype(np.uint8) % 3


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """MNIST's four files, one of them packed."""
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(IMAGES[:6]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:6]))
    return tmp_path


@pytest.mark.quick
def test_idx_files_and_a_validation_split_cut_from_training(folder: Path) -> None:
    source = SOURCES.resolve("idx")(directory=str(folder), held_out=0.2)
    train, valid, test = (source.images(split) for split in ("train", "valid", "test"))
    assert [len(one.images) for one in (train, valid, test)] == [16, 4, 6]
    np.testing.assert_array_equal(test.images, IMAGES[:6, ..., None])
    held = source.rows("valid", 20)
    np.testing.assert_array_equal(valid.images[..., 0], IMAGES[held])
    np.testing.assert_array_equal(valid.labels, LABELS[held])
    np.testing.assert_array_equal(train.labels, np.delete(LABELS, held))
    other = Idx(directory=str(folder), held_out=0.2, seed=1)
    assert (other.rows("valid", 20) != held).any()


def test_idx_files_that_are_none(folder: Path) -> None:
    source, labels = Idx(directory=str(folder)), folder / "train-labels-idx1-ubyte"
    whole = labels.read_bytes()
    cases = {
        whole[:-1]: "labels-idx1-ubyte is damaged: it says that it has 20 numbers, and has 19",
        whole[:6]: "it ends after 6 bytes",
        b"\x89PNG" + whole: "begins with 0x89504e47; .* with 1 axes begins with 0x00000801",
        idx(IMAGES): "begins with 0x00000803",
        idx(LABELS[:7]): "has 20 images, .* 7 labels; they are not of one set",
        b"": "begins with 0x;",
    }
    for content, words in cases.items():
        labels.write_bytes(content)
        check_refused(words, source.images, "train")
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bno")
    check_refused(re.escape("idx3-ubyte.gz is damaged or no .gz file"), source.images, "train")
    (folder / "t10k-images-idx3-ubyte").unlink()
    check_refused("cannot find .*t10k-images-idx3-ubyte", source.images, "test")
    check_refused("cannot find .*nowhere", Idx(directory=str(folder / "nowhere")).images, "train")


def npz(folder: Path, **arrays: Any) -> Npz:
    whole = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:6], "y_test": LABELS[:6]}
    np.savez(folder / "images.npz", **{**whole, **arrays})
    return SOURCES.resolve("npz")(directory=str(folder))  # type: ignore[no-any-return]


def test_npz_files_with_and_without_a_validation_split(tmp_path: Path) -> None:
    source = npz(tmp_path, y_train=LABELS[:, None])
    assert [len(source.images(split).labels) for split in ("train", "valid", "test")] == [18, 2, 6]
    coloured = np.stack([IMAGES] * 3, axis=-1)
    own = npz(tmp_path, x_valid=coloured[:4], y_valid=np.array(list("abca")))
    assert own.images("train").images.shape == (20, 4, 5, 1)
    assert own.images("valid").images.shape == (4, 4, 5, 3)
    assert list(own.images("valid").labels) == list("abca")


def test_npz_files_that_are_none(tmp_path: Path) -> None:
    arrays: dict[str, dict[str, Any]] = {
        "x_train is float64 .*expected uint8 .N,H,W.": {"x_train": IMAGES / 255},
        r"uint8 \[20, 3, 4, 5\]; expected uint8": {"x_train": np.stack([IMAGES] * 3, axis=1)},
        "x_train has 20 images, y_train 3 labels": {"y_train": LABELS[:3]},
        r"y_train is int64 \[20, 3\]": {"y_train": np.ones((20, 3), int)},
        "no .npz file of plain arrays": {"y_train": np.array([{}] * 20)},
    }
    for words, changed in arrays.items():
        check_refused(words, npz(tmp_path, **changed).images, "train")
    np.savez(tmp_path / "images.npz", x_training=IMAGES, y_train=LABELS)
    source = Npz(directory=str(tmp_path))
    check_refused("no array 'x_train'; did you mean .*x_training", source.images, "train")
    (tmp_path / "images.npz").write_bytes(b"PK\x03\x04 and no more")
    check_refused("images.npz is damaged or no .npz file", source.images, "train")


def write(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for number in range(5):
        write(tmp_path / f"train/red/{number}.png", (250, 0, 0))
        write(tmp_path / f"train/blue/{number}.jpg", (0, 0, 250))
    write(tmp_path / "test/red/0.PNG", (250, 0, 0))
    (tmp_path / "train/red/note.txt").write_text("no image")
    return tmp_path


@pytest.mark.quick
def test_classes_are_folders_and_images_are_resized(folders: Path) -> None:
    source = SOURCES.resolve("image_folder")(directory=str(folders), side=3, held_out=0.3)
    train, valid, test = (source.images(split) for split in ("train", "valid", "test"))
    assert train.images.shape == (7, 3, 3, 3) and valid.images.shape == (3, 3, 3, 3)
    assert source.shape == (3, 3, 3) and test.images.shape == (1, 3, 3, 3)
    for image, name in zip(train.images, train.labels, strict=True):
        assert np.abs(image.astype(int) - {"red": (250, 0, 0), "blue": (0, 0, 250)}[name]).max() < 4
    assert sorted([*train.labels, *valid.labels]) == ["blue"] * 5 + ["red"] * 5
    grey = ImageFolder(directory=str(folders), side=0, grey=True)
    assert grey.shape is None and grey.images("test").images.shape == (1, 4, 6, 1)
    write(folders / "valid/blue/7.png", (0, 0, 250))
    assert list(source.images("valid").labels) == ["blue"]
    assert len(source.images("train").labels) == 10


def test_what_is_wrong_is_one_line(folders: Path) -> None:
    source = ImageFolder(directory=str(folders), side=0)

    write(folders / "train/red/5.png", (250, 0, 0), (5, 5))
    check_refused(
        r"5.png is 5 x 5 pixels, .*0.jpg 4 x 6; set config.data.side", source.images, "train"
    )
    (folders / "train/red/5.png").write_bytes((folders / "train/red/0.png").read_bytes()[:40])
    check_refused("5.png is damaged or no image", source.images, "train")
    (folders / "train/green").mkdir()
    check_refused("green has no image .*fill it or remove it", source.images, "train")
    (folders / "test/red/0.PNG").rename(folders / "test/0.png")
    (folders / "test/red").rmdir()
    check_refused("test has no folder for a class", source.images, "test")
    (folders / "train").rename(folders / "training")
    check_refused("cannot find the folder .*train; did you mean 'training'", source.images, "train")
    check_refused("config.data.side=-1", ImageFolder, side=-1)
    check_refused("cannot find .*nothing.png", read_image, folders / "nothing.png", 4, False)


def test_no_directory_is_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = "in the current folder, which an empty config.data.directory means"
    check_refused(f"cannot find the folder train {message}", ImageFolder().images, "train")
    check_refused(f"cannot find train.tsv {message}", find_file, "", "train.tsv")
    words = r"cannot find /[^ ]*train.tsv \(tried"
    check_refused(words, find_file, "", str(tmp_path / "train.tsv"))


def test_files_become_images_of_the_shape_of_training(tmp_path: Path) -> None:
    """One of that size is taken as it is, others are resized; PIL says width before height."""
    drawn = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(drawn).save(tmp_path / "same.png")
    flat = np.full((8, 3, 3), 9, np.uint8)
    Image.fromarray(flat).save(tmp_path / "other.png")
    names = [str(tmp_path / name) for name in ("same.png", "other.png")]
    same, other = read_images(names, (4, 6, 3))
    np.testing.assert_array_equal(same, drawn)
    np.testing.assert_array_equal(other, np.full((4, 6, 3), 9))
    assert read_images(names, (4, 6, 1)).shape == (2, 4, 6, 1)
    words = "images of training have 2 channels, a file has 1 or 3"
    check_refused(words, read_images, names, (4, 6, 2))
