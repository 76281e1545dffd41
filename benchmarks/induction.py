"""Do two layers of attention alone learn induction heads, and one layer none? Random words said
twice, and what becomes of it when a head is switched off.

    python -m benchmarks.induction

Language models of one and of two layers of attention without feed-forward layers are trained on
texts of 8 to 48 words that say 3 to 23 different random words in one order again and again, so that
only what followed a word before tells what comes next. Then they read 200 new sequences
r_1 ... r_n r_1 ... r_n, n = 16, of all different words. Of two layers the first has two heads that
see a word and the one before it (what is near must show from the start, or such small models find
other ways within these updates), the second has one head that sees all before it; one layer alone
has two heads that see all. Nothing has positions.

For each model: the largest induction score of a head, the largest mean weight of a head of the first
layer on the previous token, and the share of words of the second copy (from the second on, for the
first cannot be known) that are foretold. Then the same with each head of the first layer switched
off (its rows of the output projection are left out).

Source: C. Olsson et al., "In-context Learning and Induction Heads", 2022.
"""

import argparse
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attnlab
from attnlab.analysis.heads import induction_score, repeated_sequences
from attnlab.attention.interventions import Change, intervene
from attnlab.progress import table
from benchmarks import rounds

WORDS, LENGTH = 32, 16
CONFIG = "configs/language_modelling.py:decoder"
COLUMNS = "layers", "seed", "switched off", "induction", "previous token", "foretold"
HEADS, VIEW = "system.attention", "system.visibility"
SHARED = {
    "data": "text",
    **{"batch.max_length": 49, "batch.size": 64},
    **{"system.feed_forward": "none", "system.positions": "none", "schedule.peak": 6e-3},
    **{"system.width": 64, "system.dropout": 0.0},
}
BY_LAYERS: dict[int, dict[str, Any]] = {
    2: {
        **dict.fromkeys((HEADS, VIEW), "by_layer"),
        **dict.fromkeys((f"{HEADS}.pattern", f"{VIEW}.pattern"), ("one", "other")),
        **dict.fromkeys((f"{HEADS}.one", f"{HEADS}.other"), "multihead"),
        **{f"{HEADS}.one.heads": 2, f"{HEADS}.other.heads": 1},
        **{f"{VIEW}.one": "window", f"{VIEW}.one.width": 2, f"{VIEW}.other": "full"},
    },
    1: {f"{HEADS}.heads": 2},
}
"""By the number of layers, what they see."""


def main() -> None:
    """Train the models and print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_texts(Path(folder), {"train": 30_000, "valid": 500, "test": 500})
        for (layers, of_layers), seed in itertools.product(BY_LAYERS.items(), range(chosen.seeds)):
            settings = {**SHARED, **of_layers, "data.directory": folder, "seed": seed}
            settings |= {"system.layers": layers, "training.steps": chosen.steps}
            run = attnlab.train(CONFIG, settings, workdir=f"{folder}/{layers}-{seed}")
            rows += [(layers, seed, *row) for row in described(run)]
    table("random words said twice", COLUMNS, rows)
    rounds.save(chosen.json, {"rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})


def write_texts(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write so many texts for each split, a line a text."""
    for seed, (split, count) in enumerate(sizes.items()):
        draw = np.random.default_rng(seed)
        texts = []
        for _ in range(count):
            length = int(draw.integers(8, 49))
            words = draw.permutation(WORDS)[: draw.integers(3, max(4, length // 2))]
            texts.append(" ".join(f"w{word}" for word in np.resize(words, length)))
        (folder / f"{split}.txt").write_text("\n".join(texts) + "\n")


def described(run: Any) -> list[tuple[Any, ...]]:
    """The rows of one model: as it is, and without each head of its first layer."""
    heads = 2  # of the first layer
    tokens = repeated_sequences(run.task.data.vocabulary, LENGTH, 200, seed=3)

    @jax.jit
    def read(params: Any, scale: jax.Array) -> Any:
        with intervene({"layer_0/attention/heads": Change(scale)}, weights=True) as seen:
            logits = run.task.system.apply({"params": params}, jnp.asarray(tokens))
        return [x for name, x in seen.values.items() if name.endswith("weights")], logits

    rows = []
    for head, scale in enumerate(np.append(np.ones((1, heads)), 1.0 - np.eye(heads), axis=0)):
        weights, logits = jax.device_get(read(run.params, scale))
        score = max(induction_score(layer).mean(0).max() for layer in weights)
        before = np.diagonal(weights[0], -1, 2, 3).mean((0, 2)).max()
        right = (logits[:, LENGTH + 1 : -1].argmax(-1) == tokens[:, LENGTH + 2 :]).mean()
        numbers = np.round([score, before, right], 3).tolist()
        rows.append((f"head {head - 1}" if head else "nothing", *numbers))
    return rows


if __name__ == "__main__":
    rounds.main(main)
