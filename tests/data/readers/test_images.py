"""Image files of every mode, orientation and form become what the table says, or one line."""

from __future__ import annotations

import io
import logging
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data.readers import images
from attnlab.data.readers.images import MODES, opened, orientation, pixels, read_image
from attnlab.errors import UserError

GREY = np.arange(0, 240, 10, np.uint8).reshape(4, 6)
COLOURS = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], axis=-1)
ALPHA = np.full((4, 6), 9, np.uint8)


def array_of(image: Image.Image, form: str, grey: bool = True, **saved: Any) -> np.ndarray:
    """What is read of an image that was written in this form."""
    file = io.BytesIO()
    image.save(file, form, **saved)
    with opened(file, "it") as found:
        return pixels(found, "it", grey)


def drawn(mode: str) -> tuple[Image.Image, np.ndarray]:
    """An image of a mode, and its bytes [4,6,3]; of most modes Pillow's own of those colours."""
    if mode.startswith("I;16") or mode in ("I", "F"):
        of16 = GREY.astype(np.int32) * 257
        kinds = {"I": np.int32, "F": np.float32, "I;16B": ">u2"}
        image = Image.fromarray(of16.astype(kinds.get(mode, "<u2")))
        return image, np.repeat(GREY[..., None], 3, axis=-1)
    if mode[:2] in ("LA", "La", "PA") and mode != "LAB":
        image = Image.fromarray(np.stack([GREY, ALPHA], axis=-1), "LA")
        return image.convert(mode), np.asarray(Image.fromarray(GREY).convert("RGB"))
    image = Image.new("LAB", (6, 4)) if mode == "LAB" else Image.fromarray(COLOURS).convert(mode)
    if mode in ("RGBA", "RGBa"):
        image = Image.fromarray(np.dstack([COLOURS, ALPHA]))
    return image, np.asarray(image.convert("RGB"))


def test_the_table_has_every_mode_of_pillow() -> None:
    assert set(MODES) == {*Image.MODES, "I;16", "I;16L", "I;16B", "I;16N"}


@pytest.mark.quick
@pytest.mark.parametrize("mode", MODES)
def test_what_becomes_of_each_mode(mode: str) -> None:
    """16 bits keep their 24 levels: they were two once."""
    image, wanted = drawn(mode)
    image.format = "PNG"
    if MODES[mode][0] == "refused":
        with pytest.raises(UserError, match=f"^it has pixels of the mode {mode}: "):
            pixels(image, "it", False)
        return
    found = pixels(image, "it", False)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, wanted)
    assert pixels(image, "it", True).shape == (4, 6, 1)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_files_of_16_bits_are_those_of_8(form: str) -> None:
    image, _ = drawn("I;16")
    np.testing.assert_array_equal(array_of(image, form)[..., 0], GREY)


def tiff(bits: int, photometric: int, packed: bytes) -> io.BytesIO:
    """A grey TIFF file of 6 x 4 pixels, by hand: Pillow writes no 12 bits."""
    tags = {256: 6, 257: 4, 258: bits, 259: 1, 262: photometric, 273: 200, 277: 1, 278: 4}
    tags[279] = len(packed)
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items())
    header = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return io.BytesIO(header.ljust(200, b"\0") + packed)


def test_tags_of_tiff_say_what_numbers_mean() -> None:
    """12 bits are those 12, two pixels in three bytes; grey of 16 bits upside down is refused."""
    bits = "".join(f"{value << 4:012b}" for value in GREY.ravel().tolist())
    packed = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    with opened(tiff(12, 1, packed), "it") as found:
        np.testing.assert_array_equal(pixels(found, "it", True)[..., 0], GREY)
    words = "it has pixels of the mode I;16: .* where 0 is white"
    with opened(tiff(16, 0, bytes(48)), "it") as found, pytest.raises(UserError, match=words):
        pixels(found, "it", True)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("number", range(10))
def test_orientations_are_applied(number: int, form: str) -> None:
    """By the standard (CIPA DC-008): what the first row and the first column of the file show. 0 and
    9 are no orientations.
    """
    turned = {
        **{2: COLOURS[:, ::-1], 3: COLOURS[::-1, ::-1], 4: COLOURS[::-1]},
        **{5: COLOURS.swapaxes(0, 1), 6: COLOURS[::-1].swapaxes(0, 1)},
        **{7: COLOURS[::-1, ::-1].swapaxes(0, 1), 8: COLOURS[:, ::-1].swapaxes(0, 1)},
    }
    image, file = Image.fromarray(COLOURS), io.BytesIO()
    exif = image.getexif()
    exif[274] = number
    image.save(file, form, exif=exif, **({"lossless": True} if form == "WEBP" else {}))
    with opened(file, "it") as found:
        np.testing.assert_array_equal(pixels(found, "it", False), turned.get(number, COLOURS))
        if form != "TIFF":  # Pillow turns those itself
            assert orientation(found) == (number if number in turned else 1)
            np.testing.assert_array_equal(pixels(found, "it", False, upright=False), COLOURS)


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
    frames = [Image.fromarray(GREY), Image.fromarray(GREY.T[:4, :4])]
    with pytest.raises(UserError, match="it has 2 pictures; write the one that counts alone"):
        array_of(frames[0], "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(
        array_of(Image.fromarray(COLOURS), "MPO", save_all=True, append_images=frames[1:]),
        array_of(Image.fromarray(COLOURS), "JPEG"),
    )
    with pytest.raises(UserError, match="it is damaged or no image"):
        array_of(Image.fromarray(COLOURS), "PCX", grey=False)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's of EXIF
def test_damage_is_one_line() -> None:
    """Bytes overwritten or cut off, EXIF among them."""
    image, draw = Image.fromarray(COLOURS), np.random.default_rng(0)
    exif = image.getexif()
    exif[274], exif[270] = 6, "words"
    for form in ("PNG", "JPEG", "TIFF", "WEBP", "GIF"):
        file = io.BytesIO()
        image.save(file, form, exif=exif)
        whole = np.frombuffer(file.getvalue(), np.uint8)
        for _ in range(40):
            damaged = whole[: draw.integers(1, len(whole) + 1)].copy()
            places = draw.integers(0, len(damaged), 3)
            damaged[places] = draw.integers(0, 256, 3)
            try:
                with opened(io.BytesIO(damaged.tobytes()), "it") as found:
                    assert pixels(found, "it", False).dtype == np.uint8
            except UserError as error:
                assert str(error).startswith("it ")
