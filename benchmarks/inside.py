"""What do the layers and heads of a trained run cost, and does its answer need its weights?

    python -m benchmarks.inside runs/hybrid --measure=accuracy
    python -m benchmarks.inside runs/pooling runs/dates --examples=200

Two tables for each run, over batches from all over its test split, with at least `--examples` rows. Costs: what a measure changes by
when a mixing layer, or with `--heads` a head, is switched off (zero), set to its mean, to that of
another example (resample), or looks everywhere alike (uniform), with the 95 % interval. Weights: how
far the answer moves, in total variation distance (0 the same, 1 another), median over the examples,
where the weights of a layer are made uniform or permuted among the keys that a query may see; and the
largest distance from the weights to others with the same context, so the same answer, mean over the
queries of eight examples of each batch, and the share of queries that have such.

Source: `attnlab/analysis/ablation.py` and `attribution.py` name the papers and give the formulas.
"""

import argparse
from collections import defaultdict
from typing import Any

import numpy as np

import attnlab
from attnlab.analysis import attribution
from attnlab.analysis.ablation import ablation_table
from attnlab.analysis.passes import Passes, filled, real_positions
from attnlab.decoding.rows import evenly_spaced
from attnlab.errors import UserError
from attnlab.progress import table
from benchmarks import rounds


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdirs", nargs="+", metavar="RUN")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--measure", default="loss")
    parser.add_argument("--heads", action="store_true", help="costs of heads too")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    tables = {}
    for workdir in chosen.workdirs:
        run = attnlab.load(workdir, splits=("test",))
        model, count = Passes(run.task, run.params), -(-chosen.examples // run.task.at_once)
        batches = list(evenly_spaced(run.task.split_batches("test"), count))
        rows = costs(model, batches, chosen.measure, chosen.heads)
        table(f"{workdir}: cost in {chosen.measure}", COSTS, rows)
        effects = weights(model, batches)
        table(f"{workdir}: changed weights", WEIGHTS, effects)
        tables[workdir] = {
            "costs": [dict(zip(COSTS, row, strict=True)) for row in rows],
            "weights": [dict(zip(WEIGHTS, row, strict=True)) for row in effects],
        }
    rounds.save(chosen.json, tables)


FEW = 8  # examples of a batch whose other weights are searched, a linear program for each query
COSTS = "place", "head", "change", "cost", "low", "high"
WEIGHTS = "place", "uniform", "permuted", "most other", "queries with others"


def costs(model: Passes, batches: list[Any], measure: str, heads: bool) -> list[tuple[Any, ...]]:
    """The rows of the first table."""
    return [
        (cost.place, "all" if cost.head is None else cost.head, cost.kind, *map(short, numbers))
        for cost in ablation_table(model, batches, measure)
        if heads or cost.head is None
        for numbers in [(cost.cost, *cost.interval)]
    ]


def weights(model: Passes, batches: list[Any]) -> list[tuple[Any, ...]]:
    """The rows of the second table; none where no weights are places, or the outputs no logits."""
    try:
        effects = attribution.weight_effects(model, batches)
    except UserError:
        return []
    others = defaultdict(list)
    for _, batch in filled(batches):
        few = {name: x[:: -(-len(x) // FEW)] for name, x in batch.items()}
        slopes = model.gradients(few, ("weights",))
        for name, (_, distances) in attribution.adversarial_maps(model, few).items():
            others[name].extend(distances.swapaxes(1, 2)[real_positions(slopes[name][1])].flat)
    rows = []
    for place in dict.fromkeys(place for place, _ in effects):
        distances = np.array(others[place] or [np.nan])
        medians = (np.median(effects[place, kind]) for kind in ("uniform", "permuted"))
        rows.append((place, *map(short, (*medians, distances.mean(), (distances > 0).mean()))))
    return rows


def short(number: float) -> float:
    """A number with three decimals."""
    return round(float(number), 3)


if __name__ == "__main__":
    rounds.main(main)
