"""How fast and how small are the attention kernels?

    python -m benchmarks.kernels
    python -m benchmarks.kernels --versus="PYTHON_WITH_TORCH -P benchmarks/torch_attention.py" --json=out.json
    python -m benchmarks.kernels --parts long window

Forward and backward, float32, all prints as one markdown table; about five minutes on an idle
machine. The parts:

    long      blockwise, causal, at T = 16,384, 8 heads of 64: bytes of the compiled program (arguments, results and temporaries) against
              one score matrix B H T T 4 of plain; and seconds of blockwise and plain in turns at T
              = 4,096
    window    blockwise, the last 256 keys, T from 1,024 to 32,768: the exponent of seconds in T, by least squares on logarithms
    overhead  the mechanism multihead with kernel='plain' against the same written by hand in jnp,
    in turns: seconds more, in percent
    kernels   the mechanism multihead with each kernel, in turns, over lengths: where "auto" should change over
    half      the same in bfloat16, heads of 64, causal, on an NVIDIA GPU with cudnn too
    shapes    the mechanism multihead (`layer`) and its kernel alone (`core`) at four shapes, kernel='auto'; with --versus in turns with a
              command that prints the same lines, `layer_B_T_H_D X` and `core_B_T_H_D X` in seconds

A ratio is that of medians over rounds in which the two take turns. Use an idle machine: torch's
threads spin.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlab.training.devices import keep_freed
from benchmarks import rounds

SHAPES = ((32, 64, 4, 16), (16, 128, 4, 32), (8, 256, 4, 64), (1, 2048, 8, 64))
PARTS = ("long", "window", "overhead", "kernels", "half", "shapes")
Row = tuple[str, str, str, str]


def main() -> None:
    """Measure the parts asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--versus", metavar="COMMAND", help="a shell command that prints the lines of part 'shapes'"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each command with --versus")
    parser.add_argument(
        "--figures", action="store_true", help="print part 'shapes' as lines 'name value' only"
    )
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.figures:
        for name, value in shapes().items():
            print(name, f"{value:.6g}", flush=True)
        return
    keep_freed()  # as in training; else large programs pay for their pages in every run
    about, rows = rounds.machine(), []
    for part in chosen.parts:
        print(f"measuring: {part}", file=sys.stderr, flush=True)
        rows += versus(chosen.versus, chosen.rounds) if part == "shapes" else ALONE[part]()
    print(f"{about['cores']} cores ({about['processor']}), load before {about['load_before']}\n")
    for row in (("what", "measured", "against", "result"), ("---",) * 4, *rows):
        print("| " + " | ".join(row) + " |")
    rounds.save(chosen.json, {"rows": rows, **about})


def long() -> list[Row]:
    """Memory at T = 16,384, time at 4,096 and 16,384."""
    program, given = differentiated(attention("blockwise", causal=True), (1, 8, 16384, 64))
    usage = program.memory_analysis()
    total = usage.temp_size_in_bytes + usage.argument_size_in_bytes + usage.output_size_in_bytes
    scores = 8 * 16384**2 * 4
    memory = (
        "blockwise, T = 16,384, causal: bytes",
        f"{total / 2**20:.0f} MiB",
        f"one score matrix {scores / 2**20:.0f} MiB",
        f"1/{scores / total:.1f}",
    )
    seconds = turns({"long": (program, given)}, least=2)["long"]
    both = {
        kernel: differentiated(attention(kernel, causal=True), (1, 8, 4096, 64))
        for kernel in ("blockwise", "plain")
    }
    short = turns(both, least=3)
    rate = seconds / short["plain"] / 16
    return [
        memory,
        (
            "blockwise, T = 4,096, causal: seconds",
            f"{short['blockwise']:.3g}",
            f"plain, T = 4,096: {short['plain']:.3g}",
            f"{short['plain'] / short['blockwise']:.2f} times faster",
        ),
        (
            "blockwise, T = 16,384, causal: seconds",
            f"{seconds:.3g}",
            f"plain, T = 4,096: {short['plain']:.3g}",
            f"{rate:.2f} of plain's time a pair, {seconds / short['plain']:.2f} in all",
        ),
    ]


def window() -> list[Row]:
    """Seconds over lengths with a window of 256, and their exponent."""
    lengths = [2**n for n in range(10, 16)]
    programs = {
        str(length): differentiated(
            attention("blockwise", causal=True, window=256), (1, 8, length, 64)
        )
        for length in lengths
    }
    seconds = turns(programs, least=3)
    xs, ys = (
        [math.log(length) for length in lengths],
        [math.log(seconds[str(length)]) for length in lengths],
    )
    slope = statistics.linear_regression(xs, ys).slope
    listed = ", ".join(f"{length // 1024}k {1e3 * seconds[str(length)]:.0f}" for length in lengths)
    return [
        (
            "blockwise, window 256, 8 heads of 64: ms",
            listed,
            "linear: exponent 1",
            f"exponent {slope:.2f}",
        )
    ]


def overhead() -> list[Row]:
    """The mechanism against the same written by hand."""
    rows = []
    for shape in SHAPES:
        ours, params, x = layer(shape, "plain")
        seconds = turns(
            {
                "ours": (compiled(ours, params, x), (params, x)),
                "hand": (compiled(by_hand(shape), params, x), (params, x)),
            },
            least=15,
        )
        more = 100 * (seconds["ours"] / seconds["hand"] - 1)
        rows.append(
            (
                f"multihead, plain, {shape}: ms",
                f"{1e3 * seconds['ours']:.3g}",
                f"by hand in jnp: {1e3 * seconds['hand']:.3g}",
                f"{more:+.1f} %",
            )
        )
    return rows


def kernels() -> list[Row]:
    """Each kernel over lengths; about as many numbers each time."""
    rows = []
    for shape in (
        (32, 64, 4, 32),
        (16, 128, 4, 32),
        (8, 256, 4, 32),
        (4, 512, 4, 32),
        (2, 1024, 4, 32),
        (1, 2048, 4, 32),
    ):
        seconds = each(shape, ("plain", "blockwise", "xla"))
        others = ", ".join(f"{name} {1e3 * seconds[name]:.3g}" for name in ("plain", "xla"))
        rows.append(
            (
                f"multihead, {shape}: ms",
                f"blockwise {1e3 * seconds['blockwise']:.3g}",
                others,
                f"{seconds['plain'] / seconds['blockwise']:.2f} times plain's speed",
            )
        )
    return rows


def half() -> list[Row]:
    """Each kernel over lengths, in bfloat16."""
    import jax

    names = ["plain", "blockwise", "xla"] + (["cudnn"] if jax.default_backend() == "gpu" else [])
    rows = []
    for length in (256, 1024, 4096):
        shape = (2**15 // length, length, 8, 64)
        seconds = each(shape, names, halved=True)
        others = ", ".join(f"{name} {1e3 * seconds[name]:.3g}" for name in names[1:])
        best = min(seconds, key=lambda name: seconds[name])
        rows.append(
            (
                f"multihead, causal, bfloat16, {shape}: ms",
                f"plain {1e3 * seconds['plain']:.3g}",
                others,
                f"{best}: {seconds['plain'] / seconds[best]:.2f} times plain's speed",
            )
        )
    return rows


def each(
    shape: tuple[int, int, int, int], names: Sequence[str], halved: bool = False
) -> dict[str, float]:
    """Median seconds of multihead with each kernel, in turns; `halved`: causal and in bfloat16."""
    import jax
    import jax.numpy as jnp

    programs = {}
    for kernel in names:
        function, params, x = layer(shape, kernel, causal=halved)
        if halved:
            params, x = jax.tree.map(lambda array: array.astype(jnp.bfloat16), (params, x))
        programs[kernel] = (compiled(function, params, x), (params, x))
    return turns(programs, least=7)


ALONE = {"long": long, "window": window, "overhead": overhead, "kernels": kernels, "half": half}


def shapes() -> dict[str, float]:
    """Seconds of layer and core at each shape."""
    seconds: dict[str, float] = {}
    for shape in SHAPES:
        batch, length, heads, size = shape
        name = f"{batch}_{length}_{heads}_{size}"
        function, params, x = layer(shape, "auto")
        seconds |= turns({f"layer_{name}": (compiled(function, params, x), (params, x))}, least=5)
        seconds |= turns(
            {f"core_{name}": differentiated(attention("auto"), (batch, heads, length, size))},
            least=5,
        )
    return seconds


def versus(command: str | None, count: int) -> list[Row]:
    """The shapes, alone or in turns with another command."""
    if command is None:
        return [(f"{name}: ms", f"{1e3 * value:.3g}", "", "") for name, value in shapes().items()]
    commands = {"attnlab": f"{sys.executable} -m benchmarks.kernels --figures", "versus": command}
    series = rounds.alternate(commands, "layer_1_2048_8_64", count)
    mine, theirs = (
        {name: statistics.median(values) for name, values in series[who].items()}
        for who in commands
    )
    ratios = {name: theirs[name] / mine[name] for name in mine}
    rows = [
        (
            f"{name}: ms",
            f"{1e3 * mine[name]:.3g}",
            f"{1e3 * theirs[name]:.3g}",
            f"{ratios[name]:.2f} times the speed",
        )
        for name in mine
    ]
    for kind in ("layer", "core"):
        of = [ratio for name, ratio in ratios.items() if name.startswith(kind)]
        rows.append(
            (
                f"{kind}: geometric mean, and least",
                "",
                "",
                f"{statistics.geometric_mean(of):.2f}, {min(of):.2f} times the speed",
            )
        )
    return rows


def turns(
    programs: Mapping[str, tuple[Callable[..., Any], Any]], least: int, enough: float = 2.0
) -> dict[str, float]:
    """Median seconds of programs that take turns, for `least` rounds or more, until the first has
    run for `enough` seconds.
    """
    import jax

    taken: dict[str, list[float]] = {name: [] for name in programs}
    for program, given in programs.values():
        jax.block_until_ready(program(*given))
    first = next(iter(taken.values()))
    while len(first) < least or (sum(first) < enough and len(first) < 200):
        order = list(programs) if len(first) % 2 == 0 else list(programs)[::-1]
        for name in order:
            program, given = programs[name]
            start = time.perf_counter()
            jax.block_until_ready(program(*given))
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def attention(kernel: str, causal: bool = False, window: int | None = None) -> Callable[..., Any]:
    """A kernel as a function of q, k and v [B,H,T,D]."""
    import jax.numpy as jnp
    import numpy as np

    from attnlab.attention.alignments.protocol import Softmax
    from attnlab.attention.kernels import KERNELS
    from attnlab.attention.kernels.plain import AttentionInputs
    from attnlab.attention.protocol import Memory
    from attnlab.attention.scores.protocol import inner
    from attnlab.attention.view import View
    from attnlab.attention.visibility import Causal, Everything, Window
    from attnlab.layers.dense import Dropout

    rule = Causal() if causal else Everything()
    view = View(rule if window is None else rule & Window(window))

    def run(q: Any, k: Any, v: Any) -> Any:
        batch, _, length, size = q.shape
        memory: Any = Memory(np.ones((batch, length), bool), np.asarray(length, np.int32))  # type: ignore[arg-type]
        asks = jnp.zeros((batch, length, 0))
        of = lambda q, k, i, j: inner(q, k)  # noqa: E731
        look = AttentionInputs(
            q * size**-0.5,
            k,
            v,
            of,
            view.onto(memory, asks),
            Softmax(parent=None),
            Dropout(0.0, parent=None),
            product=True,
        )
        return KERNELS.resolve(kernel)()(look)

    return run


def differentiated(function: Callable[..., Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The compiled forward and backward pass of a function of q, k and v, and random arguments of a
    shape.
    """
    import jax

    def both(q: Any, k: Any, v: Any, grad: Any) -> Any:
        return jax.vjp(function, q, k, v)[1](grad)

    given = [jax.random.normal(jax.random.key(seed), shape) for seed in range(4)]
    return jax.jit(both).lower(*given).compile(), given


def layer(
    shape: tuple[int, int, int, int], kernel: str, causal: bool = False
) -> tuple[Callable[..., Any], Any, Any]:
    """Multihead self-attention as a function of parameters and input, and those."""
    import jax

    from attnlab.attention import MECHANISMS
    from attnlab.attention.view import CAUSAL, EVERYTHING
    from attnlab.config.registry import made

    batch, length, heads, size = shape
    node = {"name": "multihead", "heads": heads, "kernel": kernel}
    module: Any = made(MECHANISMS, node)(width=heads * size)
    x = jax.random.normal(jax.random.key(0), (batch, length, heads * size))
    params = module.init(jax.random.key(1), x[:, :2], x[:, :2])["params"]
    view = CAUSAL if causal else EVERYTHING
    return lambda params, x: module.apply({"params": params}, x, x, view).context, params, x


def by_hand(shape: tuple[int, int, int, int]) -> Callable[..., Any]:
    """The same function as one would write it without us."""
    import jax
    import jax.numpy as jnp

    batch, length, heads, size = shape

    def run(params: Any, x: Any) -> Any:
        flat = x.reshape(batch * length, heads * size)
        names = ("w_query", "w_key", "w_value")
        q, k, v = (
            (flat @ params[name]["kernel"])
            .reshape(batch, length, heads, size)
            .transpose(0, 2, 1, 3)
            for name in names
        )
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q * size**-0.5, k), axis=-1)
        context = jnp.einsum("bhqk,bhkd->bhqd", weights, v).transpose(0, 2, 1, 3)
        return (context.reshape(batch * length, heads * size) @ params["out"]["kernel"]).reshape(
            x.shape
        )

    return run


def compiled(function: Callable[..., Any], params: Any, x: Any) -> Any:
    """The compiled forward and backward pass of a function of parameters and input."""
    import jax

    return (
        jax.jit(jax.grad(lambda params, x: (function(params, x) * x).sum(), argnums=(0, 1)))
        .lower(params, x)
        .compile()
    )


if __name__ == "__main__":
    rounds.main(main)
