"""A mechanism for arrays: `attnlab.mechanism("multihead", heads=4)(width=64)` is a Flax module that
looks at its arguments first.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention, Reading
from attnlab.attention.view import EVERYTHING, View
from attnlab.config.registry import build, kind
from attnlab.errors import UserError

Direction = Literal["causal", "bidirectional"]
_ASKS_FOR_EARLIER = (
    "mechanism: each look of {} with these parts depends on earlier ones; give read history="
    "initial_history(memory) the first time, and history=reading.history of the last reading then"
)


def mechanism(
    name: str, *, direction: Direction | None = None, **fields: Any
) -> Callable[..., Attention]:
    """Returns a factory of the mechanism `name`: called with `width=`, the width of the context, it
    makes a Flax (linen) module that checks its arguments; raises `UserError` for an unknown name or
    field, a wrong type, or fields that do not fit each other or the direction.

    Args:
      name: one of `attnlab list mechanisms`, or "module:Class" for one of your own.
      direction: "causal": no query will see a later key, so parts that need this fit; without it
        "bidirectional", where the mechanism offers that.
      fields: its configuration, as in a config. A part is a name or a node: score="general",
        score={"name": "additive", "hidden": 64}.

    Returns:
      `functools.partial(Class, **fields)`, of a class derived from that of the mechanism; linen's own
      `name=` and `parent=` can be given with `width=`. Shape, dtype and meaning of arguments are
      checked, and mistakes raise `UserError`. A part whose looks depend on earlier ones wants
      `history` in every `read`: `initial_history(memory)` in the first, then that of the last
      `Reading`.

    Raises:
      UserError: no such mechanism or field, a value of the wrong type, or parts that do not fit
        each other or the direction, in the words of the check of a config. A width that does not fit
        is an error when the module is initialised or applied.
    """
    if "width" in fields:
        raise UserError(
            f"mechanism: width comes second, mechanism({name!r}, ...)(width={fields['width']!r})"
        )
    factory = build(MECHANISMS, {"name": name, **fields}, "mechanism")
    made: Any = kind(factory)
    if direction not in (None, "causal", "bidirectional"):
        raise UserError(f"mechanism: direction={direction!r}: expected 'causal' or 'bidirectional'")
    role = max(made.capabilities.roles)
    chosen = direction or min(made.capabilities.directions)
    need = functools.partial(Need, role, padding=False, maps=False, places="trees")
    try:
        need(chosen).check(made, "mechanism", factory.keywords)
    except UserError as error:
        if direction or not _fits(need("causal"), made, factory.keywords):
            raise
        raise UserError(
            f"{error}; or say direction='causal', if no query will see a later key"
        ) from error
    return functools.partial(_checked(made), **factory.keywords)


def _fits(need: Need, made: Any, fields: dict[str, Any]) -> bool:
    """Returns whether the mechanism class `made` with these fields meets every requirement of
    `need`, that is, whether its check raises no `UserError`.
    """
    try:
        need.check(made, "mechanism", fields)
    except UserError:
        return False
    return True


@functools.cache
def _checked(made: Any) -> Any:
    """Returns a subclass of the class `made` whose methods raise `UserError` for unfit inputs."""

    class Checked(made):  # type: ignore[misc]
        def remember(self, source: Any, valid: Any = None, *more: Any, **others: Any) -> Any:
            check_tokens(valid, source=source)
            return super().remember(source, valid, *more, **others)

        def remember_pairs(
            self, keys: Any, values: Any, valid: Any = None, *more: Any, **others: Any
        ) -> Any:
            check_tokens(valid, keys=keys, values=values)
            return super().remember_pairs(keys, values, valid, *more, **others)

        def extend(self, memory: Any, source: Any, valid: Any = None) -> Any:
            check_tokens(valid, source=source)
            return super().extend(memory, source, valid)

        def read(
            self, query: Any, memory: Any, view: Any = EVERYTHING, *more: Any, **others: Any
        ) -> Reading:
            """Reads as the base; raises `UserError` for wrong arguments or a missing `history`."""
            check_sequence(query, "query")
            check_view(view)
            check_memory(memory)
            history = more[1] if len(more) > 1 else others.get("history")
            if history is None and self.initial_history(memory) is not None:
                raise UserError(_ASKS_FOR_EARLIER.format(made.__name__))
            return super().read(query, memory, view, *more, **others)  # type: ignore[no-any-return]

        def __call__(
            self,
            query: Any,
            source: Any,
            view: Any = EVERYTHING,
            valid: Any = None,
            weights: bool = False,
        ) -> Reading:
            """Checks the arguments, remembers the source, and reads with the initial history."""
            check_view(view)
            memory = self.remember(source, valid)
            first = self.initial_history(memory)
            return self.read(query, memory, view, weights=weights, history=first)

    Checked.__name__, Checked.__qualname__ = made.__name__, made.__qualname__
    Checked.__module__ = made.__module__
    return Checked


def check_sequence(array: Any, name: str) -> None:
    """Raises `UserError` unless `array`, the argument called `name`, is an array of floats [batch,
    tokens, width].
    """
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise UserError(
            f"mechanism: {name} is {describe_value(array)}; expected an array of floats"
        )
    if len(array.shape) != 3:
        raise UserError(
            f"mechanism: {name} has the shape {list(array.shape)}; expected [batch, tokens, width]"
        )
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise UserError(
            f"mechanism: {name} is of type {array.dtype}; expected floats, such as embeddings of ids"
        )


def check_tokens(valid: Any, **arrays: Any) -> None:
    """Raises `UserError` unless each of `arrays`, by the name of the argument, is one of floats
    [batch, tokens, width], of as many tokens as the first, and `valid` is None or a bool array
    [batch, tokens] of as many.
    """
    for name, array in arrays.items():
        check_sequence(array, name)
    shape = next(iter(arrays.values())).shape[:2]
    for name, array in arrays.items():
        if array.shape[:2] != shape:
            raise UserError(
                f"mechanism: {name} has the shape {list(array.shape)}; expected {list(shape)} and a"
                f" width, as {next(iter(arrays))}"
            )
    if valid is not None and (getattr(valid, "dtype", None) != jnp.bool_ or valid.shape != shape):
        raise UserError(
            f"mechanism: valid is {describe_value(valid)}; expected bool {list(shape)}, True at"
            " real tokens"
        )


def check_memory(memory: Any) -> None:
    """Raises `UserError` if `memory` is an array or has no attributes, so that it cannot be the
    memory of a mechanism.
    """
    if isinstance(memory, jax.Array) or not hasattr(memory, "__dict__"):
        raise UserError(
            f"mechanism: memory is {describe_value(memory)}; it is what remember(source) returns"
        )


def check_view(view: Any) -> None:
    """Raises `UserError` unless `view` is an `attnlab.attention.view.View`."""
    if not isinstance(view, View):
        raise UserError(
            f"mechanism: view is {describe_value(view)}; expected an attnlab.attention.view.View: CAUSAL,"
            " View(rule), or for padding the argument valid [batch, tokens]"
        )


def describe_value(value: Any) -> str:
    """Describes the type of a value in words, and the dtype and shape of an array."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array {value.dtype} {list(value.shape)}"
    return f"a {type(value).__name__}"
