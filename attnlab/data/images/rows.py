"""Images in the named columns of tables, as names of files or as their bytes, with labels or
captions.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attnlab.data.generated import within
from attnlab.data.images.annotated import Captioned
from attnlab.data.images.decoded import decoded
from attnlab.data.images.labelled import Labelled
from attnlab.data.learned import Shape
from attnlab.data.readers.images import opened, pixels, resized
from attnlab.data.readers.records import Record
from attnlab.data.rows import Rows, in_line
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class ImageRows(Rows):
    """Images in the columns of tables: names of PNG or JPEG files, from the folder of the table on, or
    their bytes, as `datasets` keeps them. Which columns a task takes stands in
    `attnlab.data.rows.TAKES`; the other settings are those of `Rows`.

    Attributes:
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.
      grey: one channel instead of three.

    Raises:
      UserError: settings that do not go together, or a number out of range.
    """

    side: int = 64
    grey: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        within("side", self.side, 0, 4096)

    @property
    def shape(self) -> Shape | None:
        """H, W, C of every image; None where that is not known before they are read."""
        return (self.side, self.side, 1 if self.grey else 3) if self.side else None

    def images(self, split: str) -> Labelled:
        """Returns the images of a split, each with its label."""
        rows = self.rows(split, "images")
        return Labelled(self._images(rows), [in_line(row["label"]) for _, row in rows])

    def captions(self, split: str) -> Captioned:
        """Returns the images of a split, each with its caption."""
        rows = self.rows(split, "captions")
        return Captioned(self._images(rows), [in_line(row["caption"]) for _, row in rows])

    def _images(self, rows: Sequence[Record]) -> np.ndarray:
        """Returns the images of rows, uint8 [N,H,W,C]; one that several rows have is read once."""
        cells = [_file(*row) for row in rows]
        first = dict(zip(reversed(cells), (where for where, _ in reversed(rows)), strict=True))
        at = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}

        def read(cell: Path | bytes) -> np.ndarray:
            """Reads an image; errors say where it stands first."""
            file = cell if isinstance(cell, Path) else io.BytesIO(cell)
            name = f"{first[cell]}: {cell if file is cell else 'the image'}"
            with opened(file, name) as image:
                return resized(pixels(image, name, self.grey), self.side)

        return decoded(list(at), read, (self.side, self.grey))[[at[cell] for cell in cells]]


def _file(where: str, values: dict[str, object]) -> Path | bytes:
    """Returns the path or the bytes of the image of a row; raises `UserError` if it has none."""
    cell = values["image"]
    if isinstance(cell, dict):  # as `datasets` has it
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str) and "\0" not in cell:
        return Path(where.rpartition(", ")[0]).parent / cell
    if isinstance(cell, bytes):
        return cell
    raise UserError(f"{where}: an image is the name of a file or bytes, not {str(cell)[:40]}")
