"""How fast is a decoder-only Transformer trained here, beside the same model in torch?

    taskset -c 0,1 python -m benchmarks.transformer_step --rounds=5 \\
        --versus="PYTHON_WITH_TORCH -P benchmarks/torch_transformer.py"

One training step of the system `decoder` in GPT-2's form: norms in front, 4 heads with biases, GELU
layers, logits by the embedding of 256 signs, cross-entropy, AdamW, float32, no dropout. A row of
the table for every shape (layers L, width d, length T, rows B): the least milliseconds of a step
over all rounds, which alternate, and torch's, eager and by torch.compile where it works. Both sides
use the cores that they may run on. The least, since a busy machine only adds.
"""

import argparse
import sys
import time
from typing import Any

from attnlab.progress import table
from attnlab.training.run import start_jax
from benchmarks import rounds

SHAPES = ((2, 64, 64, 32), (2, 128, 128, 16), (4, 256, 256, 8), (6, 384, 256, 8))
HEADS, VOCABULARY = 4, 256  # as in torch_transformer.py


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--versus", metavar="COMMAND", help="prints lines 'eager_L_d_T_B X'")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--figures", action="store_true", help="print ours as lines 'name value'")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.figures:
        for shape in SHAPES:
            print(f"{_name('step', shape)} {least(*training(shape)):.6g}", flush=True)
        return
    about = rounds.machine()
    commands = {"attnlab": f"{sys.executable} -m benchmarks.transformer_step --figures"}
    if chosen.versus:
        commands["torch"] = chosen.versus
    figures: dict[str, rounds.Figures] = {name: {} for name in commands}
    for number in range(chosen.rounds):
        for name in list(commands) if number % 2 == 0 else list(commands)[::-1]:
            wanted = _name("step" if name == "attnlab" else "eager", SHAPES[-1])
            for key, value in rounds.run(commands[name], wanted).items():
                figures[name].setdefault(key, []).append(value)
    columns = ("L, d, T, B", "ms", "torch, eager", "times", "torch, compiled", "times")
    title = f"a training step; {chosen.rounds} rounds, {about['cores']} cores"
    table(f"{title}, load before {about['load_before']}", columns, rows(figures))
    rounds.save(chosen.json, {"figures": figures, **about})


def rows(figures: dict[str, rounds.Figures]) -> list[tuple[Any, ...]]:
    """The rows of the table, from all figures of both sides."""
    mine, other = figures["attnlab"], figures.get("torch", {})
    made = []
    for shape in SHAPES:
        ours = min(mine[_name("step", shape)])
        row: list[Any] = [", ".join(map(str, shape)), round(1e3 * ours, 1)]
        for kind in ("eager", "compiled"):
            theirs = min(other.get(_name(kind, shape), [float("nan")]))
            row += [round(1e3 * theirs, 1), round(theirs / ours, 2)]
        made.append(tuple(row))
    return made


def least(step: Any, state: Any, batch: Any) -> float:
    """The least time of a step of some, after three that do not count."""
    import jax

    taken: list[float] = []
    while len(taken) < 8 or sum(taken[3:]) < 2.0:
        start = time.perf_counter()
        state, sums = step(state, batch)
        jax.block_until_ready((state, sums))
        taken.append(time.perf_counter() - start)
    return min(taken[3:])


def training(shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The compiled training step, its first state and a batch."""
    start_jax()
    import jax
    import jax.numpy as jnp
    import optax

    from attnlab.config.registry import made
    from attnlab.systems import SYSTEMS
    from attnlab.tasks.tokens import cross_entropy
    from attnlab.training.step import first_state, make_step

    layers, width, length, count = shape
    chosen = {
        "name": "decoder",
        "attention": {"name": "multihead", "heads": HEADS, "bias": True},
        "positions": {"name": "learned", "length": length},
        "feed_forward": "gelu_tanh",
        "width": width,
        "hidden": 4 * width,
        "layers": layers,
        "dropout": 0.0,
    }
    system: Any = made(SYSTEMS, chosen)(vocabulary=VOCABULARY, pad_id=0)
    text = jax.random.randint(jax.random.key(1), (count, length + 1), 4, VOCABULARY)
    batch = {"source": text[:, :-1], "target": text[:, 1:]}

    def loss(params: Any, batch: Any, key: Any) -> Any:
        logits = system.apply({"params": params}, batch["source"])
        return cross_entropy(logits, batch["target"], 0.0).sum(), {}

    params = jax.jit(system.init)(jax.random.key(0), text[:, :-1])["params"]
    optimizer = optax.adamw(1e-3)
    state = first_state(params, optimizer, 0.0)
    tokens = float(count * length)
    step = jax.jit(make_step(loss, lambda batch: jnp.asarray(tokens), optimizer), donate_argnums=0)
    return step, state, batch


def _name(kind: str, shape: tuple[int, ...]) -> str:
    return "_".join((kind, *map(str, shape)))


if __name__ == "__main__":
    rounds.main(main)
