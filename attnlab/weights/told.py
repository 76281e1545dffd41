"""What a `config.json` says, read with care: a value of another type than it must have, or one that
asks for something that the systems here do not compute, is an error that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from attnlab.data.readers.json_text import read_json
from attnlab.errors import UserError, nearest
from attnlab.weights import folder as folders

T = TypeVar("T", bool, int, float, str)
MOST, LAYERS = 2**24, 2**12  # of a count, and of one of layers: no model that is known has more
LONGEST = 80  # characters of a wrong value in a message


class Told:
    """A config of `transformers`.

    Args:
      content: its keys.
      where: the file, for messages.
      folder: with the tensors; None if there are none.
    """

    def __init__(self, content: Mapping[str, Any], where: str, folder: Path | None = None) -> None:
        self.content, self.where, self.folder = content, where, folder

    def number(self, key: str, default: float | None = None, absent: float | None = None) -> float:
        """A number from 0; None counts as absent, unless `absent` is what stands for a key that is
        not there.
        """
        found = float(self._of(key, (int, float), "a number", default, absent))
        if found < 0:
            raise UserError(f"{self.where}: {key}={found}; expected a number from 0")
        return found

    def count(
        self, key: str, default: int | None = None, least: int = 1, absent: int | None = None
    ) -> int:
        """A whole number from `least` to `MOST`, or to `LAYERS`; None counts as absent, unless
        `absent` is what stands for a key that is not there.
        """
        found = int(self._of(key, (int,), "a whole number", default, absent))
        most = LAYERS if "layer" in key else MOST
        if not least <= found <= most:
            what = f"at least {least}" if found < least else f"at most {most:,}"
            raise UserError(f"{self.where}: {key}={found}; expected {what}")
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
            raise self.refused(key, "an object")
        return Told(found or {}, f"{self.where}: {key}")

    def numbers(self, key: str, count: int, default: float) -> tuple[float, ...]:
        """So many numbers, or one for all; None counts as absent."""
        value = self.content.get(key)
        if not isinstance(value, list):
            return (float(self.number(key, default)),) * count
        right = all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
        if not right or len(value) != count:
            raise self.refused(key, f"{count} numbers")
        return tuple(map(float, value))

    def counts(self, key: str, count: int, default: int | None) -> tuple[int, ...]:
        """So many whole numbers from 1, or one for all; None counts as absent."""
        value = self.content.get(key)
        every = value if isinstance(value, list) and len(value) == count else [value] * count
        return tuple(Told({key: one}, self.where).count(key, default) for one in every)

    def names(self, key: str) -> tuple[str, ...]:
        """Texts, no two of them alike; () where there are none."""
        said = self.content.get(key)
        listed = isinstance(said, list) and all(isinstance(one, str) for one in said)
        if said is not None and (not listed or len({*said}) < len(said)):
            raise self.refused(key, "a list of different names")
        return tuple(said or ())

    def labels(self) -> tuple[str, ...]:
        """The classes of a classifier, in the order of its outputs; "LABEL_0" and so on if it does
        not name them.
        """
        said = self.content.get("id2label")
        if said is None or said == {}:
            return tuple(f"LABEL_{one}" for one in range(self.count("num_labels", 2)))
        numbers = [str(number) for number in range(len(said))] if isinstance(said, Mapping) else []
        if not numbers or {*said} != {*numbers}:
            raise self.refused("id2label", "names by number, from 0 on")
        return Told({"id2label": [said[number] for number in numbers]}, self.where).names(
            "id2label"
        )

    def beside(self, name: str) -> Told:
        """Another file of the folder; an empty one where there is none."""
        if self.folder is None or not (self.folder / name).is_file():
            return Told({}, name)
        return Told(read_json(self.folder / name), str(self.folder / name))

    def differ(self, one: str, other: str) -> bool | None:
        """Whether the folder has both tensors, and they are different; None without a folder."""
        if self.folder is None:
            return None
        where = folders.files(self.folder)
        if one not in where or other not in where:
            return False
        first, second = (dict(folders.tensors({name: where[name]}))[name] for name in (one, other))
        return not np.array_equal(first, second)

    def refused(self, key: str, what: str) -> UserError:
        """The error of a value that is not what was expected."""
        return UserError(f"{self.where}: {key}={shown(self.content.get(key))}; expected {what}")

    def no_others(self, known: Sequence[str]) -> None:
        """Raise `UserError` for a key that is not known and is neither null nor false."""
        for key in sorted({*self.content} - {*known}):
            if self.content[key] not in (None, False):
                near = nearest(key, known)
                raise self.refused(key, f"nothing, for the key is not known here; {near}")

    def only(self, **values: Any) -> None:
        """Raise `UserError` where a key has another value than the one that is computed here."""
        for key, value in values.items():
            if (found := self.content.get(key, value)) not in (value, None):
                raise UserError(
                    f"{self.where}: {key}={shown(found)} is not computed here, {value!r} is"
                )

    def _of(
        self, key: str, kinds: tuple[type, ...], what: str, default: Any, absent: Any = None
    ) -> Any:
        value = self.content.get(key, absent)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.where} lacks {key!r}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.refused(key, what)
        return value


def shown(value: Any) -> str:
    """A value of a config for a message, its beginning where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
