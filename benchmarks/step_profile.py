"""Where does the time of a training step go, and what share of the processor's matrix speed does it
reach?

    python -m benchmarks.step_profile --system=rnnsearch --directory=FOLDER

For configs/multi30k.py (or `--config`) and its `--shapes` most frequent batch shapes: milliseconds
of the forward pass alone, of what the gradient adds to it, of what clipping and the optimizer add,
and of the whole step (medians of `--repeats`, after one unmeasured run). Beside them the
floating-point operations of the step's matrix products, counted in its traced program with loops
unrolled, per second, as a share of a plain [2048,2048] product measured in the same run. What is no
matrix product (softmax, gates, embedding look-ups, dropout, optimizer) has no operations in this
count, but costs time.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from attnlab import config as configs
from attnlab.commands import session, take_overrides
from attnlab.progress import table
from benchmarks import rounds


def main() -> None:
    """Profile and print the table."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", default="rnnsearch", help="argument of the config")
    parser.add_argument(
        "--config",
        default="configs/multi30k.py",
        help="--config.a.b=value overrides as in training",
    )
    parser.add_argument("--directory", help="folder of the data, where the config needs one")
    parser.add_argument(
        "--shapes", type=int, default=2, help="how many batch shapes, the most frequent first"
    )
    parser.add_argument("--repeats", type=int, default=15)
    chosen = parser.parse_args(rest)
    overrides = [*([f"data.directory={chosen.directory}"] if chosen.directory else []), *overrides]
    config = configs.load(f"{chosen.config}:{chosen.system}", overrides)
    session.start_jax()
    about = rounds.machine()
    peak = matmul_peak(chosen.repeats)
    rows = profile(config, chosen.shapes, chosen.repeats, peak)
    columns = (
        "batch",
        "of updates",
        "forward ms",
        "+ gradient ms",
        "+ update ms",
        "step ms",
        "GFLOP",
        "GFLOP/s",
        "of peak",
    )
    title = f"{chosen.system}: a training step; matmul peak {peak / 1e9:.0f} GFLOP/s"
    table(f"{title}, {about['cores']} cores, load before {about['load_before']}", columns, rows)


def profile(config: Any, shapes: int, repeats: int, peak: float) -> list[tuple[Any, ...]]:
    """One row of the table for each of the most frequent shapes."""
    import jax

    from attnlab.tasks import TASKS
    from attnlab.training.optimizers import build_optimizer
    from attnlab.training.step import first_state, make_step

    task = TASKS.resolve(config.task).load(config, None, ("train",))
    optimizer, _ = build_optimizer(
        config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip
    )
    options = {name: config.training[name] for name in ("accumulate", "ema", "compute")}
    step = make_step(task.loss, task.weight, optimizer, **options)
    state = jax.jit(
        lambda key: first_state(task.init(key), optimizer, config.training.ema, seed=config.seed)
    )(jax.random.key(config.seed))
    key = jax.random.key(0)
    stages: list[Callable[..., Any]] = [
        jax.jit(lambda state, batch: task.loss(state.params, batch, key)[0]),
        jax.jit(
            lambda state, batch: jax.grad(lambda params: task.loss(params, batch, key)[0])(
                state.params
            )
        ),
        jax.jit(step),
    ]
    rows = []
    for batch, share in _most_frequent(task.batches(config.training.accumulate), shapes):
        operations = matmul_operations(jax.make_jaxpr(step)(state, batch).jaxpr)
        forward, gradient, whole = (
            1e3 * _median_seconds(stage, repeats, state, batch) for stage in stages
        )
        rate = operations / (whole / 1e3)
        parts = (forward, gradient - forward, whole - gradient, whole)
        rows.append(
            (
                "x".join(map(str, batch["target"].shape)),
                f"{share:.0%}",
                *parts,
                operations / 1e9,
                rate / 1e9,
                f"{rate / peak:.0%}",
            )
        )
    return rows


def matmul_operations(jaxpr: Any) -> float:
    """Floating-point operations of the matrix products in a traced program, 2mnk each, those in a
    scan once per turn.

    Raises:
      ValueError: a product inside a `while`, whose turns are not known.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += (
                2.0
                * math.prod(equation.outvars[0].aval.shape)
                * math.prod(left[axis] for axis in contracted)
            )
        inside = sum(map(matmul_operations, _programs_in(equation.params)))
        if inside and equation.primitive.name == "while":
            raise ValueError("a matrix product inside a while loop cannot be counted")
        total += (
            inside * equation.params.get("length", 1)
            if equation.primitive.name == "scan"
            else inside
        )
    return total


def matmul_peak(repeats: int, size: int = 2048) -> float:
    """Operations a second of a float32 product of two [size,size] matrices."""
    import jax
    import jax.numpy as jnp

    left = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(jnp.matmul)
    return 2.0 * size**3 / _median_seconds(product, repeats, left, left)


def _programs_in(parameters: dict[str, Any]) -> list[Any]:
    """The programs an operation runs: bodies of loops, branches and called functions."""
    programs = []
    for value in parameters.values():
        for member in value if isinstance(value, tuple | list) else (value,):
            program = getattr(member, "jaxpr", member)
            if hasattr(program, "eqns"):
                programs.append(program)
    return programs


def _median_seconds(function: Callable[..., Any], repeats: int, *arguments: Any) -> float:
    import jax

    jax.block_until_ready(function(*arguments))  # compiles
    times = []
    for _ in range(repeats):
        clock = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - clock)
    return statistics.median(times)


def _most_frequent(batches: Any, count: int) -> list[tuple[Any, float]]:
    """A batch of each of the most frequent shapes of an epoch, and its share of the updates."""
    by_shape: dict[tuple[int, ...], list[Any]] = {}
    for number in range(batches.batches_per_epoch):
        batch = batches(number)
        by_shape.setdefault(batch["target"].shape, []).append(batch)
    in_order = sorted(by_shape.values(), key=len, reverse=True)[:count]
    return [(group[0], len(group) / batches.batches_per_epoch) for group in in_order]


if __name__ == "__main__":
    rounds.main(main)
