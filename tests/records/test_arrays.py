"""Whatever is wrong with a .npz file is one kind of error; whole ones are read in test_items.py."""

import io
import zipfile

import pytest

from attnlab.records.arrays import arrays_of
from attnlab.records.json_kinds import Damaged


def packed(header: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A .npz file of an array with this header, and eight bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + length + header.encode() + bytes(8))
    return file.getvalue()


SHAPE = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"
WHOLE, LZMA = packed(SHAPE % "()"), packed(SHAPE % "()", zipfile.ZIP_LZMA)
SHAPES = ("(2,)", "(10**14,)", f"({10**14},)", "(-1,)", "(" * 500)
DAMAGED = {
    "nothing": b"",
    "no end": WHOLE[:40],
    "no mark of numpy": packed(SHAPE % "()", 0).replace(b"\x93NUMPY", b"0NUMPY0"),
    "bad LZMA": LZMA.replace(b"\x09\x04\x05\x00]", b"\x09\x04\x05\x00\xff"),
    "an unknown way of packing": WHOLE.replace(b"\x08\x00", b"\x63\x00"),
    "a password": WHOLE.replace(b"\x00\x00\x08\x00", b"\x01\x00\x08\x00"),
    **{shape[:9]: packed(SHAPE % shape) for shape in SHAPES},
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_kind_of_error(content: bytes) -> None:
    with pytest.raises(Damaged, match="^no .npz file of plain arrays: .") as caught:
        arrays_of(content)
    assert "\n" not in str(caught.value)
