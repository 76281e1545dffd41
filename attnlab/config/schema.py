"""The description of the nodes of a config: a dataclass for each, with the default, the type, the
range and the meaning of every setting, each stated once.

    class Training(Node):
        "How long and how it is trained."
        steps: int = setting("updates of the whole run", within=whole(1, 10**9))
        compute: Literal["float32", "bfloat16"] = setting("precision of the loss", "float32")

A setting without a default must be set. The annotation says the type; a `typing.Literal` says the
choices. What files and flags are checked against, what fills in what they leave out, and what
`launch.py show` prints are all read off these classes. A new setting stands in `tree.NEWER` too, so
that hashes and ids stay what they were where it has its default. A class lies beside the code that it
configures (`attnlab/data/settings.py`, `attnlab/training/settings.py`, ...), and an object of it is
what that code reads: `config.training.steps`.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias, TypeGuard, TypeVar

from ml_collections import FrozenConfigDict

from attnlab.config.annotations import hints
from attnlab.config.registry import Components, Parts, Table, import_object
from attnlab.errors import UserError

_MOST = 2**31 - 1  # what an int32 holds
STEPS = 10**9
LONGEST = 2**20  # tokens of a sequence, and the size of any part of a system

Component: TypeAlias = FrozenConfigDict
"""A node that names a component: its `name`, and the fields of that class or function."""
TABLES: Mapping[str, str] = {
    "system": "attnlab.systems:SYSTEMS",
    "data": "attnlab.data:SOURCES",
    "optimizer": "attnlab.training.optimizers:OPTIMIZERS",
    "schedule": "attnlab.training.optimizers:SCHEDULES",
}
"""The tables of the components at the top of a config; below them see a component's `parts`."""


Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a setting may be.

    Attributes:
      text: its description, "a whole number of at least 1".
      holds: whether a number is in the range.
    """

    text: str
    holds: Callable[[float], bool]

    def check(self, value: object, where: str) -> None:
        """Raises `UserError`, with the setting's name `where`, unless `value` is None (a setting
        that is off) or a number in the range.
        """
        if value is None:
            return
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not self.holds(value):
            raise UserError(f"{where}={value!r}: expected {self.text}")


def whole(least: int, most: int = _MOST) -> Range:
    """The whole numbers between two bounds, both included."""
    text = f"a whole number of at least {least} and at most {most:,}"
    return Range(text, lambda x: isinstance(x, int) and least <= x <= most)


def between(least: float, most: float) -> Range:
    """Returns the `Range` of the numbers between two bounds, both included."""
    return Range(
        f"a number of at least {least:g} and at most {most:g}", lambda x: least <= x <= most
    )


COUNT = whole(1)
SEED = whole(0, 2**32 - 1)
AT_LEAST_ZERO = Range("a number of at least 0", lambda x: 0 <= x < math.inf)
ABOVE_ZERO = Range("a number above 0", lambda x: 0 < x < math.inf)
RATE = Range("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
SHARE = Range("a number above 0 and at most 1", lambda x: 0 < x <= 1)


def setting(
    help: str,
    default: object = dataclasses.MISSING,
    *,
    within: Range | None = None,
    table: Components | str | None = None,
) -> Any:
    """Returns a dataclass field of a `Node` with its meaning, default value, range and table of
    components.

    Args:
      help: its meaning, in one line.
      default: its value unless set; without one it must be set.
      within: the numbers that it may be.
      table: the table of the component that the field holds; a `Table`, or "module:attribute" of
        one, imported on first use.
    """
    return dataclasses.field(
        default=default, metadata={"help": help, "within": within, "table": table}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """The base of all classes that describe a node of a config; a subclass is a dataclass with
    `kw_only=True` and fields by `setting`, or annotated with another `Node`, which lies below.

    Attributes:
      further: the type and range of keys that are no fields; None if there are no others.
      others: the values of these keys.
    """

    further: ClassVar[tuple[object, Range] | None] = None
    others: Mapping[str, object] = dataclasses.field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise `UserError` if settings of this node do not go together."""

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Calls a function, or a class, with these `arguments` and then all settings by name, and
        returns the result.
        """
        return function(*arguments, **dict(self.items()))

    def to_dict(self) -> dict[str, object]:
        """Returns the node as nested plain dictionaries; tuples stay tuples."""
        return {
            key: value.to_dict() if isinstance(value, (Node, FrozenConfigDict)) else value
            for key, value in self.items()
        }

    def items(self) -> Iterator[tuple[str, object]]:
        """Yields the name and the value of every setting."""
        for field in dataclasses.fields(self):
            if field.name != "others":
                yield field.name, getattr(self, field.name)
        yield from self.others.items()


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting as its class describes it.

    Attributes:
      default: `dataclasses.MISSING` where it must be set.
      hint: its annotation.
      help: its meaning; of a node below, the first line of its docstring.
      within: its range, or None.
      choices: of a `typing.Literal`; () for any other.
      below: the names of the settings of a node below; () for a value.
    """

    default: object
    hint: object
    help: str
    within: Range | None
    choices: tuple[object, ...]
    below: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """Returns the range or the choices of the setting as text; "" if only its type is
        restricted.
        """
        if self.choices:
            return f"one of: {', '.join(str(choice) or repr('') for choice in self.choices)}"
        return self.within.text if self.within else ""


def is_node(kind: object) -> TypeGuard[type[Node]]:
    """Whether an annotation, or a component, is a class that describes a node."""
    return isinstance(kind, type) and issubclass(kind, Node)


def _settings(kind: type[Node]) -> list[dataclasses.Field[object]]:
    return [field for field in dataclasses.fields(kind) if field.name != "others"]


_SETTINGS: dict[type[Node], Mapping[str, Setting]] = {}


def settings_of(kind: type[Node]) -> Mapping[str, Setting]:
    """Returns the settings of a class that describes a node, by name, in order, each as a `Setting`
    (default, type, help, range, choices).
    """
    if kind in _SETTINGS:
        return _SETTINGS[kind]
    annotations = hints(kind)
    settings = {}
    for field in _settings(kind):
        hint = annotations[field.name]
        settings[field.name] = Setting(
            default=field.default,
            hint=hint,
            help=first_paragraph(hint.__doc__) if is_node(hint) else field.metadata.get("help", ""),
            within=field.metadata.get("within"),
            choices=typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else (),
            below=tuple(inner.name for inner in _settings(hint)) if is_node(hint) else (),
        )
    return _SETTINGS.setdefault(kind, settings)


def tables(kind: type[Node]) -> Parts:
    """Returns, for each setting of a node that names a component, the table of such components,
    imported where it is given by its path.
    """
    table_of = {field.name: field.metadata.get("table") for field in _settings(kind)}
    return {
        name: import_object(table, Table) if isinstance(table, str) else table
        for name, table in table_of.items()
        if table is not None
    }


def first_paragraph(text: str | None) -> str:
    """Returns the first paragraph of a docstring as one line."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())
