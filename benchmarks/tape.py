"""What does an LSTMN save by keeping its tape once? A layer's gradients, in turns with those of a
loop that keeps every step's tape.

    python -m benchmarks.tape
    python -m benchmarks.tape --lengths=24,64,128 --rows=64 --width=200

Both compute the same (`tests/mixers/test_lstmn.py`). Prints for each length the median milliseconds
and the temporary memory of a gradient with the additive score, and of an LSTM as wide.
"""

import argparse
import functools
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.mechanisms.single import Single
from attnlab.attention.scores.perceptrons import Additive
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMLayer
from attnlab.mixers.lstmn import LSTMNLayer
from attnlab.progress import table
from benchmarks import rounds
from benchmarks.kernels import turns


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", default="24,64")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    about = rounds.machine()
    rows = [measure(chosen.rows, int(length), chosen.width) for length in chosen.lengths.split(",")]
    columns = (
        "steps",
        "every tape: ms",
        "one tape: ms",
        "times faster",
        "LSTM: ms",
        "every tape: MiB",
        "one tape: MiB",
        "LSTM: MiB",
    )
    table(
        f"gradients of {chosen.rows} rows, width {chosen.width}; {about['cores']} cores, load"
        f" before {about['load_before']}",
        columns,
        rows,
    )
    rounds.save(
        chosen.json, {"rows": [dict(zip(columns, row, strict=True)) for row in rows], **about}
    )


def measure(rows: int, steps: int, width: int, enough: float = 5.0) -> tuple[Any, ...]:
    """One row of the table; `enough` seconds for the first of the three."""
    x, valid = (
        jax.random.normal(jax.random.key(0), (rows, steps, width)),
        jnp.ones((rows, steps), bool),
    )
    additive = functools.partial(Single, score=functools.partial(Additive, hidden=width))
    reader = LSTMNLayer(additive, width, None, "zeros", "word and summary", Initial())
    plain = LSTMLayer(width)

    def every(module: LSTMNLayer, x: jax.Array) -> jax.Array:
        first = module.begin(rows, steps, x.dtype)
        return module._scan(first, (x, module.contributions(x), valid), None)[1].h

    passes = {
        "every": (reader, functools.partial(reader.apply, method=every)),
        "once": (reader, lambda params, x: reader.apply(params, x, valid)[0].hidden),  # type: ignore[index]
        "lstm": (plain, lambda params, x: plain.apply(params, x, valid)[0]),  # type: ignore[index]
    }
    programs, memory = {}, {}
    for name, (module, run) in passes.items():
        params = jax.jit(module.init)(jax.random.key(1), x, valid)
        gradient = (
            jax.jit(jax.grad(lambda params, x, run=run: (run(params, x) ** 2).sum(), (0, 1)))
            .lower(params, x)
            .compile()
        )
        programs[name] = (gradient, (params, x))
        used: Any = gradient.memory_analysis()
        memory[name] = round(used.temp_size_in_bytes / 2**20, 1)
    seconds = turns(programs, least=5, enough=enough)
    every_, once, lstm = (round(1e3 * seconds[name], 1) for name in passes)
    return (steps, every_, once, round(every_ / once, 2), lstm, *(memory[name] for name in passes))


if __name__ == "__main__":
    rounds.main(main)
