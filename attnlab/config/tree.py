"""The tree of a config: its nodes, the components they configure, and its plain, flat and hashed
forms.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from ml_collections import ConfigDict

from attnlab.config.annotations import hints
from attnlab.config.registry import Parts, fields
from attnlab.config.schema import Node, Range, Setting, is_node, settings_of, tables
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class ConfigNode:
    """A node of a config and what describes its keys.

    Attributes:
      values: its keys and values.
      path: its dotted name; "" for the root.
      component: the class that describes the node (`schema.Node`), or the class or function that it
        names; None if neither.
    """

    values: ConfigDict
    path: str
    component: Callable[..., object] | None = None

    @functools.cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings of a class that describes a node; {} of any other."""
        return settings_of(self.component) if is_node(self.component) else {}

    @property
    def further(self) -> tuple[object, Range] | None:
        """The type and range of keys that the class does not describe (`schema.Node`), or None."""
        return getattr(self.component, "further", None) if self.settings else None

    @functools.cached_property
    def tables(self) -> Parts:
        """Returns, by key, the table of components for each key of this node that names a
        component.
        """
        if is_node(self.component):
            return tables(self.component)
        return getattr(self.component, "parts", {})

    def full_name(self, key: str) -> str:
        """The full dotted name of `key` in this node."""
        return f"{self.path}.{key}" if self.path else key

    def child(self, key: str) -> "ConfigNode | None":
        """Returns the node at `key`, or None if its value is no group; raises `UserError` for an
        unknown or unfit component.
        """
        values = self.values.get(key)
        if not isinstance(values, ConfigDict):
            return None
        if key not in self.tables:
            below = self.settings[key].hint if key in self.settings else None
            return ConfigNode(values, self.full_name(key), below if is_node(below) else None)
        table = self.tables[key]
        name = values.get("name", "")
        try:
            component = table.find(name)
        except UserError as error:
            raise UserError(f"config.{self.full_name(key)}: {error}") from error
        table.check(component, name, f"config.{self.full_name(key)}={name}")
        return ConfigNode(values, self.full_name(key), component)

    def children(self) -> "Iterator[ConfigNode]":
        """All nodes directly below."""
        nodes = (self.child(key) for key in list(self.values))
        return (node for node in nodes if node is not None)

    @functools.cached_property
    def hints(self) -> dict[str, object]:
        """The annotations of the component's fields."""
        return hints(self.component) if self.component else {}

    @functools.cached_property
    def defaults(self) -> dict[str, object]:
        """The component's fields with a plain default, see `defaults`."""
        return defaults(self.component) if self.component else {}

    def hint(self, key: str) -> object:
        """Returns the annotation of the field `key`, or of a further key of a node that may have
        further keys, and `inspect.Parameter.empty` where there is none.
        """
        return self.hints.get(key, self.further[0] if self.further else inspect.Parameter.empty)


def copy_tree(config: ConfigDict) -> ConfigDict:
    """Copies a config so that no two nodes are one object, as they are where a file uses one
    dictionary twice; references stay.
    """
    items = config.items(preserve_field_references=True)
    return ConfigDict(
        {key: copy_tree(value) if isinstance(value, ConfigDict) else value for key, value in items}
    )


def defaults(component: Callable[..., object]) -> dict[str, object]:
    """Returns the default values of a component's fields by name, results of dataclass default
    factories included; those that no config can hold are left out.
    """
    if is_node(component):
        settings = settings_of(component).items()
        defaults = {name: setting.default for name, setting in settings}
        return {k: v for k, v in defaults.items() if v is not dataclasses.MISSING}
    declared = dataclasses.fields(component) if dataclasses.is_dataclass(component) else ()
    factories = {
        field.name: field.default_factory
        for field in declared
        if field.default_factory is not dataclasses.MISSING
    }
    values = {
        name: factories[name]() if name in factories else value
        for name, value in fields(component).items()
    }
    return {name: value for name, value in values.items() if is_plain(value)}


def is_plain(value: object) -> bool:
    """Returns whether a config may hold a value, that is, whether it is None, bool, int, float,
    str, or a tuple, list or string-keyed mapping of these.
    """
    if isinstance(value, (Mapping, ConfigDict)):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def complete(node: ConfigNode) -> None:
    """Completes a node and all below in place: missing defaults and groups, a component's name as
    {"name": name}, ints of float settings as floats, lists as tuples.
    """
    for key, setting in node.settings.items():
        if is_node(setting.hint) and key not in node.values:
            node.values[key] = ConfigDict()
    if node.component:
        for field, default in node.defaults.items():
            value = node.values.get(field)
            if field not in node.values:
                node.values[field] = default
            elif isinstance(default, float) and type(value) is int and abs(value) < 2**1000:
                node.values[field] = float(node.values[field])
    for key, value in list(node.values.items()):
        if isinstance(value, str) and key in node.tables:
            del node.values[key]  # a ConfigDict keeps the type of what it holds
            node.values[key] = ConfigDict({"name": value})
        elif isinstance(value, list):
            del node.values[key]  # a ConfigDict turns a tuple set over a list back into a list
            node.values[key] = frozen(value)
    for child in node.children():
        complete(child)


OLDER: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("optimizer", "adamw"): {"decayed": "rank"},
    ("data", "columns"): {"separator": "any"},
    ("data", "image_rows"): {"drawn_by": "name"},
    ("of", "image_rows"): {"drawn_by": "name"},
    ("columns", ""): {"boxes": "objects.bbox", "categories": "objects.category"}
    | {"mask": "mask", "answer": "answer"},
}
"""Values that stored configs mean if they lack a setting whose default has changed since, or a key of
a node that no class describes: by node and name of the component, setting to value."""


NEWER: Mapping[str, object] = {
    "training.precision": "float32",
    "training.evaluate_rows": 0,
    "training.lag": -1,
    "training.after": "",
    "training.metrics": (),
    "training.stop": {"measure": "", "patience": 3, "min_delta": 0.0},
    "parallel.data": -1,
    "parallel.fsdp": 1,
    "parallel.tensor": 1,
    "parallel.sequence": 1,
    "parallel.rules": (),
    "decoding.compute": "float32",
    **{f"columns.{name}": value for name, value in OLDER["columns", ""].items()},
}
"""Settings that are newer than the hashes of configs and the ids of candidates that users have:
"NODE.SETTING", or "COMPONENT.SETTING" by the component's name, to its default; a node in a node
counts as one setting. A new setting goes here: where it has its default it enters no hash, no name of a folder and no id."""


def adds_nothing(name: str, value: object) -> bool:
    """Whether a setting, "training.precision", is a newer one with its default (`NEWER`)."""
    return name in NEWER and frozen(value) == NEWER[name]


def from_dict(tree: Mapping[str, object]) -> ConfigDict:
    """Returns the stored `tree` (of `to_dict`, or read from JSON) as an unlocked `ConfigDict`:
    lists become tuples; settings newer than it get the values that held before they existed. Those
    values are in `OLDER`.
    """
    return ConfigDict(
        {
            key: from_dict({**OLDER.get((key, str(value.get("name", ""))), {}), **value})
            if isinstance(value, Mapping)
            else frozen(value)
            for key, value in tree.items()
        }
    )


def to_dict(config: Mapping[str, object] | Node) -> dict[str, object]:
    """Returns settings, or a config, as nested plain dictionaries for JSON; tuples stay tuples."""
    return {
        key: to_dict(value) if isinstance(value, (ConfigDict, Mapping, Node)) else frozen(value)
        for key, value in config.items()
    }


def flat(config: Mapping[str, object] | Node) -> dict[str, object]:
    """Returns every value of a config by its full dotted name, `{"system.attention.hidden": 256,
    ...}`, in the order of the tree.
    """
    leaves: dict[str, object] = {}
    for key, value in to_dict(config).items():
        below = flat(value) if isinstance(value, dict) else {}
        leaves |= {f"{key}.{name}": leaf for name, leaf in below.items()} or {key: value}
    return leaves


def differing(
    *configs: Mapping[str, object], text: Callable[..., str] = json.dumps, absent: str = "nothing"
) -> dict[str, tuple[str, ...]]:
    """Returns {name: (its value in each of the flat `configs`, see `flat`)} for the values that are
    not the same in all configs; `text` converts a value to text, and `absent` stands for a missing
    one.
    """
    names = dict.fromkeys(name for config in configs for name in config)
    texts = {
        name: tuple(text(config[name]) if name in config else absent for config in configs)
        for name in names
    }
    return {name: values for name, values in texts.items() if len(set(values)) > 1}


def is_below(name: str, nodes: Iterable[str]) -> bool:
    """Whether a dotted name is one of the nodes, or inside one."""
    return f"{name}.".startswith(tuple(f"{node}." for node in nodes))


def config_hash(config: Mapping[str, object] | Node, whole: bool = False) -> str:
    """Returns the first 12 hex digits of the sha256 of the JSON of a config (sorted keys, no
    spaces), without the settings in `NEWER` that have the value given there, or with them if
    `whole`; lists and tuples count as the same. Manifests had the hash of the whole before there
    was `NEWER`.
    """
    tree = to_dict(config)
    hashed = tree if whole else _hashed(tree)
    canonical = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _hashed(tree: Mapping[str, object], node: str = "") -> dict[str, object]:
    """Returns a copy of a tree of settings, to be hashed, without those whose value changes nothing
    (`adds_nothing`).
    """
    return {
        key: _hashed(value, str(value.get("name", key))) if isinstance(value, dict) else value
        for key, value in tree.items()
        if not adds_nothing(f"{node}.{key}", value)
    }


def frozen(value: object) -> object:
    """A value with its lists as tuples, at any depth."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value
