"""How sharp are the weights of trained trials, and how long were their gradients?

    python -m benchmarks.sharpness runs/heads-scale --examples=50

For every variant of a sweep, the mean over its seeds:

    first, last   norm of the gradient before it is clipped, mean of what `metrics.jsonl` has of the first and last fifth of the steps
    others        entropy of the weights of a place, as a share of the most it could be: 1 for weights that are all alike, 0 for one
                  word alone; the mean over queries that see two words or more, heads, layers, and first examples of the test split

Trials whose test split stays closed are passed over, and so are systems without attention.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import attnlab
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.systems.protocol import AttentionMap
from benchmarks import rounds
from benchmarks.looks import seen

SHARE = 0.2


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path, metavar="DIR")
    parser.add_argument("--examples", type=int, default=50)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    trials: dict[str, list[dict[str, float]]] = defaultdict(list)
    for workdir in sorted(chosen.sweep.glob("trials/*/seed*")):
        try:
            trials[workdir.parent.name].append(figures(workdir, chosen.examples))
        except UserError as error:
            print(f"passed over: {error}", file=sys.stderr)
    if not any(trials.values()):
        raise UserError(f"{chosen.sweep} has no trial below trials/ that can be looked at")
    columns = list(dict.fromkeys(name for each in trials.values() for row in each for name in row))
    rows = [
        (variant, len(each), *(_mean(row[name] for row in each if name in row) for name in columns))
        for variant, each in trials.items()
        if each
    ]
    table("entropy of the weights, norm of the gradient", ("variant", "seeds", *columns), rows)
    names = ("variant", "seeds", *columns)
    rounds.save(chosen.json, {"rows": [dict(zip(names, row, strict=True)) for row in rows]})


def figures(workdir: Path, examples: int) -> dict[str, float]:
    """The figures of a trial.

    Raises:
      UserError: not a trained run, one whose test split stays closed, or a system without
        attention.
    """
    run = attnlab.load(str(workdir), splits=("test",))
    if not run.task.system.needs:
        raise UserError(f"{workdir}: {type(run.task.system).__name__} has no attention")
    shares: dict[str, list[float]] = defaultdict(list)
    for maps, _ in seen(run.task, run.params, examples, 100):
        for name, map_ in maps.items():
            shares[place(name)] += sharpness(map_)
    return {
        **gradients((workdir / "metrics.jsonl").read_text().splitlines()),
        **{name: float(np.mean(each)) for name, each in shares.items() if each},
    }


def place(name: str) -> str:
    """The name of a map without the number of its layer: "encoder_1/self_attention" is
    "encoder/self_attention".
    """
    return "/".join(part.rstrip("0123456789").rstrip("_") for part in name.split("/"))


def sharpness(map_: AttentionMap) -> list[float]:
    """Entropies of the rows of weights [H,Tq,Tk] over log n, for rows that see n > 1 keys; in a
    decoder's look at its own words, query i sees i + 1.
    """
    weights = np.asarray(map_.weights, np.float64)
    entropies = []
    for i in range(weights.shape[1]):
        count = i + 1 if map_.rows == map_.columns == "target_in" else weights.shape[2]
        if count > 1:
            rows = weights[:, i]
            logs = np.log(np.where(rows > 0, rows, 1.0))
            entropies += (-(rows * logs).sum(axis=1) / np.log(count)).tolist()
    return entropies


def gradients(lines: Iterable[str]) -> dict[str, float]:
    """The mean norms of the first and the last steps, from the lines of `metrics.jsonl`.

    Raises:
      UserError: no norm is among them.
    """
    records: list[Mapping[str, Any]] = [json.loads(line) for line in lines]
    norms = [(row["step"], row["grad_norm"]) for row in records if row.get("grad_norm") is not None]
    if not norms:
        raise UserError("metrics.jsonl has no norm of a gradient")
    end = max(step for step, _ in norms)
    return {
        "first": float(
            np.mean([norm for step, norm in norms if step <= max(SHARE * end, norms[0][0])])
        ),
        "last": float(np.mean([norm for step, norm in norms if step > (1 - SHARE) * end])),
    }


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return round(float(np.mean(numbers)), 3) if numbers else None


if __name__ == "__main__":
    rounds.main(main)
