"""What a `config.json` says, read with care: a value of another type than it must have, or one that
asks for something that the systems here do not compute, is an error that names the key.

A family of models has a table of its system: dotted setting to what it always is, or to the `Key`
that says it. `ForeignConfig.system` reads a config by that table, `content_of` writes one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from attnlab.data.json_files import read_json
from attnlab.errors import UserError, nearest
from attnlab.weights import folder as folders
from attnlab.weights.names import flat, nested

T = TypeVar("T", bool, int, float, str)
MOST, LAYERS = 2**24, 2**12  # of a count, and of one of layers: no model that is known has more
LONGEST = 80  # characters of a wrong value in a message
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Activations of `transformers`, and what they are called here."""
TIED = {False: "none", True: "output"}
"""The setting `share` of language models by `tie_word_embeddings`."""


class Key(NamedTuple):
    """A key of a config that says a setting of a system.

    Attributes:
      name: of the key.
      default: what a key that is not there means; the type of the value.
      ours: the setting by the value of the key; {} where they are the same. A setting that is none
        of these is written as the default, or of a flag as the first.
    """

    name: str
    default: Any
    ours: Mapping[Any, Any] = {}

    def value_of(self, setting: Any) -> Any:
        """Returns the value to write at this key of a foreign config for our value `setting`: with
        a table `ours` the value that it translates from (if there is none, a text default, else the
        first of the table), without one `setting` itself (for None 1 if the default is an int, else
        the default).
        """
        if not self.ours:
            usual = 1 if type(self.default) is int else self.default
            return usual if setting is None else setting
        other = self.default if isinstance(self.default, str) else next(iter(self.ours))
        values = {ours: value for value, ours in reversed([*self.ours.items()])}
        return values.get(setting, other)


Keys = Mapping[str, Any]
"""A table of a family: dotted setting to its constant value or its `Key`."""


def content_of(keys: Keys, system: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {key: value} of a foreign config for a complete config node `system`, in the order of
    the table `keys`; of settings with the same key the first counts; raises `UserError` if the table
    has learned positions and the system has others.
    """
    if keys.get("positions.name") == "learned" != system["positions"]["name"]:
        raise UserError("it has learned positions")
    settings, content = flat(system), dict[str, Any]()
    for setting, key in keys.items():
        if isinstance(key, Key) and key.name not in content:
            content[key.name] = key.value_of(settings.get(setting.replace(".", "/")))
    return content


def layer_nodes(system: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """Returns, for each layer of a complete node `system` in order, the node of its part `field`,
    say "attention", with patterns over layers resolved; see `attnlab.layers.by_layer`.
    """
    nodes = []
    for layer in range(system["layers"]):
        node = system[field]
        while node.get("name") == "by_layer":
            node = node[node["pattern"][layer % len(node["pattern"])]]
        nodes.append(node)
    return nodes


class ForeignConfig:
    """A config of `transformers`.

    Args:
      content: its keys.
      where: the file, for messages.
      folder: with the tensors; None if there are none.
    """

    def __init__(self, content: Mapping[str, Any], where: str, folder: Path | None = None) -> None:
        self.content, self.where, self.folder = content, where, folder

    def number(self, key: str, default: float | None = None, absent: float | None = None) -> float:
        """Returns the number at a key of the config; null means `default`, and so does a missing
        key unless `absent` is given; raises `UserError` for anything else or a number below 0.
        """
        value = float(self._read(key, (int, float), "a number", default, absent))
        if value < 0:
            raise UserError(f"{self.where}: {key}={value}; expected a number from 0")
        return value

    def count(
        self, key: str, default: int | None = None, least: int = 1, absent: int | None = None
    ) -> int:
        """Returns the whole number at a key of the config; null means `default`, and so does a
        missing key unless `absent` is given; raises `UserError` unless it is from `least` to `MOST`
        (`LAYERS` for a number of layers).
        """
        value = int(self._read(key, (int,), "a whole number", default, absent))
        limit = LAYERS if "layer" in key else MOST
        if not least <= value <= limit:
            expected = f"at least {least}" if value < least else f"at most {limit:,}"
            raise UserError(f"{self.where}: {key}={value}; expected {expected}")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Reads true or false at a key; null and a missing key mean `default`."""
        return bool(self._read(key, (bool,), "true or false", default))

    def text(self, key: str, default: str | None = None) -> str:
        """Reads a text at a key; null and a missing key mean `default`."""
        return str(self._read(key, (str,), "a text", default))

    def choice(self, key: str, choices: Mapping[str, T], default: str | None = None) -> T:
        """Returns what `choices` has for the text at a key, null and a missing key meaning
        `default`; raises `UserError` for any other text.
        """
        name = self.text(key, default)
        if name not in choices:
            raise UserError(f"{self.where}: {key}={name!r}; {nearest(name, choices)}")
        return choices[name]

    def setting(self, key: Key) -> Any:
        """Returns the value that the config has at `key`, or the key's default, as our setting:
        checked by the type of that default, then translated by the key's table.
        """
        if isinstance(key.default, str):
            return self.choice(key.name, key.ours, key.default)
        read: Any = {bool: self.flag, int: self.count, float: self.number}[type(key.default)]
        value = read(key.name, key.default)
        return key.ours.get(value, value)

    def system(self, keys: Keys) -> dict[str, Any]:
        """Returns the config node `system` that this config describes by the table `keys` of its
        family.
        """
        paths = {setting.replace(".", "/"): key for setting, key in keys.items()}
        return nested({p: self.setting(k) if isinstance(k, Key) else k for p, k in paths.items()})

    def below(self, key: str) -> "ForeignConfig":
        """Returns the object at a key as a `ForeignConfig` without a folder, an empty one where it
        is null or missing; raises `UserError` for anything else.
        """
        value = self.content.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(key, "an object")
        return ForeignConfig(value or {}, f"{self.where}: {key}")

    def numbers(self, key: str, count: int, default: float) -> tuple[float, ...]:
        """Returns a tuple of `count` numbers from the list, or the single number to be repeated, at
        a key of the config; null and a missing key mean `default`; raises `UserError` for anything
        else.
        """
        value = self.content.get(key)
        if not isinstance(value, list):
            return (float(self.number(key, default)),) * count
        are_numbers = all(
            isinstance(number, int | float) and not isinstance(number, bool) for number in value
        )
        if not are_numbers or len(value) != count:
            raise self.error(key, f"{count} numbers")
        return tuple(map(float, value))

    def counts(self, key: str, count: int, default: int | None) -> tuple[int, ...]:
        """Reads a list of exactly `count` whole numbers from 1, or one number that is repeated so often;
        null and a missing key mean `default`.
        """
        value = self.content.get(key)
        sizes = value if isinstance(value, list) and len(value) == count else [value] * count
        return tuple(ForeignConfig({key: size}, self.where).count(key, default) for size in sizes)

    def names(self, key: str) -> tuple[str, ...]:
        """Returns the list of texts at a key of the config as a tuple, () where the key is null or
        missing; raises `UserError` for anything else or equal texts.
        """
        texts = self.content.get(key)
        listed = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        if texts is not None and (not listed or len({*texts}) < len(texts)):
            raise self.error(key, "a list of different names")
        return tuple(texts or ())

    def labels(self) -> tuple[str, ...]:
        """Returns the names of a classifier's classes from "id2label" of the config, in the order
        of its outputs; "LABEL_0" and so on if the config does not name them; raises `UserError`
        unless they are different names by number, from 0 on.
        """
        node = self.content.get("id2label")
        if node is None or node == {}:
            return tuple(f"LABEL_{number}" for number in range(self.count("num_labels", 2)))
        numbers = [str(number) for number in range(len(node))] if isinstance(node, Mapping) else []
        if not numbers or {*node} != {*numbers}:
            raise self.error("id2label", "names by number, from 0 on")
        listed = {"id2label": [node[number] for number in numbers]}
        return ForeignConfig(listed, self.where).names("id2label")

    def sibling(self, name: str) -> "ForeignConfig":
        """Reads the JSON file `name` of the same folder as a config, empty where there is none."""
        if self.folder is None or not (self.folder / name).is_file():
            return ForeignConfig({}, name)
        return ForeignConfig(read_json(self.folder / name), str(self.folder / name))

    def differ(self, name: str, other: str) -> bool | None:
        """Returns whether the config's folder has both of the tensors `name` and `other` and they
        differ in any number, or None if the config has no folder.
        """
        if self.folder is None:
            return None
        where = folders.files(self.folder)
        if name not in where or other not in where:
            return False
        return not folders.are_equal(where, name, other)

    def error(self, key: str, expected: str) -> UserError:
        """Returns the error that the value of a key is not as `expected`, a text."""
        return UserError(f"{self.where}: {key}={brief(self.content.get(key))}; expected {expected}")

    def check_keys(self, keys: Sequence[str]) -> None:
        """Raises `UserError` if the config has a key that is not among `keys` and whose value is
        neither null nor false.
        """
        for key in sorted({*self.content} - {*keys}):
            if self.content[key] not in (None, False):
                near = nearest(key, keys)
                raise self.error(key, f"nothing, for the key is not known here; {near}")

    def only(self, **values: Any) -> None:
        """Raises `UserError` if a key of the config has another value than that given for it, the
        only value that attnlab computes; null and a missing key pass.
        """
        for key, value in values.items():
            if (actual := self.content.get(key, value)) not in (value, None):
                raise UserError(
                    f"{self.where}: {key}={brief(actual)} is not computed here, {value!r} is"
                )

    def _read(
        self, key: str, kinds: tuple[type, ...], expected: str, default: Any, absent: Any = None
    ) -> Any:
        """Returns the value at a key of the config, `absent` if the key is missing, `default` if
        that is null; raises `UserError` if that is None too, or, with the words `expected`, if the
        value has none of the types `kinds`.
        """
        value = self.content.get(key, absent)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.where} lacks {key!r}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(key, expected)
        return value


def brief(value: Any) -> str:
    """A value of a config for a message, its beginning where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
