"""What do a loop over layers (`system.scan`) and computing them again (`system.remat`) cost and
save in a training step of a deep decoder?

    python -m benchmarks.deep_stacks --layers=24 --width=256 --length=256 --rows=8

For each way of running the layers: processor seconds, of all threads, to trace and to compile the
step (cross-entropy, its gradient with dropout, clipping, AdamW; without a compile cache), to
compile its forward pass alone, its gradient, and clipping and AdamW; milliseconds of a step (the
least of `--repeats`, the ways taking turns), and what XLA says the step takes beside its arguments
and results.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

from attnlab.progress import table
from benchmarks import rounds

WAYS: dict[str, dict[str, bool]] = {
    "written out": {},
    "scan": {"scan": True},
    "remat": {"remat": True},
    "scan, remat": {"scan": True, "remat": True},
}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, size in (
        ("layers", 24),
        ("width", 256),
        ("length", 256),
        ("rows", 8),
        ("vocabulary", 256),
        ("repeats", 10),
    ):
        parser.add_argument(f"--{name}", type=int, default=size)
    chosen = parser.parse_args()
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # compiling is what is measured
    about = rounds.machine()
    rows = measured(
        chosen.layers, chosen.width, chosen.length, chosen.rows, chosen.vocabulary, chosen.repeats
    )
    columns = (
        *("way", "trace s", "compile s", "forward s", "gradient s", "optimizer s"),
        *("step ms", "memory MB"),
    )
    title = f"{chosen.layers} layers, d={chosen.width}, T={chosen.length}, B={chosen.rows}"
    table(f"{title}; {about['cores']} cores, load before {about['load_before']}", columns, rows)


def measured(
    layers: int, width: int, length: int, rows: int, vocabulary: int, repeats: int
) -> list[tuple[Any, ...]]:
    """A row of the table for each way."""
    lines, steps = [], []
    for name, run in WAYS.items():
        step, forward, gradient, update, arguments = programs(
            layers, width, length, rows, vocabulary, run
        )
        params, state, tokens, key = arguments
        whole, traced, compiled = _compiled(step, *arguments)
        of_forward = _compiled(forward, params, tokens, key)[2]
        of_gradient = _compiled(gradient, params, tokens, key)[2]
        of_update = _compiled(update, params, state, params)[2]
        memory = whole.memory_analysis().temp_size_in_bytes / 1e6
        lines.append((name, traced, compiled, of_forward, of_gradient, of_update, memory))
        steps.append((whole, arguments))
    least = [math.inf] * len(steps)
    for _ in range(repeats + 1):
        for number, (whole, arguments) in enumerate(steps):
            least[number] = min(least[number], _seconds(whole, arguments))
    return [(*row[:-1], 1e3 * seconds, row[-1]) for row, seconds in zip(lines, least, strict=True)]


def programs(
    layers: int, width: int, length: int, rows: int, vocabulary: int, run: dict[str, bool]
) -> tuple[Any, ...]:
    """The step, the forward pass, the gradient and the optimizer of a decoder, and the arguments of
    the step: parameters, the optimizer's state, tokens [rows,length], a key.
    """
    import jax
    import jax.numpy as jnp
    import optax
    from ml_collections import ConfigDict

    from attnlab.config.registry import build
    from attnlab.systems import SYSTEMS

    spec = {
        "name": "decoder",
        "attention": {"name": "multihead", "heads": max(1, width // 32), "bias": True},
        "positions": {"name": "sinusoidal"},
        "width": width,
        "hidden": 4 * width,
        "layers": layers,
        **run,
    }
    system = build(SYSTEMS, ConfigDict(spec), "system")(vocabulary=vocabulary)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def forward(params: Any, tokens: jax.Array, key: jax.Array | None) -> jax.Array:
        rngs = None if key is None else {"dropout": key}
        logits: Any = system.apply({"params": params}, tokens, rngs=rngs)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
        return losses.mean()

    gradient = jax.value_and_grad(forward)

    def update(params: Any, state: Any, slopes: Any) -> Any:
        updates, state = optimizer.update(slopes, state, params)
        return optax.apply_updates(params, updates), state

    def step(params: Any, state: Any, tokens: jax.Array, key: jax.Array) -> Any:
        loss, slopes = gradient(params, tokens, key)
        return loss, update(params, state, slopes)

    tokens = jax.random.randint(jax.random.key(1), (rows, length), 1, vocabulary)
    params = jax.jit(system.init)(jax.random.key(0), jnp.ones((1, 2), jnp.int32))["params"]
    return (
        step,
        forward,
        gradient,
        update,
        (params, jax.jit(optimizer.init)(params), tokens, jax.random.key(2)),
    )


def _compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """The compiled program, and the processor seconds that tracing and compiling it took."""
    import jax

    begun = time.process_time()
    lowered = jax.jit(function).lower(*arguments)
    traced = time.process_time()
    compiled = lowered.compile()
    return compiled, traced - begun, time.process_time() - traced


def _seconds(program: Any, arguments: tuple[Any, ...]) -> float:
    import jax

    begun = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
