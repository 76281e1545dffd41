"""Changes to what parts of a system compute, without a change to the parts: for ablation, patching
and gradients at any place of a pass.

    with intervene({"layer_0/attention/heads": Change(scale=gates)}) as seen:
        sums = task.sums(params, batch)
    seen.places, seen.values          what there is in this pass, and the values before the changes

    place                  its value                                                shape
    <embedding>/embedding  the vectors that an `nn.Embed` looks up                  [B,1,T,d]
    <mixer>/weights        attention weights, of mechanisms that compute them all   [B,H,Tq,Tk]
    <mixer>/heads          what a head hands to its rows of the output projection   [B,H,T,D]
    <mixer>/layer          the output of a mixing layer, before the residual sum    [B,1,T,d]

The value z of a place becomes z * scale + shift. y = sum_h z_h W_h for a mixing layer whose
projection is called `out`: a head that is scaled by 0 leaves exactly the rows W_h out, whatever
norms and gates stand before. A module that is called again in a pass has the places "<mixer>_1/..."
then. What is computed inside a loop over time (the looks of a recurrent decoder) is *stepwise*: all
steps get the same change, and no values are handed out.

Methods of modules are intercepted (`flax.linen.intercept_methods`) while a pass is traced, so this
holds for a mixer of a user's own too, changes may be traced arrays (arguments of `jax.jit`, what
`jax.grad` is taken for), and a pass outside `intervene` is the same program as ever. A function that
was compiled outside stays as it is: compile around `intervene`. Attention weights are no result of a
method: `kernels.plain.attend` hands them to `changed_weights`. Layers under `system.scan` are
written out.

Axis letters: B batch, H heads, T tokens (Tq queries, Tk keys), D head width, d model width, K key heads.
"""

import contextlib
import contextvars
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from attnlab.attention.mixer import Mixer
from attnlab.errors import UserError, nearest
from attnlab.layers.dense import joined, split

KINDS = ("embedding", "weights", "heads", "layer")
WHY_NOT = {
    "heads": "has no heads side by side before an output projection; change its 'layer'",
    "weights": "does not compute its attention weights as an array; change its 'heads' or 'layer'",
}


@flax.struct.dataclass
class Change:
    """z * scale + shift in place of the value z of a place.

    Attributes:
      scale, shift: numbers, or arrays [H], [B,H], [B,H,T] or [B,H,T,D]; axes of length 1 are repeated.
      uniform: at weights alone: uniform weights over the keys that a query may see, times this, are
        added.
    """

    scale: Any = 1.0
    shift: Any = 0.0
    uniform: Any = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A place of a pass.

    Attributes:
      name: "<path of the module>/<kind>".
      kind: "embedding", "weights", "heads" or "layer".
      layer: the number of the mixing layer, in the order of the pass, from 0; -1 for an embedding.
      shape: of the value in this pass; the second number is H.
      module: the name of the class.
      stepwise: whether it is computed inside a loop over time, see above.
    """

    name: str
    kind: str
    layer: int
    shape: tuple[int, ...]
    module: str
    stepwise: bool

    @property
    def heads(self) -> int:
        """H."""
        return self.shape[1]


@dataclasses.dataclass
class Pass:
    """What `intervene` hands out, and its work.

    Attributes:
      changes: by the name of the place.
      weighs: whether weights are places too; the plain kernel then computes all looks.
      outer: the pass that this one is inside of; its changes hold too.
      places: those of the pass, by name, in its order.
      values: by place that is not stepwise, the value before the change. Beside weights also
        "<mixer>/uniform", the uniform weights, and "<mixer>/values", the values [B,K,Tk,D] where
        the contexts of heads are weights times values.
    """

    changes: Mapping[str, Change]
    weighs: bool
    outer: "Pass | None" = None
    places: dict[str, Place] = dataclasses.field(default_factory=dict)
    values: dict[str, jax.Array] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._layers: dict[str, int] = {}
        self._heads: dict[str, int] = {}
        self._inside: list[int] = []
        self._trace = _trace()

    def note(
        self, module: nn.Module, kind: str, value: jax.Array, **extras: jax.Array
    ) -> jax.Array:
        """Records the shape of a value [B,H,T,D] as the `Place` "<module path>/<kind>" in `places`
        (path_1, ... at later calls) and, outside of loops, the value and the arrays `extras` in
        `values`, and returns it after the `Change` of that name, if any; raises UserError for a
        change that does not fit it.
        """
        path, stepwise = "/".join(module.path), _trace() != self._trace
        count = self._calls[f"{path}/{kind}"]
        self._calls[f"{path}/{kind}"] += not stepwise  # a loop may be traced more than once
        path = (path + (f"_{count}" if count else "") + "/").removeprefix("/")
        name, layer = path + kind, self._inside[-1] if self._inside else -1
        class_name = type(module).__name__
        self.places[name] = Place(name, kind, layer, value.shape, class_name, stepwise)
        if not stepwise:
            self.values |= {name: value, **{path + key: x for key, x in extras.items()}}
        if (change := self.changes.get(name)) is None:
            return value
        changed = value * _fitted(change.scale, value, name) + _fitted(change.shift, value, name)
        if change.uniform is not None:
            if kind != "weights":
                raise UserError(f"{name}: only weights can be made uniform, not {kind}")
            changed += extras["uniform"] * _fitted(change.uniform, value, name)
        return changed.astype(value.dtype)

    def intercept(self, method: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """Calls a bound Flax method with args and kwargs and returns its result, after passing the
        input of an output projection `out`, or the result of an embedding or of an outermost `mix`
        or `read`, through `note`, to be recorded and changed.

        Args:
          method: bound.
          args, kwargs: what it is called with.
          context: of `flax.linen.intercept_methods`: module and name of the method.
        """
        module, name = context.module, context.method_name
        if module.scope is None:
            return method(*args, **kwargs)
        path = "/".join(module.path)
        if name == "join":  # a mechanism may join fewer heads than it has scores of
            self._heads[path] = args[0].shape[1]
        if isinstance(module, nn.Embed) and name == "__call__":
            vectors = method(*args, **kwargs)
            if vectors.ndim != 3:
                return vectors
            return self.note(module, "embedding", vectors[:, None])[:, 0]
        if isinstance(module.parent, Mixer) and (module.name, name) == ("out", "__call__"):
            x = args[0]
            heads = self._heads.get(path.rpartition("/")[0]) or heads_of(module.parent)
            if heads and x.ndim == 3 and x.shape[-1] % heads == 0:
                args = joined(self.note(module.parent, "heads", split(x, heads))), *args[1:]
        if not isinstance(module, Mixer) or name not in ("mix", "read"):
            return method(*args, **kwargs)
        outer = not self._inside
        self._inside.append(
            self._layers.setdefault(path, len(self._layers)) if outer else self._inside[-1]
        )
        try:
            result = method(*args, **kwargs)
            if not outer:
                return result
            y = result[0] if name == "mix" else result.context
            y = self.note(module, "layer", y[:, None])[:, 0]
            return (y, *result[1:]) if name == "mix" else result.replace(context=y)
        finally:
            self._inside.pop()

    def check(self) -> None:
        """Raises UserError if `changes` has the name of a place that this pass has not recorded in
        `places`.
        """
        for name in self.changes.keys() - self.places.keys():
            path, _, kind = name.rpartition("/")
            layer = self.places.get(f"{path}/layer".removeprefix("/"))
            if layer is not None and kind in WHY_NOT:
                raise UserError(f"{name}: {layer.module} {WHY_NOT[kind]}")
            raise UserError(f"{name}: no such place in this pass; {nearest(name, self.places)}")


_ACTIVE: contextvars.ContextVar[Pass | None] = contextvars.ContextVar("intervention", default=None)


def _trace() -> Any:
    """What tells apart a pass and a loop inside it."""
    return get_opaque_trace_state(convention="flax")


def _fitted(x: Any, value: jax.Array, name: str) -> jax.Array:
    """Reshapes x, a number or an array [H], [B,H], [B,H,T] or [B,H,T,D] of a change, to four axes
    that broadcast to the value [B,H,T,D], and returns it; raises UserError with the `name` of the
    place if it does not fit.
    """
    shape = jnp.shape(x)
    axes = ((1, *shape) if len(shape) == 1 else shape) + (1,) * (4 - max(len(shape), 2))
    axes = axes if shape else (1,) * 4
    if any(n not in (1, size) for n, size in zip(axes, value.shape, strict=True)):
        raise UserError(f"{name}: an array {list(shape)} does not fit {list(value.shape)} there")
    return jnp.reshape(x, axes)


def heads_of(mixer: Mixer) -> int:
    """Returns how many heads a mixer has side by side before its projection `out`: its field
    `heads`, else the result of its method `weighing` or `shape` (or the `heads` of that result),
    else 0.
    """
    if isinstance(heads := getattr(mixer, "heads", None), int):
        return heads
    for method in ("weighing", "shape"):
        if hasattr(mixer, method):
            size: Any = getattr(mixer, method)()
            return int(getattr(size, "heads", size))
    return 0


def intervening() -> bool:
    """Whether this pass is inside `intervene`: then layers are written out, so that each has its
    place.
    """
    return _ACTIVE.get() is not None


def _passes() -> Iterator[Pass]:
    """Yields the passes that this code is inside of, the innermost first."""
    current = _ACTIVE.get()
    while current is not None:
        yield current
        current = current.outer


def weights_changed() -> bool:
    """Whether weights are places in this pass: then the plain kernel computes every look."""
    return any(current.weighs for current in _passes())


def changed_weights(module: nn.Module, weights: jax.Array, look: Any) -> jax.Array:
    """Returns the weights [B,H,Tq,Tk] of a module's attention after the changes of all active
    `intervene` passes, where they are also recorded; `look` (`AttentionInputs`) gives mask and
    values; without a pass that includes weights they are unchanged.
    """
    if not weights_changed():
        return weights
    mask = look.view.allowed()
    visible = jnp.ones(weights.shape) if mask is None else jnp.broadcast_to(mask, weights.shape)
    visible = visible.astype(weights.dtype)
    uniform = visible / jnp.maximum(visible.sum(axis=-1, keepdims=True), 1)
    extras = {"values": look.values} if look.relative is None else {}
    for current in _passes():
        if current.weighs:
            weights = current.note(module, "weights", weights, uniform=uniform, **extras)
    return weights


@contextlib.contextmanager
def intervene(
    changes: Mapping[str, Change] | None = None, weights: bool = False, partly: bool = False
) -> Iterator[Pass]:
    """Applies, inside a `with` block, `changes` (`Change` by place name) to the values of the
    models traced inside, and yields the `Pass` with its places and values; raises UserError at the
    end for a place that did not occur, unless `partly`.

    Args:
      changes: by the name of the place.
      weights: make weights places even if no change is at one.
      partly: changes at places that the pass does not have are passed over, as in a pass through a
        decoder alone.

    Raises:
      UserError: a change at a place that the pass does not have, or of another shape.
    """
    changes = changes or {}
    weights = weights or any(name.endswith("weights") for name in changes)
    current = Pass(changes, weights, _ACTIVE.get())
    token = _ACTIVE.set(current)
    try:
        with nn.intercept_methods(current.intercept):
            yield current
    finally:
        _ACTIVE.reset(token)
    if not partly:
        current.check()
