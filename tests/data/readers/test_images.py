"""Image files of every mode, orientation and form become what the table says, or one line. They are decoded
once for all trials; what has changed, or is damaged, is decoded again.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data.images.files import ImageFolder
from attnlab.data.readers import images
from attnlab.data.readers.images import MODES, decoded, opened, orientation, pixels, read_image
from attnlab.errors import UserError
from tests.data.readers.turning import turned
from tests.refusals import check_refused

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extending" / "data.md"
GREY = np.arange(0, 240, 10, np.uint8).reshape(4, 6)
COLOURS = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], axis=-1)
GREYS = np.repeat(GREY[..., None], 3, axis=-1)
ALPHA = np.full((4, 6), 9, np.uint8)


def drawn(mode: str) -> tuple[Image.Image, np.ndarray]:
    """An image of a mode, and its bytes [4,6,3]."""
    if mode[0] in "IF":
        kind: Any = {"I": np.int32, "F": np.float32, "I;16B": ">u2"}.get(mode, "<u2")
        return Image.fromarray((GREY.astype(np.int32) * 257).astype(kind)), GREYS
    if mode in ("LA", "La", "PA"):
        return Image.fromarray(np.dstack([GREY, ALPHA])).convert(mode), GREYS
    if mode in ("RGBA", "RGBa"):
        return Image.fromarray(np.dstack([COLOURS, ALPHA])), COLOURS
    image = Image.new("LAB", (6, 4)) if mode == "LAB" else Image.fromarray(COLOURS).convert(mode)
    return image, np.asarray(image.convert("RGB"))


def test_the_table_has_every_mode_of_pillow_and_the_docs_say_the_same() -> None:
    assert set(MODES) == {*Image.MODES, "I;16", "I;16L", "I;16B", "I;16N"}
    lines = PAGE.read_text().splitlines()
    (row,) = [line for line in lines if line.startswith("| images, by Pillow")]
    for fate, cell in zip(("taken", "translated", "refused"), row.split("|")[2:], strict=False):
        for mode, (what, _) in MODES.items():
            assert (f"`{mode}`" in cell) == (what == fate)


@pytest.mark.quick
@pytest.mark.parametrize("mode", MODES)
def test_what_becomes_of_each_mode(mode: str) -> None:
    """16 bits keep their 24 levels: they were two once."""
    image, expected = drawn(mode)
    image.format = "PNG"
    if MODES[mode][0] == "refused":
        check_refused(f"^it has pixels of the mode {mode}: ", pixels, image, "it", False)
        return
    actual = pixels(image, "it", False)
    assert actual.dtype == np.uint8
    np.testing.assert_array_equal(actual, expected)
    assert pixels(image, "it", True).shape == (4, 6, 1)


@pytest.mark.parametrize("form", ["png", "tiff", "pgm", "jp2"])
def test_files_of_16_bits_are_those_of_8(form: str, tmp_path: Path) -> None:
    drawn("I;16")[0].save(path := tmp_path / f"it.{form}")
    np.testing.assert_array_equal(read_image(path, 0, False), GREYS)


@pytest.mark.parametrize(("bits", "white"), [(12, 1), (16, 0)])
def test_tags_of_tiff_say_what_numbers_mean(bits: int, white: int) -> None:
    """How many bits there are of 16; grey with 0 as white is refused."""
    image = Image.fromarray(GREY.astype(np.uint16) << bits - 8)
    image.tag_v2 = {258: (bits,), 262: white}  # type: ignore[attr-defined]
    with contextlib.ExitStack() as stack:
        if not white:
            stack.enter_context(pytest.raises(UserError, match="I;16: .* where 0 is white"))
        actual = pixels(image, "it", True, upright=False)
        np.testing.assert_array_equal(actual[..., 0], GREY)


_SAME = (COLOURS, COLOURS[:, ::-1], COLOURS[::-1, ::-1], COLOURS[::-1])
_ASIDE = [_SAME[one].swapaxes(0, 1) for one in (0, 3, 2, 1)]
TURNED = dict(enumerate((*_SAME, *_ASIDE), 1))
"""By the standard (CIPA DC-008): where the first row and the first column of the file are seen."""


@pytest.mark.parametrize("form", ["png", "tiff", "webp"])
@pytest.mark.parametrize("number", range(10))
def test_orientations_are_applied(number: int, form: str, tmp_path: Path) -> None:
    """0 and 9 are none; Pillow itself turns TIFF."""
    path = tmp_path / f"it.{form}"
    Image.fromarray(COLOURS).save(path, lossless=True)
    turned(path, number, lossless=True)
    with opened(path, "it") as actual:
        np.testing.assert_array_equal(pixels(actual, "it", False), TURNED.get(number, COLOURS))
        if form != "tiff":
            assert orientation(actual) == (number if number in TURNED else 1)
            np.testing.assert_array_equal(pixels(actual, "it", False, upright=False), COLOURS)


@pytest.mark.parametrize("alpha", [255, 254])
def test_transparency_is_left_out_and_said_once(
    alpha: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = Image.fromarray(np.dstack([COLOURS, np.full((4, 6), alpha, np.uint8)]))
    with caplog.at_level(logging.WARNING, logger=images.__name__):
        for name in ("0.png", "1.png"):
            image.save(tmp_path / name)
            np.testing.assert_array_equal(read_image(tmp_path / name, 0, False), COLOURS)
    assert caplog.text.count("read as opaque") == (alpha < 255)


def test_animations_and_other_forms_are_refused(tmp_path: Path) -> None:
    """Of the pictures of a photo (MPO) the first counts."""
    first, *others = [Image.fromarray(one) for one in (COLOURS, COLOURS[::-1])]
    for form, all_of_them in (("gif", True), ("mpo", True), ("jpg", False), ("pcx", False)):
        first.save(tmp_path / f"it.{form}", save_all=all_of_them, append_images=others)
    for form, words in (("gif", "has 2 pictures; write"), ("pcx", "is damaged or no image")):
        check_refused(f"it.{form} {words}", read_image, tmp_path / f"it.{form}", 0, False)
    two, one = (read_image(tmp_path / f"it.{form}", 0, False) for form in ("mpo", "jpg"))
    np.testing.assert_array_equal(two, one)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's of EXIF
@pytest.mark.parametrize("form", ["png", "jpeg", "tiff", "webp", "gif"])
def test_bytes_overwritten_or_cut_off_are_one_line(form: str, tmp_path: Path) -> None:
    Image.fromarray(COLOURS).save(path := tmp_path / f"it.{form}")
    turned(path, 6)
    whole, draw = np.frombuffer(path.read_bytes(), np.uint8), np.random.default_rng(0)
    for _ in range(40):
        damaged = whole[: draw.integers(1, len(whole) + 1)].copy()
        damaged[draw.integers(0, len(damaged), 3)] = draw.integers(0, 256, 3)
        path.write_bytes(damaged.tobytes())
        try:
            assert read_image(path, 0, False).dtype == np.uint8
        except UserError as error:
            assert str(error).startswith(f"{path} ")


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
        patch.setattr(images, "in_parallel", None)
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
        patch.setattr(images, "in_parallel", None)
        source.images("test")


def test_what_was_used_the_longest_ago_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more lies there than may, what is read today stays, and what was is gone."""
    monkeypatch.setattr(images, "MOST", 1)
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
