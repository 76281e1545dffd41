"""Images are decoded once for all trials; what has changed, or is damaged, is decoded again."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnlab.data.images import decoded as module
from attnlab.data.images.decoded import decoded
from attnlab.data.images.folder import ImageFolder
from attnlab.errors import UserError
from tests.refusals import check_refused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    for number in range(6):
        path = tmp_path / "test" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (9, 7, 3), np.uint8)).save(path)
    return tmp_path


def test_a_second_trial_decodes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pixels, whatever stands in the cache; other settings have their own."""
    source = ImageFolder(directory=str(folder), side=5)
    first, labels = source.images("test")
    assert list(labels) == list("aaabbb")
    one_by_one = np.stack([source.read(path) for path in sorted(folder.glob("test/*/*"))])
    assert np.array_equal(first, one_by_one)
    with monkeypatch.context() as patch:
        patch.setattr(module, "in_parallel", None)
        assert np.array_equal(source.images("test").images, first)
    assert ImageFolder(directory=str(folder), side=4).images("test").images.shape == (6, 4, 4, 3)
    (kept,) = [
        path for path in (folder / "cache/images").glob("*.npy") if path.stat().st_size == 582
    ]
    content = kept.read_bytes()
    other = (content.replace(b"|u1", b"|i1"), content.replace(b"(6,", b"(5,"))
    flipped = content[:300] + bytes([content[300] ^ 1]) + content[301:]
    pickled = content[:8] + b"\x76\x00{'descr': (" + content[20:]
    packed = b"PK\x03\x04" + content
    for damaged in (content[:300], b"x" * 582, b"", packed, flipped, *other, pickled):
        kept.write_bytes(damaged)
        assert np.array_equal(source.images("test").images, first)
    before = os.stat(path := folder / "test/a/0.png")
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as `rsync --times` leaves it
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(module, "in_parallel", None)
        source.images("test")


def test_what_was_used_the_longest_ago_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more lies there than may, what is read today stays, and what was is gone."""
    monkeypatch.setattr(module, "MOST", 1)
    for sides in ((2, 3), (2, 4)):
        for side in sides:
            ImageFolder(directory=str(folder), side=side).images("test")
        sizes = {path.stat().st_size - 132 for path in folder.glob("cache/images/*.npy")}
        for path in folder.glob("cache/images/*.npy"):
            os.utime(path, (0, 0))
    assert sizes == {6 * 2 * 2 * 3, 6 * 4 * 4 * 3}


class Own(ImageFolder):
    """A user's class."""

    def read(self, path: Path) -> np.ndarray:
        return super().read(path) // 2


def test_what_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that a user's class reads, or where there is no cache; errors come as before."""
    assert Own(directory=str(folder), side=5).images("test").images.max() < 128
    monkeypatch.setenv("ATTNLAB_CACHE", "")
    ImageFolder(directory=str(folder), side=5).images("test")
    assert not (folder / "cache").exists()
    (folder / "test/a/4.png").write_bytes(b"nothing")
    (folder / "test/b/5.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match="4.png is damaged or no image"):
        ImageFolder(directory=str(folder), side=5).images("test")
    check_refused("cannot find none", decoded, [Path("none")], ImageFolder().read, 1)
