"""Do gradients vanish with distance? In a tanh RNN, an LSTM and attention, before and after training.

    python -m benchmarks.gradients --seeds=3

Language models of one layer are trained on texts of keys and values (`data=associations`, 40 words).
For each, with first and with trained parameters: the mean norm of d loss_t / d e_{t-k}, the slope of
the loss of a word by the vector of the word k places before, as a share of what it is at k = 1, over
100 test texts; and the loss of the test split and the recall of values that have occurred.

Source: Y. Bengio, P. Simard, P. Frasconi, "Learning Long-Term Dependencies with Gradient Descent is
Difficult", 1994; S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", 1997.
"""

import argparse
import tempfile
from typing import Any

import jax

import attnlab
from attnlab.analysis.attribution import gradient_by_distance
from attnlab.analysis.passes import Passes
from attnlab.progress import table
from benchmarks import rounds

DISTANCES = 2, 4, 8, 16, 24, 32
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "tanh RNN": ("lstm", {"system.cell": "tanh", "system.width": 64}),
    "LSTM": ("lstm", {"system.width": 32}),
    "attention": ("decoder", {"system.layers": 2, "system.dropout": 0.0, "system.hidden": 96}),
}
COLUMNS = "system", "seed", "parameters", "loss", "recall", *(f"k = {k}" for k in DISTANCES)


def main() -> None:
    """Train the models and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    rows = []
    for name, (config, settings) in SYSTEMS.items():
        for seed in range(chosen.seeds):
            shared = {"seed": seed, "training.steps": chosen.steps, "data.test": 100}
            shared |= {"batch.size": 32, "decoding.batch": 50}
            with tempfile.TemporaryDirectory() as folder:
                path = f"configs/language_modelling.py:{config}"
                attnlab.train(path, {**shared, **settings}, workdir=folder)
                run = attnlab.load(folder, splits=("test",))
            first = run.task.init(jax.random.key(seed))
            for state, params in (("first", first), ("trained", run.params)):
                scores = run.task.evaluate(params, "test")
                about = round(scores["loss"], 2), round(scores["recall"], 2)
                rows.append((name, seed, state, *about, *shares(Passes(run.task, params))))
    table("gradients by distance", COLUMNS, rows)
    rounds.save(chosen.json, {"rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})


def shares(model: Passes) -> list[float]:
    """The norms at the distances as shares of that at 1."""
    (norms,) = gradient_by_distance(model, model.task.split_batches("test")).values()
    return [float(f"{norms[k] / norms[1]:.2g}") for k in DISTANCES]


if __name__ == "__main__":
    rounds.main(main)
