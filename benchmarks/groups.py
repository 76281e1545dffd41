"""The accuracy of a sweep's variants by the groups of its data: distances, places, numbers of pairs.

    python -m benchmarks.groups runs/recall --png=recall.png

Reads `results.json` of the trials that were evaluated on the test split; computes nothing anew. Of
every variant and group: the mean over seeds, and the least and the largest where they are 0.005 or
more apart. The picture has a line through the means and a bar from the least to the largest.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.analysis.figures import save_curve
from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.progress import table
from benchmarks import rounds

RESULTS = "results.json"
CLOSE = 0.005

Accuracies = dict[str, dict[int, list[float]]]
"""Variant to group to the accuracies of its seeds."""


def main() -> None:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="a finished sweep of diagnostics")
    parser.add_argument("--png", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    name, scores = groups(chosen.directory)
    columns = sorted({group for each in scores.values() for group in each})
    rows = [
        (variant, *(spread_text(each.get(group, ())) for group in columns))
        for variant, each in scores.items()
    ]
    table(f"accuracy by {name}, {chosen.directory}", ("variant", *map(str, columns)), rows)
    rounds.save(chosen.json, {"by": name, "accuracy": scores})
    if chosen.png:
        lines = {
            variant: [(group, sum(seeds) / len(seeds)) for group, seeds in sorted(each.items())]
            for variant, each in scores.items()
        }
        bars = {
            variant: [(min(seeds), max(seeds)) for _, seeds in sorted(each.items())]
            for variant, each in scores.items()
        }
        save_curve(
            chosen.png,
            lines,
            x_label=name,
            y_label="accuracy, test split",
            bars=bars,
            doubling=True,
        )


def groups(directory: Path) -> tuple[str, Accuracies]:
    """What the groups are called, and the accuracies.

    Raises:
      UserError: no plan, no trial that was evaluated, or scores without groups.
    """
    plan = Plan.read(directory)
    name, scores = "", Accuracies()
    for trial in plan.trials() if plan else ():
        path = trial.workdir(directory) / RESULTS
        if not path.exists():
            continue
        name, each = of_scores(json.loads(path.read_text()), str(path))
        for group, accuracy in each.items():
            scores.setdefault(trial.candidate.variant, {}).setdefault(group, []).append(accuracy)
    if not scores:
        raise UserError(
            f"{directory}: no trial with {RESULTS}; give the folder of a finished sweep of diagnostics"
        )
    return name, scores


def of_scores(results: Mapping[str, object], where: str) -> tuple[str, dict[int, float]]:
    """What the groups of one trial are called, and their accuracies.

    Raises:
      UserError: there are none.
    """
    for key, value in results.items():
        if key.startswith("by_") and isinstance(value, Mapping):
            return key.removeprefix("by_"), {
                int(group): float(of["accuracy"]) for group, of in value.items()
            }
    raise UserError(f"{where}: its scores are not split up by anything (no key 'by_...')")


def spread_text(seeds: Sequence[float]) -> str:
    """ "0.52", "0.52 (0.41 to 0.60)" where seeds differ, "" without any."""
    if not seeds:
        return ""
    mean = f"{sum(seeds) / len(seeds):.2f}"
    if max(seeds) - min(seeds) < CLOSE:
        return mean
    return f"{mean} ({min(seeds):.2f} to {max(seeds):.2f})"


if __name__ == "__main__":
    main()
