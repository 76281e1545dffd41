"""Folders of images: classes are folders, sizes are made alike, and whatever is wrong is one line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SOURCES
from attnlab.data.files import find_file
from attnlab.data.images.folder import ImageFolder, read_images
from attnlab.data.readers.images import read_image
from attnlab.errors import UserError
from tests.refusals import check_refused


def write(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        write(tmp_path / f"train/red/{number}.png", (250, 0, 0))
        write(tmp_path / f"train/blue/{number}.jpg", (0, 0, 250))
    write(tmp_path / "test/red/0.PNG", (250, 0, 0))
    (tmp_path / "train/red/note.txt").write_text("no image")
    return tmp_path


@pytest.mark.quick
def test_classes_are_folders_and_images_are_resized(folder: Path) -> None:
    source = SOURCES.resolve("image_folder")(directory=str(folder), side=3, held_out=0.3)
    train, valid, test = (source.images(split) for split in ("train", "valid", "test"))
    assert train.images.shape == (7, 3, 3, 3) and valid.images.shape == (3, 3, 3, 3)
    assert source.shape == (3, 3, 3) and test.images.shape == (1, 3, 3, 3)
    for image, name in zip(train.images, train.labels, strict=True):
        assert np.abs(image.astype(int) - {"red": (250, 0, 0), "blue": (0, 0, 250)}[name]).max() < 4
    assert sorted([*train.labels, *valid.labels]) == ["blue"] * 5 + ["red"] * 5
    grey = ImageFolder(directory=str(folder), side=0, grey=True)
    assert grey.shape is None and grey.images("test").images.shape == (1, 4, 6, 1)
    write(folder / "valid/blue/7.png", (0, 0, 250))
    assert list(source.images("valid").labels) == ["blue"]
    assert len(source.images("train").labels) == 10


def test_what_is_wrong_is_one_line(folder: Path) -> None:
    source = ImageFolder(directory=str(folder), side=0)

    write(folder / "train/red/5.png", (250, 0, 0), (5, 5))
    check_refused(
        r"5.png is 5 x 5 pixels, .*0.jpg 4 x 6; set config.data.side", source.images, "train"
    )
    (folder / "train/red/5.png").write_bytes((folder / "train/red/0.png").read_bytes()[:40])
    check_refused("5.png is damaged or no image", source.images, "train")
    (folder / "train/green").mkdir()
    check_refused("green has no image .*fill it or remove it", source.images, "train")
    (folder / "test/red/0.PNG").rename(folder / "test/0.png")
    (folder / "test/red").rmdir()
    check_refused("test has no folder for a class", source.images, "test")
    (folder / "train").rename(folder / "training")
    check_refused("cannot find the folder .*train; did you mean 'training'", source.images, "train")
    check_refused("config.data.side=-1", ImageFolder, side=-1)
    check_refused("cannot find .*nothing.png", read_image, folder / "nothing.png", 4, False)


def test_no_directory_is_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = "in the current folder, which an empty config.data.directory means"
    check_refused(f"cannot find the folder train {message}", ImageFolder().images, "train")
    check_refused(f"cannot find train.tsv {message}", find_file, "", "train.tsv")
    with pytest.raises(UserError, match=r"cannot find /[^ ]*train.tsv \(tried"):
        find_file("", str(tmp_path / "train.tsv"))


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
    with pytest.raises(UserError, match="images of training have 2 channels, a file has 1 or 3"):
        read_images(names, (4, 6, 2))
