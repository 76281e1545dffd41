"""A mechanism for arrays: `attnlab.mechanism("multihead", heads=4)(width=64)` is a Flax module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.config.registry import build
from attnlab.errors import UserError


def mechanism(name: str, **fields: Any) -> Callable[..., Attention]:
    """A factory of the mechanism `name`: called with `width=`, the width of the context, it makes a
    Flax (linen) module.

    Args:
      name: one of `attnlab list mechanisms`, or "module:Class" for one of your own.
      fields: its configuration, as in a config. A part is a name or a node: score="general",
        score={"name": "additive", "hidden": 64}.

    Returns:
      `functools.partial(Class, **fields)`; linen's own `name=` and `parent=` can be given with
      `width=`.

    Raises:
      UserError: no such mechanism or field, a value of the wrong type, or parts that do not fit
        each other, in the words of the check of a config. A width that does not fit is an error
        when the module is initialised or applied.
    """
    if "width" in fields:
        raise UserError(
            f"mechanism: width comes second, mechanism({name!r}, ...)(width={fields['width']!r})"
        )
    factory: Any = build(MECHANISMS, {"name": name, **fields}, "mechanism")
    made = factory.func
    role, direction = (
        words[0]
        for words in (
            sorted(made.capabilities.roles, reverse=True),
            sorted(made.capabilities.directions),
        )
    )
    Need(role, direction, padding=False, maps=False, places="trees").check(
        made, "mechanism", factory.keywords
    )  # type: ignore[arg-type]
    return factory  # type: ignore[no-any-return]
