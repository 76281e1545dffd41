"""What a mixer costs at a length: what it declares, what its compiled program counts, and what was
measured on this machine.

Axis letters: B rows, T tokens, d width.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from attnlab.analysis.costs import Point
from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.layers.cards import Cost
from attnlab.mixers import MIXERS

Direction = Literal["causal", "bidirectional"]
REPEATS = 3  # at least, after one that does not count
ENOUGH = 1.0  # seconds of measuring, after which no repeat begins
VIEWS: Mapping[Direction, View] = {"causal": CAUSAL, "bidirectional": EVERYTHING}
PARTS = ("temp_size_in_bytes", "output_size_in_bytes", "argument_size_in_bytes")


def mixer(name: str, fields: Mapping[str, Any], direction: Direction, width: int) -> Mixer:
    """The mixer of a name and fields.

    Raises:
      UserError: no such name or field, a value of the wrong type, a direction that it does not
        have.
    """
    factory: Any = build(MIXERS, {"name": name, **fields}, "mechanism")
    directions = factory.func.capabilities.directions
    if direction not in directions:
        raise UserError(
            f"mechanism={name} is {' and '.join(sorted(directions))} only; leave it out, or set"
            f" --direction={min(directions)}"
        )
    if "self" not in factory.func.capabilities.roles:
        raise UserError(f"mechanism={name} reads no sequence by itself; leave it out")
    made: Mixer = factory(width=width)
    return made


def passing(module: Mixer, direction: Direction, backward: bool) -> Callable[..., Any]:
    """The function that is measured, of parameters, x [B,T,d] and g [B,T,d]: y [B,T,d] of the
    mixer over whole texts, or, `backward`, the gradients of sum(y g) by parameters and x.
    """

    def forward(params: Any, x: jax.Array) -> jax.Array:
        y: jax.Array = module.apply({"params": params}, x, VIEWS[direction], method="mix")[0]
        return y

    def gradients(params: Any, x: jax.Array, g: jax.Array) -> Any:
        return jax.grad(lambda params, x: (forward(params, x) * g).sum(), (0, 1))(params, x)

    return gradients if backward else lambda params, x, g: forward(params, x)


def state_bytes(module: Mixer, room: int) -> int:
    """What is kept of one text of `room` tokens while it is decoded token by token."""

    def begun() -> Any:
        return module.init_with_output(jax.random.key(0), 1, room, jnp.float32, method="begin")[0]

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(begun)))


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
    """Everything about one mixer at one length.

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
        begun = functools.partial(module.init, jax.random.key(0), method="mix")
        shapes = jax.eval_shape(begun, x, VIEWS[direction]).get("params", {})
        declared = _declared(module, length, shapes)
        kept = state_bytes(module, length) if direction == "causal" else declared.state_bytes
    except UserError as error:
        return Point(name, length, why=str(error))
    params = jax.tree.map(
        lambda leaf: 0.1 * jax.random.normal(jax.random.key(leaf.size), leaf.shape, leaf.dtype),
        shapes,
    )
    run = jax.jit(passing(module, direction, backward))
    begin = time.perf_counter()
    program = run.lower(params, x, x).compile()
    compiling = time.perf_counter() - begin
    analysis = program.memory_analysis()
    space = int(sum(getattr(analysis, part, 0) for part in PARTS))
    counts: Any = program.cost_analysis() or {}
    point = Point(
        name,
        length,
        parameters=declared.parameters,
        state_bytes=kept,
        flops=rows * declared.flops,
        compiled_flops=float(counts.get("flops", 0.0)),
        bytes=space,
        compile_seconds=compiling,
    )
    if space > memory:
        return point._replace(why=f"its program takes {space / 1e9:.1f} GB")
    return point._replace(seconds=_least(lambda: program(params, x, x)))


def _declared(module: Mixer, length: int, shapes: Any) -> Cost:
    """What a mixer declares of a text; of one that declares nothing, or has a part that does not, its
    parameters alone.
    """
    try:
        return module.cost(length, length, module.width, module.width)
    except NotImplementedError:
        return Cost(parameters=sum(leaf.size for leaf in jax.tree.leaves(shapes)))


def _least(run: Callable[[], Any]) -> float:
    """The least seconds of some runs after a first one."""
    jax.block_until_ready(run())
    gc.collect()
    taken: list[float] = []
    while len(taken) < REPEATS or sum(taken) < ENOUGH:
        begin = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - begin)
    return min(taken)
