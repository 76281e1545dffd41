"""How fast is an LSTM trained here, beside torch's, and how much of what the processor can multiply
does it use?

    python -m benchmarks.recurrence
    python -m benchmarks.recurrence --versus="PYTHON_WITH_TORCH -P benchmarks/torch_recurrence.py" --rounds=5 --json=out.json

One training step of the system `lstm_lm`: embedding, LSTM layers, output layer, cross-entropy, all
gradients, their norm cut to 5, plain gradient descent, float32, no dropout, the state carried on to
the next step. 2 layers of 650, 20 rows of 35 tokens, 10,000 words, unless told otherwise (the
medium size of Zaremba et al. 2014). Prints one markdown table:

    step       median seconds of a step, in turns with torch's built-in nn.LSTM doing the same where torch is installed or --versus names
               another Python; without either only ours, and a line that says so
    products   FLOPs of the step's matrix products in a second, and their share of what one product of two large square matrices
               reaches, measured in turns with the steps

A ratio is that of medians. Use an idle machine: torch's threads spin.
"""

import argparse
import importlib.util
import statistics
import sys
from typing import Any

from benchmarks import rounds
from benchmarks.kernels import turns

SIZES = {
    "width": 650,
    "layers": 2,
    "rows": 20,
    "steps": 35,
    "vocabulary": 10000,
}  # as in torch_recurrence.py
SQUARE = 2048  # of the product that stands for the peak
Row = tuple[str, str, str, str]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument(
        "--versus",
        metavar="COMMAND",
        help="a shell command that prints 'seconds_per_step X'; it gets the sizes as flags",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument(
        "--figures", action="store_true", help="print ours as lines 'name value' only"
    )
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    sizes = {name: getattr(chosen, name) for name in SIZES}
    if chosen.figures:
        for name, figure in measure(sizes).items():
            print(name, f"{figure:.6g}", flush=True)
        return
    about, figures = rounds.machine(), compared(chosen.versus or installed(), sizes, chosen.rounds)
    print(f"{about['cores']} cores ({about['processor']}), load before {about['load_before']}\n")
    for row in (("what", "measured", "against", "result"), ("---",) * 4, *table(sizes, figures)):
        print("| " + " | ".join(row) + " |")
    rounds.save(chosen.json, {"sizes": sizes, "figures": figures, **about})


def installed() -> str | None:
    """The command for torch's side in this Python; None, and a line that says so, where torch is
    not installed.
    """
    if importlib.util.find_spec("torch") is not None:
        return f"{sys.executable} -P benchmarks/torch_recurrence.py"
    print(
        "torch is not installed here, so only attnlab is measured; --versus names a Python that"
        " has it",
        file=sys.stderr,
    )
    return None


def compared(versus: str | None, sizes: dict[str, int], count: int) -> dict[str, rounds.Figures]:
    """All figures of ours and, with a command, of the other side, in turns."""
    flags = " ".join(f"--{name}={value}" for name, value in sizes.items())
    commands = {"attnlab": f"{sys.executable} -m benchmarks.recurrence --figures {flags}"}
    if versus:
        commands["versus"] = f"{versus} {flags}"
    return rounds.alternate(commands, "seconds_per_step", count)


def table(sizes: dict[str, int], figures: dict[str, rounds.Figures]) -> list[Row]:
    """The rows of the table."""
    mine = {name: statistics.median(values) for name, values in figures["attnlab"].items()}
    step, rate = mine["seconds_per_step"], products(sizes) / mine["seconds_per_step"]
    size = (
        f"{sizes['layers']} x {sizes['width']}, {sizes['rows']} x {sizes['steps']},"
        f" {sizes['vocabulary']:,} words"
    )
    rows = [(f"LSTM language model, {size}: ms a step", f"{1e3 * step:.0f}", "", "")]
    if "versus" in figures:
        other = statistics.median(figures["versus"]["seconds_per_step"])
        rows = [
            (
                *rows[0][:2],
                f"torch's nn.LSTM: {1e3 * other:.0f}",
                f"{other / step:.2f} times the speed",
            )
        ]
    peak = mine["flops_per_second"]
    floor = f"a product of {SQUARE:,} squared: {peak / 1e9:.0f}"
    return [
        *rows,
        (
            "its matrix products: GFLOP/s",
            f"{rate / 1e9:.0f}",
            floor,
            f"{100 * rate / peak:.0f} % of the peak",
        ),
    ]


def products(sizes: dict[str, int]) -> float:
    """FLOPs of a step's matrix products: each forward, and twice as much backward; the layers'
    inputs are as wide as they are.
    """
    tokens, width = sizes["rows"] * sizes["steps"], sizes["width"]
    return 3.0 * 2.0 * tokens * (sizes["layers"] * 8 * width * width + width * sizes["vocabulary"])


def measure(sizes: dict[str, int]) -> dict[str, float]:
    """Seconds of our step, and the FLOPs a second of one large product."""
    import jax

    step, state, batch = training(sizes)
    carried = {"state": state}

    def train() -> Any:
        carried["state"], sums = step(carried["state"], batch)  # the step takes its state's memory
        return sums

    square = jax.random.normal(jax.random.key(0), (SQUARE, SQUARE))
    seconds = turns(
        {"step": (train, ()), "product": (jax.jit(lambda x: x @ x), (square,))},
        least=7,
        enough=5.0,
    )
    return {
        "seconds_per_step": seconds["step"],
        "flops_per_second": 2.0 * SQUARE**3 / seconds["product"],
    }


def training(sizes: dict[str, int]) -> tuple[Any, Any, Any]:
    """The compiled training step, its first state and a batch."""
    import jax
    import jax.numpy as jnp
    import optax

    from attnlab.systems.recurrent.lstm_lm import LSTMLanguageModel
    from attnlab.tasks.tokens import cross_entropy
    from attnlab.training.step import first_state, make_step

    rows, steps, vocabulary = sizes["rows"], sizes["steps"], sizes["vocabulary"]
    width = sizes["width"]
    system = LSTMLanguageModel(
        vocabulary=vocabulary, embedding=width, width=width, layers=sizes["layers"], uniform=0.05
    )
    text = jax.random.randint(jax.random.key(1), (rows, steps + 1), 4, vocabulary)
    batch = {"source": text[:, :-1], "target": text[:, 1:]}

    def loss(params: Any, batch: Any, key: Any, remembered: Any = None) -> Any:
        logits, after = system.apply({"params": params}, remembered, batch["source"], method="read")
        return cross_entropy(logits, batch["target"], 0.0).sum(), {
            "remembered": jax.lax.stop_gradient(after)
        }

    params = jax.jit(system.init)(jax.random.key(0), text[:, :2])["params"]
    start = system.apply({"params": params}, rows, steps, method="start")
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.sgd(1.0))
    state = first_state(params, optimizer, 0.0, remembered=jax.tree.map(jnp.asarray, start))
    tokens = float(rows * steps)
    step = jax.jit(make_step(loss, lambda batch: jnp.asarray(tokens), optimizer), donate_argnums=0)
    return step, state, batch


if __name__ == "__main__":
    rounds.main(main)
