"""How fast are mixers with a matrix as state?

    python -m benchmarks.states
    python -m benchmarks.states --parts speed growth --json=out.json

Float32, all prints as one markdown table; about six minutes on an idle machine. The parts:

    speed     forward and backward of the recurrences at T = 8,192, one row, 8 heads of 64, in turns with exact blockwise attention
              (causal), and with the four products of chunked linear attention alone, without mask and state, in chunks of 64: a bound
    growth    seconds of the same from T = 2,048 to 16,384: the exponent, by least squares on logarithms
    decode    a mixer of width 256 in a decoder's step: milliseconds per token after 100 and after 10,000 tokens

A ratio is that of medians over rounds in which programs take turns.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from typing import Any

from attnlab.training.devices import keep_freed
from benchmarks import rounds
from benchmarks.kernels import Row, attention, differentiated, turns

HEADS, SIZE, CHUNK = 8, 64, 64
KINDS = ("linear", "one gate", "gates", "delta", "gated delta")
MIXERS = (
    *("linear", "retention", "gated_linear", "hgrn", "mamba", "mlstm", "delta_net"),
    *("gated_delta_net", "kda", "delta_product", "rwkv7", "ttt_linear", "ttt_mlp", "recurrent"),
)


def main() -> None:
    """Measure the parts asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"speed": speed, "growth": growth, "decode": decode}
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    keep_freed()  # as in training; else large programs pay for their pages in every run
    about, rows = rounds.machine(), []
    for part in chosen.parts:
        print(f"measuring: {part}", file=sys.stderr, flush=True)
        rows += parts[part]()
    print(f"{about['cores']} cores ({about['processor']}), load before {about['load_before']}\n")
    for row in (("what", "measured", "against", "result"), ("---",) * 4, *rows):
        print("| " + " | ".join(row) + " |")
    rounds.save(chosen.json, {"rows": rows, **about})


def speed() -> list[Row]:
    """Every kind against products alone and blockwise attention."""
    shape = (1, HEADS, 8192, SIZE)
    programs = {kind: differentiated(recurrence(kind), shape) for kind in KINDS}
    programs["products"] = differentiated(products, shape)
    programs["blockwise"] = differentiated(attention("blockwise", causal=True), shape)
    seconds = turns(programs, least=5, enough=0.0)
    return [
        (
            f"{kind}, T = 8,192: ms",
            f"{1e3 * seconds[kind]:.0f}",
            f"products {1e3 * seconds['products']:.0f}, blockwise {1e3 * seconds['blockwise']:.0f}",
            f"{seconds[kind] / seconds['products']:.2f} of products,"
            f" {seconds['blockwise'] / seconds[kind]:.1f} times blockwise's speed,"
            f" {seconds[kind] / seconds['linear']:.2f} of linear",
        )
        for kind in KINDS
    ]


def growth() -> list[Row]:
    """Seconds over lengths, and their exponent."""
    rows = []
    for kind in KINDS:
        lengths = [2**n for n in range(11, 15)]
        programs = {str(n): differentiated(recurrence(kind), (1, HEADS, n, SIZE)) for n in lengths}
        taken = turns(programs, least=3, enough=0.0)
        seconds = [taken[str(n)] for n in lengths]
        slope = statistics.linear_regression(
            [math.log(n) for n in lengths], [math.log(value) for value in seconds]
        ).slope
        listed = ", ".join(
            f"{n // 1024}k {1e3 * value:.0f}" for n, value in zip(lengths, seconds, strict=True)
        )
        rows.append((f"{kind}: ms", listed, "linear: exponent 1", f"exponent {slope:.2f}"))
    return rows


def decode() -> list[Row]:
    """A step after few and after many tokens."""
    rows = []
    for name in MIXERS:
        short, long = (steps(name, read) for read in (100, 10_000))
        taken = turns({"short": short, "long": long}, least=20, enough=0.5)
        rows.append(
            (
                f"{name}, 8 steps of decoding: ms a token",
                f"{1e3 * taken['short'] / 8:.3f} after 100 tokens",
                f"{1e3 * taken['long'] / 8:.3f} after 10,000",
                f"{100 * (taken['long'] / taken['short'] - 1):+.0f} %",
            )
        )
    return rows


def steps(name: str, read: int) -> tuple[Callable[..., Any], Any]:
    """Eight steps of decoding of 4 rows, compiled, after `read` tokens."""
    import jax
    import jax.numpy as jnp

    from attnlab.mixers import MIXERS as TABLE

    mixer = TABLE.resolve(name)(width=256)
    key = jax.random.key(0)
    params = mixer.init(key, jnp.zeros((1, 2, 256)), method="mix")["params"]
    x = jax.random.normal(key, (4, 1, 256))

    def fill(params: Any, text: Any) -> Any:
        state = mixer.apply({"params": params}, 4, read + 8, jnp.float32, method="begin")
        return mixer.apply({"params": params}, text, state=state, method="mix")[1]

    def run(params: Any, x: Any, state: Any) -> Any:
        for _ in range(8):
            x, state = mixer.apply({"params": params}, x, state=state, method="mix")
        return x

    state = jax.jit(fill)(params, jax.random.normal(key, (4, read, 256)))
    return jax.jit(run).lower(params, x, state).compile(), (params, x, state)


def recurrence(kind: str) -> Callable[..., Any]:
    """A recurrence as a function of q, k and v [B,H,T,D]; keys have length 1 where they erase."""
    import jax.numpy as jnp

    from attnlab.layers.recurrence import recur

    def run(q: Any, k: Any, v: Any) -> Any:
        unit = k / jnp.linalg.norm(k, axis=-1, keepdims=True)
        match kind:
            case "linear":
                return recur(q, k, v)[0]
            case "one gate":
                return recur(q, k, v, -0.1 * jnp.abs(k[..., 0]))[0]
            case "gates":
                return recur(q, k, v, -0.1 * jnp.abs(k))[0]
            case "delta":
                return recur(q, unit, v, None, 0.5 * unit)[0]
        return recur(q, unit, v, -0.1 * jnp.abs(k[..., 0]), 0.5 * unit)[0]

    return run


def products(q: Any, k: Any, v: Any) -> Any:
    """The products of chunked linear attention alone: q k^T, times v, q with the state, k^T v."""
    q, k, v = (x.reshape(*x.shape[:2], -1, CHUNK, x.shape[-1]) for x in (q, k, v))
    within = (q @ k.swapaxes(-1, -2)) @ v
    return (within + q @ (k.swapaxes(-1, -2) @ v)).reshape(*q.shape[:2], -1, v.shape[-1])


if __name__ == "__main__":
    rounds.main(main)
