"""Whether the records of a sweep fit together: what was edited, copied or removed after a run's end
stands at the head of the report. Pure functions of what was collected.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.records.items import ROUNDING, Items

if TYPE_CHECKING:
    from attnlab.experiments.report.collect import Record, Records

Numbers = Mapping[str, Mapping[str, float]]


def of_trial(
    scores: Numbers,
    splits: Mapping[str, str],
    items: Items | None,
    curve: Sequence[Mapping[str, Any]],
    chosen_by: str,
) -> Iterator[str]:
    """What does not fit among the records of one trial.

    Args:
      scores: split to measure to number.
      splits: split to the one that its file names.
      items: the test examples.
      curve: of `metrics.jsonl`.
      chosen_by: the measure by which candidates are chosen.
    """
    for split, label in splits.items():
        if label != split:
            yield f"the scores of the {split} split are of {label!r}"
    test, valid = scores["test"], scores["valid"]
    if "step" in test and "step" in valid and test["step"] != valid["step"]:
        yield (
            f"results.json is of step {test['step']:g}, the parameters that were kept of"
            f" {valid['step']:g}"
        )
    for name in items.rules if items is not None and test else ():
        assert items is not None
        score, recorded = items.score(name), test.get(name, math.nan)
        if not math.isclose(score, recorded, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"{name} is {recorded:.6g} in results.json and {score:.6g} by items.npz"
    by_step = {point["step"]: point for point in curve if point["split"] == "valid"}
    logged = by_step.get(valid.get("step"), {}).get(chosen_by)
    if isinstance(logged, float) and chosen_by in valid and logged != valid[chosen_by]:
        yield f"{chosen_by} is {valid[chosen_by]:.6g} in valid.json and {logged:.6g} in metrics.jsonl"


def of_sweep(records: Records, reported: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """What does not fit, of the reported trials, as "candidate/seed1" and words."""
    looked = {
        (look["candidate"], seed)
        for look in records.looks
        if look["event"] == "test"
        for seed in look["scored"]
    }
    for trial in reported:
        name = trial.seen.trial.name
        yield from ((name, text) for text in trial.misfits)
        yield from ((name, f"{file} is not what the run left") for file in trial.altered or ())
        manifest = trial.manifest
        if manifest is not None and manifest.config.get("seed", trial.seed) != trial.seed:
            yield name, f"manifest.json is of seed {manifest.config['seed']}"
        if not trial.scores["test"] or manifest is None or manifest.version < 2:
            continue
        if trial.altered is None:
            yield name, "digests.json is missing"
        if (trial.candidate.id, trial.seed) not in looked:
            yield name, "looks.jsonl does not know that it was scored on the test split"
    for first, second in itertools.combinations(reported, 2):
        if first.curve and (first.curve, first.pace) == (second.curve, second.pace):
            yield (
                second.seen.trial.name,
                f"it is a copy of {first.seen.trial.name}: same losses and times",
            )
