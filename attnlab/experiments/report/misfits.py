"""Whether the records of a sweep fit together: what was edited, copied or removed after a run's end
stands at the head of the report. Pure functions of what was collected.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attnlab.records.items import ROUNDING, Items
from attnlab.records.measures import is_finite

if TYPE_CHECKING:
    from attnlab.experiments.report.collect import Record, Records


def of_trial(
    record: "Record",
    items: Items | None,
    splits: Mapping[str, str],
    altered: Sequence[str] | None,
    chosen_by: str,
) -> Iterator[str]:
    """Yields a sentence for each contradiction in a trial's `Record`: a split whose file of scores
    names another (`splits` says which), unequal steps, test scores unlike those of its `items`, a
    validation score `chosen_by` unlike the log, `altered` files (None: digests are missing),
    another seed.

    Args:
      record: of the trial.
      items: all measures of its test examples.
      splits: split to the one that its file of scores names.
      altered: the files that are not what the run left; None where it kept no digests.
      chosen_by: the measure by which candidates are chosen.
    """
    manifest = record.manifest
    for split, label in splits.items():
        if label != split:
            yield f"the scores of the {split} split are of {label!r}"
    test, valid = record.scores["test"], record.scores["valid"]
    if "step" in test and "step" in valid and test["step"] != valid["step"]:
        steps = f"{test['step']:g}, the parameters that were kept of {valid['step']:g}"
        yield f"results.json is of step {steps}"
    for name in items.rules if items is not None and test else ():
        assert items is not None
        score, recorded = items.score(name), test.get(name, math.nan)
        same = math.isclose(score, recorded, rel_tol=ROUNDING, abs_tol=ROUNDING)
        if not same and (is_finite(score) or name in test):  # others are not read there
            yield f"{name} is {recorded:.6g} in results.json and {score:.6g} by items.npz"
    by_step = {point["step"]: point for point in record.logged.curve if point["split"] == "valid"}
    logged = by_step.get(valid.get("step"), {}).get(chosen_by)
    if isinstance(logged, float) and chosen_by in valid and logged != valid[chosen_by]:
        yield f"{chosen_by} is {valid[chosen_by]:.6g} in valid.json and {logged:.6g} in metrics.jsonl"
    yield from (f"{file} is not what the run left" for file in altered or ())
    if manifest is not None and manifest.config.get("seed", record.seed) != record.seed:
        yield f"manifest.json is of seed {manifest.config['seed']}"
    if altered is None and test and manifest is not None and manifest.version > 1:
        yield "digests.json is missing"


def of_sweep(records: "Records", reported: "Sequence[Record]") -> Iterator[tuple[str, str]]:
    """Yields (trial name, sentence) for each contradiction in the records of the reported trials:
    their own misfits, test scores that `looks.jsonl` lacks, and trials that are copies.
    """
    looks = [look for look in records.looks if look["event"] == "test"]
    looked = {(look["candidate"], seed) for look in looks for seed in look["scored"]}
    noted = bool(records.looks) and records.looks[0]["event"] == "choice"
    for trial in reported:
        name, manifest = trial.seen.trial.name, trial.manifest
        yield from ((name, text) for text in trial.misfits)
        must = noted or records.plan.version > 1 or (manifest is not None and manifest.version > 1)
        scored = bool(trial.scores["test"])
        if scored and must and (trial.candidate.id, trial.seed) not in looked:
            yield name, "looks.jsonl does not know that it was scored on the test split"
    for first, second in itertools.combinations(reported, 2):
        same = (first.logged.curve, first.logged.pace) == (second.logged.curve, second.logged.pace)
        if first.logged.curve and same:
            copied = f"it is a copy of {first.seen.trial.name}: same losses and times"
            yield second.seen.trial.name, copied
