"""The tree of a config: its nodes, the components they configure, and its plain, flat and hashed
forms.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from attnlab.config.annotations import hints
from attnlab.config.registry import Table, fields
from attnlab.config.schema import Described, Node, described, is_node, tables
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class Place:
    """A node of the tree and what is known about its keys.

    Attributes:
      node: the node itself.
      where: its dotted name; "" for the root.
      component: what says which keys it has: a class that describes a node (`schema.Node`), or the
        class or function that the node names; None if nothing does.
    """

    node: ConfigDict
    where: str
    component: Callable[..., Any] | None = None

    @functools.cached_property
    def described(self) -> Mapping[str, Described]:
        """The settings of a class that describes a node; {} of any other."""
        return described(self.component) if is_node(self.component) else {}

    @property
    def further(self) -> Any:
        """What keys may hold that such a class does not describe, see `schema.Node`; None for
        nothing.
        """
        return getattr(self.component, "further", None) if self.described else None

    @functools.cached_property
    def tables(self) -> Mapping[str, Table]:
        """The keys that hold components, with the table each comes from."""
        if is_node(self.component):
            return tables(self.component)
        return getattr(self.component, "parts", {})

    def name(self, key: str) -> str:
        """The full dotted name of `key` in this node."""
        return f"{self.where}.{key}" if self.where else key

    def child(self, key: str) -> Place | None:
        """The node at `key`, or None if there is none; raises `UserError` for a component
        nobody knows.
        """
        node = self.node.get(key)
        if not isinstance(node, ConfigDict):
            return None
        if key not in self.tables:
            below = self.described[key].hint if key in self.described else None
            return Place(node, self.name(key), below if is_node(below) else None)
        table, name = self.tables[key], node.get("name", "")
        try:
            component = table.find(name)
        except UserError as error:
            raise UserError(f"config.{self.name(key)}: {error}") from error
        table.check(component, name, f"config.{self.name(key)}={name}")
        return Place(node, self.name(key), component)

    def children(self) -> Iterator[Place]:
        """All nodes directly below."""
        places = (self.child(key) for key in list(self.node))
        return (place for place in places if place is not None)

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations of the component's fields."""
        return hints(self.component) if self.component else {}

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The component's fields with a plain default, see `defaults`."""
        return defaults(self.component) if self.component else {}

    def hint(self, key: str) -> Any:
        """The annotation of a field, or of a further key of a node that may have such; `Any`
        where there is none.
        """
        return self.hints.get(key, self.further[0] if self.further else Any)


def separate(config: ConfigDict) -> ConfigDict:
    """A copy in which no two places are one object, as they are where a file uses one dictionary
    twice; references stay.
    """
    items = config.items(preserve_field_references=True)
    return ConfigDict(
        {key: separate(value) if isinstance(value, ConfigDict) else value for key, value in items}
    )


def defaults(component: Callable[..., Any]) -> dict[str, Any]:
    """The fields of a component whose default is a plain value; a dataclass's default factories are
    called.
    """
    if is_node(component):
        known = described(component).items()  # type: ignore[arg-type]
        return {name: one.default for name, one in known if one.default is not dataclasses.MISSING}
    made = dataclasses.fields(component) if dataclasses.is_dataclass(component) else ()
    factories = {
        field.name: field.default_factory
        for field in made
        if field.default_factory is not dataclasses.MISSING
    }
    values = {
        name: factories[name]() if name in factories else value
        for name, value in fields(component).items()
    }
    return {name: value for name, value in values.items() if is_plain(value)}


def is_plain(value: Any) -> bool:
    """True for what a config may hold: None, bool, int, float, str, and tuples, lists or
    string-keyed mappings of these.
    """
    if isinstance(value, (Mapping, ConfigDict)):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def complete(place: Place) -> None:
    """Fills in what the config leaves out, in place: defaults, the nodes that every config of its
    kind has, {"name": "name"} for "name".
    """
    for key, one in place.described.items():
        if is_node(one.hint) and key not in place.node:
            place.node[key] = ConfigDict()
    if place.component:
        for field, default in place.defaults.items():
            if field not in place.node:
                place.node[field] = default
            elif (
                isinstance(default, float)
                and type(place.node[field]) is int
                and abs(place.node[field]) < 2**1000
            ):
                place.node[field] = float(place.node[field])
    for key, value in list(place.node.items()):
        if isinstance(value, str) and key in place.tables:
            del place.node[key]  # a ConfigDict keeps the type of what it holds
            place.node[key] = ConfigDict({"name": value})
        elif isinstance(value, list):
            del place.node[key]  # a ConfigDict turns a tuple set over a list back into a list
            place.node[key] = frozen(value)
    for child in place.children():
        complete(child)


OLDER: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("optimizer", "adamw"): {"decayed": "rank"},
    ("data", "columns"): {"separator": "any"},
}
"""What stored configs mean that lack a setting whose default has changed since: by node and name of
the component, setting to value."""


NEWER: Mapping[str, Any] = {
    "training.precision": "float32",
    "training.evaluate_rows": 0,
    "training.lag": -1,
    "training.evaluate_rows": 0,
    "training.lag": -1,
    "parallel.data": -1,
    "parallel.fsdp": 1,
    "parallel.tensor": 1,
    "parallel.sequence": 1,
    "parallel.rules": (),
}
"""Settings that are newer than the hashes of configs and the ids of candidates that users have:
"NODE.SETTING", or "COMPONENT.SETTING" by the component's name, to its default. A new setting goes
here: where it has its default it enters no hash, no name of a folder and no id."""


def adds_nothing(name: str, value: Any) -> bool:
    """Whether a setting, "training.precision", is a newer one with its default (`NEWER`)."""
    return name in NEWER and frozen(value) == NEWER[name]


def from_dict(tree: Mapping[str, Any]) -> ConfigDict:
    """The config stored as `tree` (of `to_dict`, through JSON if need be: lists become tuples
    again), not yet locked; settings that are newer than it have the values that it meant (`OLDER`).
    """
    return ConfigDict(
        {
            key: from_dict({**OLDER.get((key, str(value.get("name"))), {}), **value})
            if isinstance(value, Mapping)
            else frozen(value)
            for key, value in tree.items()
        }
    )


def to_dict(config: Mapping[str, Any] | Node) -> dict[str, Any]:
    """Settings, or a config, as nested plain dictionaries, ready for JSON; tuples stay tuples."""
    return {
        key: to_dict(value) if isinstance(value, (ConfigDict, Mapping, Node)) else frozen(value)
        for key, value in config.items()
    }


def flat(config: Mapping[str, Any] | Node) -> dict[str, Any]:
    """Every value by its full dotted name, `{"system.attention.hidden": 256, ...}`, in the order of
    the tree.
    """
    found: dict[str, Any] = {}
    for key, value in to_dict(config).items():
        below = flat(value) if isinstance(value, dict) else {}
        found |= {f"{key}.{name}": leaf for name, leaf in below.items()} or {key: value}
    return found


def is_below(name: str, nodes: Iterable[str]) -> bool:
    """Whether a dotted name is one of the nodes, or inside one."""
    return f"{name}.".startswith(tuple(f"{node}." for node in nodes))


def config_hash(config: Mapping[str, Any] | Node) -> str:
    """12 hex digits: sha256 of the canonical JSON (sorted keys, no spaces) of what is not `NEWER`;
    the same for lists and tuples.
    """
    canonical = json.dumps(_hashed(to_dict(config)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _hashed(tree: Mapping[str, Any], node: str = "") -> dict[str, Any]:
    """A tree without the settings that add nothing."""
    return {
        key: _hashed(value, str(value.get("name", key))) if isinstance(value, dict) else value
        for key, value in tree.items()
        if not adds_nothing(f"{node}.{key}", value)
    }


def frozen(value: Any) -> Any:
    """Lists to tuples, all the way down."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value
