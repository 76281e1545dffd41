"""Examples are columns of sequences, of arrays of one shape and of kinds of one's own, as a task
declares them.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from attnlab.data.columns import IDS, Declared, Examples, Fixed, Packed, Shared, SideBySide, check
from tests.refusals import check_refused

ROWS = np.array([2, -1, 0])


def test_packed_is_the_list_it_was_made_of() -> None:
    lists = [[5, 6, 7], [], [8], [9, 9]]
    packed = Packed(lists)
    assert [ids.tolist() for ids in packed] == lists
    assert packed[-1].tolist() == [9, 9]
    assert [ids.tolist() for ids in packed[1:3]] == lists[1:3]
    assert packed.lengths.tolist() == [3, 0, 1, 2]
    with pytest.raises(IndexError):
        packed[4]
    for pad in (0, -1):  # of its vocabulary
        expected = [[8, *[pad] * 3], [pad] * 4, [5, 6, 7, pad]]
        assert Packed(lists, pad=pad).block(ROWS, 4).tolist() == expected
    assert len(Packed([])) == 0


@pytest.mark.parametrize("shape", [(), (2,), (3, 2, 1)])
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_arrays_keep_their_shape_and_padding_is_zero(shape: tuple[int, ...], dtype: str) -> None:
    values = (np.arange(3 * int(np.prod(shape))).reshape(3, *shape) + 1).astype(dtype)
    block = Fixed(values).block(ROWS, 17)
    assert block.shape == (3, *shape) and block.dtype == dtype
    np.testing.assert_array_equal(block[[0, 2]], values[[2, 0]])
    assert not block[1].any()


@dataclasses.dataclass
class Drawn:
    """Images that are made when they are asked for."""

    count: int
    lengths = None

    def __len__(self) -> int:
        return self.count

    def block(self, rows: np.ndarray, width: int) -> np.ndarray:
        return np.stack([np.full((2, 2), max(row, 0), np.uint8) for row in rows])


def test_a_column_of_ones_own_goes_with_the_others() -> None:
    examples = Examples(image=Drawn(3), caption=[[4, 5, 6], [7], [8, 9]], label=np.array([3, 1, 2]))
    assert len(examples) == 3 and examples.lengths.tolist() == [3, 1, 2]
    batch = examples.batch(ROWS, 3)
    assert batch["image"][:, 0, 0].tolist() == [2, 0, 0]
    assert batch["caption"].tolist() == [[8, 9, 0], [0, 0, 0], [4, 5, 6]]
    assert batch["label"].tolist() == [2, 0, 3] and list(batch) == ["image", "caption", "label"]
    assert len(examples.sequences) == 1 and examples.packed("caption")[1].tolist() == [7]
    with pytest.raises(TypeError, match="'image' is no Packed"):
        examples.packed("image")
    # without sequences every example takes as much
    assert Examples(label=np.arange(4)).lengths.tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="'source': 1, 'label': 2"):
        Examples(source=[[2]], label=np.zeros(2))
    with pytest.raises(ValueError, match="need a column"):
        Examples()


DECLARED = {
    "ids": IDS,
    "image": Declared("uint8", ("H", "W", 3)),
    "label": Declared("float32", None, optional=True),
}
BATCH = {"ids": np.zeros((2, 5), np.int32), "image": np.zeros((2, 4, 4, 3), np.uint8)}


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"ids": np.zeros((2, 5), np.int64)}, r"column 'ids' is int64 \[B,5\], declared is int32"),
        ({"ids": np.zeros(2, np.int32)}, r"is int32 \[B\], declared is int32 \[B,T\]"),
        ({"image": np.zeros((2, 4, 4, 1), np.uint8)}, r"declared is uint8 \[B,H,W,3\]"),
        ({"label": np.zeros(2, np.int32)}, r"declared is float32 \[B,...\]"),
        ({"lable": np.zeros(2)}, "column 'lable' is not declared; did you mean 'label'"),
        ({"image": None}, "a batch has no column 'image'; choose from: ids"),
    ],
)
def test_what_is_not_as_declared_is_named(changes: dict[str, Any], words: str) -> None:
    check(DECLARED, BATCH, "task")
    check(DECLARED, {**BATCH, "label": np.zeros((2, 7), np.float32)}, "task")
    batch = {name: array for name, array in {**BATCH, **changes}.items() if array is not None}
    check_refused(words, check, DECLARED, batch, "task")


def test_arrays_that_examples_share_are_kept_once() -> None:
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    column = Examples(image=Shared(values, np.array([1, 0, 1])))["image"]
    assert len(column) == 3 and column.lengths is None
    assert column.block(np.array([2, -1, 1]), 9).tolist() == [[3, 4, 5], [0, 0, 0], [0, 1, 2]]
    np.testing.assert_array_equal(values[1], [3, 4, 5])


def test_several_examples_stand_side_by_side_in_a_row() -> None:
    which = np.array([[1, 0], [2, -1], [2, 0]])
    ids = SideBySide(Packed([[5], [6, 7], [8]]), which)
    assert len(ids) == 3 and ids.lengths is not None and ids.lengths.tolist() == [2, 1, 1]
    actual = ids.block(ROWS, 2).tolist()
    assert actual == [[[8, 0], [5, 0]], [[0, 0], [0, 0]], [[6, 7], [5, 0]]]
    pictures = SideBySide(Shared(np.arange(8).reshape(2, 2, 2), np.array([1, 1, 0])), which[:, 0])
    assert pictures.lengths is None
    assert pictures.block(ROWS, 2).tolist() == [[[0, 1], [2, 3]], [[0, 0]] * 2, [[4, 5], [6, 7]]]


def test_windows_and_cuts_are_those_of_a_loop() -> None:
    lists = [[5, 6, 7, 8, 2], [2], [9, 2], [5, 6, 7, 2]]
    packed = Packed(lists, pad=-1)
    for width in (1, 2, 3, 9):
        windows = [one[i : i + width] for one in lists for i in range(0, len(one), width)]
        assert [one.tolist() for one in packed.windows(width)] == windows
        cut = [one if len(one) <= width else [*one[: width - 1], one[-1]] for one in lists]
        assert [one.tolist() for one in packed.cut(width)] == cut
    assert packed.windows(2).pad == packed.cut(2).pad == -1 and len(Packed([]).windows(3)) == 0
