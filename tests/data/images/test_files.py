"""IDX and .npz: what is in them comes out, and whatever is wrong with them is one line."""

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data import SOURCES
from attnlab.data.images.files import Idx, Npz
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
