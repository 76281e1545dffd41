"""Patterns in names of settings: one override for all settings of a kind.

In `system.*.dropout` the star stands for one part of a name, in `system.*attention` for any
characters within a part; `**` between dots stands for any number of parts, none included. The
first part has no star. What a pattern hits are settings of one kind: components of one table, or
values of one type.
"""

import difflib
import re
from collections.abc import Iterator, Sequence

from ml_collections import ConfigDict

from attnlab.config.annotations import kinds
from attnlab.config.tree import ConfigNode
from attnlab.errors import UserError, few

_DOTTED = re.compile(r"[^\W\d]\w*(\.(?!\d)[\w*]+)*")


def is_pattern(name: str) -> bool:
    """Whether the name of a setting has a star, so that it stands for several."""
    return "*" in name


def covers(pattern: str, name: str) -> bool:
    """Returns whether a dotted pattern ("*" within a part of the name, "**" for any number of
    parts), or a full name, stands for the setting of the full name `name`.

    >>> covers("system.**.dropout", "system.dropout"), covers("system.*.dropout", "system.dropout")
    (True, False)
    """
    parts = (
        r"(?:[^.]+\.)*" if part == "**" else re.sub(r"(\\\*)+", "[^.]*", re.escape(part)) + r"\."
        for part in re.sub(r"(\*\*\.)+", "**.", pattern).split(".")
    )
    return re.fullmatch("".join(parts), f"{name}.") is not None


def is_dotted_name(name: object) -> bool:
    """Returns whether something is the dotted name of a setting, or a pattern of such names: its
    first part has no star.
    """
    return isinstance(name, str) and _DOTTED.fullmatch(name) is not None


def hits(root: ConfigNode, pattern: str, components: bool = False) -> list[str]:
    """Returns the full names of the settings of a config that a pattern stands for, or, if
    `components`, [] where these are not components of one table; then raises `UserError` if its
    first part has a star, or if it stands for none or for settings of several kinds.

    Raises:
      UserError: its first part has a star, it stands for none (with near names), or for settings
        of two kinds.
    """
    by_kind: dict[tuple[str, bool], list[str]] = {}
    settings = list(_settings(root))
    for name, kind, is_component in settings:
        if covers(pattern.removesuffix(".name"), name):
            by_kind.setdefault((kind, is_component), []).append(name)
    if components and [is_component for _, is_component in by_kind] != [True]:
        return []
    if is_pattern(pattern.partition(".")[0]):
        raise UserError(
            f"config.{pattern}: the first part has a star; begin with a group, system.**.dropout"
        )
    if not by_kind:
        near = _near(pattern, [name for name, *_ in settings])
        raise UserError(f"config.{pattern} stands for no setting; {near}")
    if len(by_kind) > 1:
        named = [f"{few(names)} ({kind})" for (kind, _), names in by_kind.items()]
        raise UserError(
            f"config.{pattern} stands for settings of {len(by_kind)} kinds: {' and '.join(named[:2])}"
            f"{' and others' if len(named) > 2 else ''}; name those of one kind"
        )
    return next(iter(by_kind.values()))


def _settings(node: ConfigNode) -> Iterator[tuple[str, str, bool]]:
    """Yields (full dotted name, kind, whether it selects a component) of each setting at a config
    node and below; the kind is that of the component's table, or the allowed types in words; groups
    and absent components are left out.
    """
    for key in dict.fromkeys([*node.values, *node.settings]):
        value, child = node.values.get(key), node.child(key)
        if key in node.tables:
            if value is not None:
                yield node.full_name(key), node.tables[key].kind, True
        elif not isinstance(value, ConfigDict) and not (key == "name" and node.component):
            allowed = kinds(node.hint(key)) - {type(None)} or {type(value)}
            words = sorted(getattr(kind, "__name__", str(kind)) for kind in allowed)
            yield node.full_name(key), " or ".join(words), False
        if child is not None:
            yield from _settings(child)


def _near(pattern: str, names: Sequence[str]) -> str:
    """Returns the end of an error message: the full names whose last part contains or resembles
    that of the pattern, and a wider pattern for them, or that 'show' prints all names.
    """
    last = pattern.rpartition(".")[2].strip("*")
    ends = {name.rpartition(".")[2] for name in names}
    near = {end for end in ends if last and last in end}
    near |= set(difflib.get_close_matches(last, ends))
    choices = [name for name in names if name.rpartition(".")[2] in near]
    group = pattern.partition(".")[0]
    choices = [name for name in choices if name.partition(".")[0] == group] or choices
    if not choices:
        return "'show' prints all names"
    wider = f"{pattern.partition('*')[0]}**.*{last}"
    advice = f"; write {wider} for those" if all(covers(wider, name) for name in choices) else ""
    return f"there are {few(choices)}{advice}"
