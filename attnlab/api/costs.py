"""What a mixer costs at a length: what is counted in its program, as traced and as compiled, and what
was measured on this machine.

Axis letters: B rows, T tokens, d width.
"""

import dataclasses
import functools
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from attnlab.analysis.costs import Point
from attnlab.analysis.work import work
from attnlab.attention.mixer import Mixer
from attnlab.attention.protocol import Attention
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.config.registry import behind, build, kind, made
from attnlab.errors import UserError
from attnlab.mixers import MIXERS

Direction = Literal["causal", "bidirectional"]
REPEATS = 3  # at least, after one that does not count
ENOUGH = 1.0  # seconds of measuring, after which no repeat begins
VIEWS: Mapping[Direction, View] = {"causal": CAUSAL, "bidirectional": EVERYTHING}
PARTS = ("temp_size_in_bytes", "output_size_in_bytes", "argument_size_in_bytes")


def mixer(name: str, fields: Mapping[str, Any], direction: Direction, width: int) -> Mixer:
    """Returns the Flax module of the mixer `name` with these fields and this width; raises
    `UserError` if it lacks the direction ("causal" or "bidirectional") or does no self-attention.

    Raises:
      UserError: no such name or field, a value of the wrong type, a direction that it does not
        have.
    """
    factory = build(MIXERS, {"name": name, **fields}, "mechanism")
    capabilities = kind(factory).capabilities
    directions = capabilities.directions
    if direction not in directions:
        raise UserError(
            f"mechanism={name} is {' and '.join(sorted(directions))} only; leave it out, or set"
            f" --direction={min(directions)}"
        )
    if "self" not in capabilities.roles:
        raise UserError(f"mechanism={name} reads no sequence by itself; leave it out")
    made: Mixer = factory(width=width)
    return made


def passing(module: Mixer, direction: Direction, backward: bool) -> Callable[..., Any]:
    """Returns the function whose cost is measured, of parameters, x [B,T,d] and g [B,T,d]: it gives
    y [B,T,d] of the mixer over whole texts, or, `backward`, the gradients of sum(y g) by parameters
    and x.
    """

    def forward(params: Any, x: jax.Array) -> jax.Array:
        y: jax.Array = module.apply({"params": params}, x, VIEWS[direction], method="mix")[0]
        return y

    def gradients(params: Any, x: jax.Array, g: jax.Array) -> Any:
        return jax.grad(lambda params, x: (forward(params, x) * g).sum(), (0, 1))(params, x)

    return gradients if backward else lambda params, x, g: forward(params, x)


class Cost(NamedTuple):
    """What a mixer costs.

    Attributes:
      parameters: numbers that are learned.
      flops: of a forward pass over a text by the plain kernel, which skips no pair of tokens, as
        `attnlab.analysis.work` counts its program, but 2 for each number of a running sum.
      state_bytes: what is kept of one text while it is decoded token by token; of a mixer that only
        reads whole texts, what it remembers of one.
    """

    parameters: int
    flops: float
    state_bytes: int


def cost(module: Mixer, length: int, *, rows: int = 1, direction: Direction = "causal") -> Cost:
    """Returns a `Cost`, from shapes alone without computing: a mixer's number of parameters, the
    FLOPs of a forward pass by the plain kernel over `rows` texts of `length` tokens, and the bytes
    of the decoding state of one text.

    Raises:
      UserError: fields that do not fit each other.
    """
    x = jax.ShapeDtypeStruct((rows, length, module.width), jnp.float32)
    params = shapes(module, x, direction)
    counted = work(passing(plain(module), direction, backward=False), params, x, x)
    learned = sum(leaf.size for leaf in jax.tree.leaves(params))
    return Cost(learned, counted.flops - counted.sums, state_bytes(module, length))


def plain(module: Any) -> Any:
    """Returns a copy of a module, or of a factory of one, in which it and all its parts that have a
    kernel use the plain kernel.
    """
    factory = isinstance(module, functools.partial | type)
    of, given = behind(module) if factory else type(module), getattr(module, "keywords", {})
    fields: dict[str, Any] = {}
    settable = dataclasses.fields(of) if dataclasses.is_dataclass(of) else ()
    if any(field.name == "kernel" and isinstance(field.default, str) for field in settable):
        fields["kernel"] = "plain"
    for field, table in getattr(of, "parts", {}).items():
        part = given.get(field, getattr(of if factory else module, field))
        fields[field] = plain(made(table, part))
    return functools.partial(module, **fields) if factory else module.clone(**fields)


def state_bytes(module: Mixer, room: int) -> int:
    """Returns the bytes of the decoding state of one text of `room` tokens; for a mixer without
    such a state, those of its memory (0 if it has none).
    """

    def state() -> Any:
        """Returns the decoding state, or the memory, of one text; () for a mixer that has neither."""
        if module.capabilities.cache:
            given: tuple[Any, ...] = (1, room, jnp.float32)
            return module.init_with_output(jax.random.key(0), *given, method="begin")[0]
        if not isinstance(module, Attention):
            return ()
        source = jnp.zeros((1, room, module.width))
        return module.init_with_output(jax.random.key(0), source, method="remember")[0]

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(state)))


def shapes(module: Mixer, x: Any, direction: Direction) -> Any:
    """The tree of the shapes of a mixer's parameters, for x [B,T,d] or its shape."""
    begun = functools.partial(module.init, jax.random.key(0), method="mix")
    return jax.eval_shape(begun, x, VIEWS[direction]).get("params", {})


def measured(
    name: str,
    module: Mixer,
    length: int,
    *,
    rows: int = 1,
    direction: Direction = "causal",
    backward: bool = True,
    memory: float = 8e9,
) -> Point:
    """Returns a `Point` of a mixer at `length` tokens: counted and compiled FLOPs, bytes, compile
    time and the least seconds of a run; without seconds if its program takes more than `memory`
    bytes; with the reason `why` alone if its fields do not fit.

    Args:
      name: as it stands in the record.
      module: see `mixer`.
      length: T.
      rows: B.
      direction: see `passing`.
      backward: whether gradients are measured, or a forward pass alone.
      memory: bytes that the program may take; one that would take more is not run.

    Returns:
      the point; without seconds where the program was not run, `why` says why.
    """
    x = jax.random.normal(jax.random.key(1), (rows, length, module.width))
    try:
        counted = cost(module, length, rows=rows, direction=direction)
        params = shapes(module, x, direction)
    except UserError as error:
        return Point(name, length, why=str(error))
    params = jax.tree.map(
        lambda leaf: 0.1 * jax.random.normal(jax.random.key(leaf.size), leaf.shape, leaf.dtype),
        params,
    )
    run = jax.jit(passing(module, direction, backward))
    begin = time.perf_counter()
    program = run.lower(params, x, x).compile()
    compiling = time.perf_counter() - begin
    analysis = program.memory_analysis()
    space = int(sum(getattr(analysis, part, 0) for part in PARTS))
    compiled: Any = program.cost_analysis() or {}
    point = Point(
        name,
        length,
        **counted._asdict(),
        compiled_flops=float(compiled.get("flops", 0.0)),
        bytes=space,
        compile_seconds=compiling,
    )
    if space > memory:
        return point._replace(why=f"its program takes {space / 1e9:.1f} GB")
    return point._replace(seconds=_least_seconds(lambda: program(params, x, x)))


def _least_seconds(run: Callable[[], Any]) -> float:
    """Calls `run` once to warm up, then at least `REPEATS` times and for `ENOUGH` seconds in sum,
    and returns the least seconds of a call.
    """
    jax.block_until_ready(run())
    gc.collect()
    taken: list[float] = []
    while len(taken) < REPEATS or sum(taken) < ENOUGH:
        begin = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - begin)
    return min(taken)
