"""Arrays of .npz files: those that were written, or one kind of error whatever is wrong."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from attnlab.records.arrays import arrays_of
from attnlab.records.json_kinds import Damaged


def packed(method: int, content: bytes) -> bytes:
    """A .npz file with these bytes in place of an array."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("x.npy", content)
    return file.getvalue()


def array(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


SHAPE = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"
WHOLE = packed(zipfile.ZIP_DEFLATED, array(SHAPE % "()") + bytes(8))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        array(SHAPE % "()") + bytes(8),  # .npy
        packed(0, b""),
        packed(0, array(SHAPE % "(1,)")),
        packed(0, array(SHAPE % "(10**14,)")),
        packed(0, array(SHAPE % "(100000000000000,)")),
        packed(0, array(SHAPE % "(-1,)")),
        packed(0, array(SHAPE % ("(" * 500))),
        packed(0, array("{" * 3000)),
        packed(zipfile.ZIP_LZMA, bytes(99)).replace(b"\x09\x04\x05\x00]", b"\x09\x04\x05\x00\xff"),
        WHOLE.replace(b"\x08\x00", b"\x63\x00"),  # a way of packing that nobody knows
        WHOLE.replace(b"\x00\x00\x08\x00", b"\x01\x00\x08\x00"),  # a password
    ],
)
def test_damage_is_one_kind_of_error(content: bytes) -> None:
    with pytest.raises(Damaged, match="^no .npz file of plain arrays: .") as caught:
        arrays_of(content)
    assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_bytes_overwritten_at_random_are_no_traceback() -> None:
    file, draw = io.BytesIO(), np.random.default_rng(0)
    wanted = {"a": np.arange(9.0), "b": np.array(["x", "yy"])}
    np.savez_compressed(file, **wanted)
    for name, found in arrays_of(file.getvalue()).items():
        np.testing.assert_array_equal(found, wanted[name])
    for _ in range(300):
        damaged = np.frombuffer(file.getvalue(), np.uint8).copy()
        damaged[draw.integers(0, len(damaged), 2)] = draw.integers(0, 256, 2)
        try:
            arrays_of(damaged.tobytes())
        except Damaged:
            continue
