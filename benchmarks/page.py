"""How large is the page of a large sweep, and how long does its report take to write?

    python -m benchmarks.page --variants=50 --seeds=10

The records are made up (nothing is trained): every trial has 40 validation and 100 training
records, its chosen ones have answers and pictures of attention of the size that eight heads of 30
by 12 tokens have, and of every variant `--settings` settings were tried. Prints bytes and seconds
against the target of 2 MB. `--keep=DIR` keeps the sweep, so that its page can be looked at.
"""

import argparse
import functools
import io
import json
import math
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.analysis.maps import map_png
from attnlab.experiments.report import write
from attnlab.progress import table
from tests.experiments import synthetic

TARGET = 2_000_000
STEPS, EXAMPLES = 4000, 5
TEXT = (
    "the attention of a decoder looks back at every word that it has read so far and weighs what it"
    " finds there"
)


def main() -> None:
    """Make the sweep, write its report, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--settings", type=int, default=1, help="tried for every variant, each with all seeds"
    )
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="a folder for the sweep, not there yet"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = sweep(
            chosen.keep or Path(folder) / "sweep", chosen.variants, chosen.seeds, chosen.settings
        )
        began = time.perf_counter()
        write(directory, stream=io.StringIO())
        seconds = time.perf_counter() - began
        size = (directory / "report.html").stat().st_size
    rows = [
        ("page (bytes)", size, f"<= {TARGET:,}", "reached" if size <= TARGET else "missed"),
        ("reading, reckoning and writing the report (s)", round(seconds, 2), "", ""),
    ]
    table(
        f"a page of {chosen.variants} variants, {chosen.seeds} seeds",
        ("figure", "value", "target", ""),
        rows,
    )


def sweep(directory: Path, variants: int, seeds: int, settings: int = 1) -> Path:
    """A finished sweep in a new folder, always the same for the same numbers."""
    chance = random.Random(0)
    means = {f"variant_{number}": chance.uniform(0.3, 0.95) for number in range(variants)}
    scores = {
        name: [min(1.0, max(0.0, chance.gauss(mean, 0.02))) for _ in range(seeds)]
        for name, mean in means.items()
    }
    grid = {10 ** (-4 + 2 * number / settings): 0.01 * number for number in range(settings)}
    tuned: Mapping[Any, float] = {None: 0.0} if settings < 2 else grid
    synthetic.sweep(directory, scores, tuned=tuned, claim=None)
    plan = json.loads((directory / "plan.json").read_text())
    places = {name: place for place, name in enumerate(means)}
    for candidate in plan["candidates"]:
        place = places[candidate["variant"]]
        size = math.exp(chance.uniform(0, 5))
        candidate["config"]["training"]["steps"] = STEPS
        candidate |= {"parameters": int(20_000 * size), "flops": 1e8 * size}
        for seed in range(seeds):
            _fill(
                directory / "trials" / candidate["id"] / f"seed{seed}",
                scores[candidate["variant"]][seed],
                1e-3 * size,
                chance,
                place,
            )
    synthetic.write(directory / "plan.json", plan)
    return directory


def _fill(workdir: Path, score: float, pace: float, chance: random.Random, place: int) -> None:
    """Records as long as those of a real trial."""
    records: list[dict[str, Any]] = []
    for step in range(STEPS // 100, STEPS + 1, STEPS // 100):
        rest = math.exp(-5 * step / STEPS)
        records.append(
            {
                "step": step,
                "split": "train",
                "loss": 0.2 + 4 * rest + chance.uniform(0, 0.2),
                "tokens": 200.0,
            }
        )
        if step % (STEPS // 40) == 0:
            scores = {
                "loss": 2 - score + 4 * rest,
                "exact": score * (1 - rest) + chance.uniform(-0.01, 0.01),
                "perplexity": 9.0 * rest + 1,
            }
            records.append({"step": step, "split": "valid", **scores})
    synthetic.lines(workdir / "metrics.jsonl", records)
    steps = range(STEPS // 10, STEPS + 1, STEPS // 10)
    synthetic.lines(
        workdir / "timing.jsonl",
        [{"step": step, "time": 1.0 * step, "step_seconds": pace} for step in steps],
    )
    if not (workdir / "maps").is_dir():
        return
    results = json.loads((workdir / "results.json").read_text())
    synthetic.write(
        workdir / "results.json",
        {**results, "bleu": 60 * score, "chrf": 80 * score, "perplexity": 3 - 2 * score},
    )
    words = TEXT.split()
    texts = [" ".join(words[number : number + 12]) for number in range(EXAMPLES)]
    examples = [{"source": text, "target": text} for text in texts]
    synthetic.write(
        workdir / "examples.json", {"outputs": "translations.txt", "examples": examples}
    )
    answers = [
        text.replace(chance.choice(words), f"{chance.choice(words)} {place}") for text in texts
    ]
    (workdir / "translations.txt").write_text("".join(f"{answer}\n" for answer in answers))
    if workdir.name == "seed0":
        for path in (workdir / "maps").glob("*.png"):
            path.write_bytes(_picture(place % 4))


@functools.cache
def _picture(seed: int) -> bytes:
    """One of a few pictures."""
    weights = np.random.default_rng(seed).dirichlet([0.1] * 30, (8, 12))
    return map_png(
        weights, [f"source{n}" for n in range(30)], [f"target{n}" for n in range(12)], "cross"
    )


if __name__ == "__main__":
    main()
