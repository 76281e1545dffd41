"""No data: a run that is to be used before data is named, such as one that `import` makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from attnlab.errors import UserError

_SOURCES = {
    "texts": "text --config.data.directory=FOLDER",
    "pairs": "table --config.data.directory=FOLDER",
}
"""By the method that is asked for, a source that has it."""


@dataclass(frozen=True)
class NoData:
    """Nothing: whatever reads it is told what to add."""

    def texts(self, split: str) -> NoReturn:
        """Raises `UserError`."""
        self._refuse("texts", split)

    def pairs(self, split: str) -> NoReturn:
        """Raises `UserError`."""
        self._refuse("pairs", split)

    def _refuse(self, asked: str, split: str) -> NoReturn:
        raise UserError(
            f"this run names no data, so there is no {split} split; add --config.data={_SOURCES[asked]}"
        )
