"""What a `config.json` says, read with care: a value of another type than it must have, or one that
asks for something that the systems here do not compute, is an error that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from attnlab.errors import UserError, nearest
from attnlab.weights import folder as folders

T = TypeVar("T", bool, int, float, str)


class Told:
    """A config of `transformers`.

    Args:
      content: its keys.
      where: the file, for messages.
      folder: with the tensors; None if there are none.
    """

    def __init__(self, content: Mapping[str, Any], where: str, folder: Path | None = None) -> None:
        self.content, self.where, self.folder = content, where, folder

    def number(self, key: str, default: float | None = None) -> float:
        """A number; None counts as absent."""
        return self._of(key, (int, float), "a number", default)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number, at least `least`; None counts as absent."""
        found = int(self._of(key, (int,), "a whole number", default))
        if found < least:
            raise UserError(f"{self.where}: {key}={found}; expected at least {least}")
        return found

    def flag(self, key: str, default: bool | None = None) -> bool:
        """true or false; None counts as absent."""
        return bool(self._of(key, (bool,), "true or false", default))

    def text(self, key: str, default: str | None = None) -> str:
        """A text; None counts as absent."""
        return str(self._of(key, (str,), "a text", default))

    def one_of(self, key: str, choices: Mapping[str, T], default: str | None = None) -> T:
        """What a text stands for."""
        name = self.text(key, default)
        if name not in choices:
            raise UserError(f"{self.where}: {key}={name!r}; {nearest(name, choices)}")
        return choices[name]

    def below(self, key: str) -> Told:
        """The object at a key; an empty one where there is none."""
        found = self.content.get(key)
        if found is not None and not isinstance(found, Mapping):
            raise UserError(f"{self.where}: {key}={found!r}; expected an object")
        return Told(found or {}, f"{self.where}: {key}")

    def numbers(self, key: str, count: int, default: float) -> tuple[float, ...]:
        """So many numbers, or one for all; None counts as absent."""
        value = self.content.get(key)
        if not isinstance(value, list):
            return (float(self.number(key, default)),) * count
        right = all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
        if not right or len(value) != count:
            raise UserError(f"{self.where}: {key}={value!r}; expected {count} numbers")
        return tuple(map(float, value))

    def labels(self) -> tuple[str, ...]:
        """The classes of a classifier, in the order of its outputs; "LABEL_0" and so on if it does
        not name them.
        """
        said = self.content.get("id2label")
        if not said:
            return tuple(f"LABEL_{one}" for one in range(self.count("num_labels", 2)))
        if not isinstance(said, Mapping) or not all(str(key).isdecimal() for key in said):
            raise UserError(f"{self.where}: id2label={said!r}; expected names by number")
        return tuple(str(said[key]) for key in sorted(said, key=int))

    def beside(self, name: str) -> Told:
        """Another file of the folder; an empty one where there is none."""
        if self.folder is None or not (self.folder / name).is_file():
            return Told({}, name)
        return Told(folders.told(self.folder / name), str(self.folder / name))

    def differ(self, one: str, other: str) -> bool | None:
        """Whether the folder has both tensors, and they are different; None without a folder."""
        if self.folder is None:
            return None
        where = folders.files(self.folder)
        if one not in where or other not in where:
            return False
        first, second = (dict(folders.tensors({name: where[name]}))[name] for name in (one, other))
        return not np.array_equal(first, second)

    def only(self, **values: Any) -> None:
        """Raise `UserError` where a key has another value than the one that is computed here."""
        for key, value in values.items():
            if (found := self.content.get(key, value)) not in (value, None):
                raise UserError(f"{self.where}: {key}={found!r} is not computed here, {value!r} is")

    def _of(self, key: str, kinds: tuple[type, ...], what: str, default: Any) -> Any:
        value = self.content.get(key)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.where} lacks {key!r}")
        right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not right:
            raise UserError(f"{self.where}: {key}={value!r}; expected {what}")
        return value
