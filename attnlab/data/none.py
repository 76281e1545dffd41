"""No data: a run that is to be used before data is named, such as one that `import` makes."""

from dataclasses import dataclass
from typing import NoReturn

from attnlab.errors import UserError


@dataclass(frozen=True)
class NoData:
    """Nothing: whatever reads it is told what to add."""

    def texts(self, split: str) -> NoReturn:
        """Raises `UserError`, which says how to name data."""
        raise UserError(
            f"this run names no data, so there is no {split} split; add --config.data=text"
            " --config.data.directory=FOLDER (of pairs --config.data=table)"
        )

    pairs = texts
