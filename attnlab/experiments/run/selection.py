"""`choice.json`: which candidate represents each variant; made on validation, then frozen. And
`looks.jsonl`: every frozen choice and every reading of the test split, with the plan and code at
that time.

Of the candidates of a variant the one with the best mean over seeds of the selection metric is
chosen, the first of equals. A candidate that lacks a seed (failed, diverged, a metric that is not
finite) is chosen only if no candidate is complete. A failed trial (a full disk, for example) might
have been the best: see `blocking`.

A choice is recorded before it is frozen, a reading before the split is opened, so that a killed
process counts as a look. Records are only appended. From them the report tells what was added after
test scores were known.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from attnlab.errors import UserError
from attnlab.experiments.plan import Candidate, Plan, Trial, locked
from attnlab.experiments.run.slots import usable_cores, usable_gpus
from attnlab.experiments.run.state import Seen, recorded
from attnlab.records.files import AppendOnly, drop_torn_line, timestamp, write_atomic
from attnlab.records.json_kinds import Damaged, Finite, FolderName, Natural, fit, read, read_file
from attnlab.records.manifest import code_revision
from attnlab.records.sealed import CHOICE
from attnlab.records.stream import read_records

LOOKS = "looks.jsonl"


class Scored(TypedDict):
    """The selection metric of a candidate over the seeds that are done, by seed, and its mean; None
    without any.
    """

    mean: Finite | None
    seeds: Mapping[str, Finite]


class Chosen(TypedDict):
    """The choice for one variant.

    `whole` is False if a seed of the candidate failed; `scores` are those of all candidates, by id.
    Of `settings` candidates `trained` lost no trial; `accepted` are the trials that failed or were
    stopped by request, and that it was chosen without, by name, with the reason. One that diverged
    or was pruned has its outcome, and is not lost.
    """

    candidate: FolderName | None
    whole: NotRequired[bool]
    scores: NotRequired[Mapping[str, Scored]]
    settings: NotRequired[Natural]
    trained: NotRequired[Natural]
    accepted: NotRequired[Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen, and from which scores.

    Attributes:
      made: when it was frozen first, UTC, ISO 8601.
      metric: of the validation split.
      mode: "min" or "max".
      chosen: by variant.
    """

    made: str
    metric: str
    mode: str
    chosen: Mapping[str, Chosen]

    @classmethod
    def read(cls, directory: str | Path) -> "Choice | None":
        """Reads the frozen choice of a sweep folder; returns None before it is made.

        Raises:
          UserError: the file is damaged.
        """
        remedy = "put back a good copy, it cannot be made twice"
        return read_file(Path(directory) / CHOICE, cls, remedy)

    def write(self, directory: str | Path) -> None:
        """Writes `<directory>/choice.json` atomically."""
        text = json.dumps(dataclasses.asdict(self), indent=1) + "\n"
        write_atomic(Path(directory) / CHOICE, text)

    def candidate(self, variant: str) -> str | None:
        """Returns the id of the candidate chosen for a variant; None if no trial of the variant
        finished, or nothing is chosen yet.
        """
        return self.chosen[variant]["candidate"] if variant in self.chosen else None


def blocking(plan: Plan, directory: Path) -> list[Seen]:
    """Returns the states (`Seen`) of the failed trials of variants that have no chosen candidate,
    except trials whose failure an earlier choice has accepted.
    """
    before = Choice.read(directory)
    chosen = {} if before is None else before.chosen
    accepted = {name for entry in chosen.values() for name in entry.get("accepted", {})}
    frozen = [variant for variant, entry in chosen.items() if entry["candidate"] is not None]
    open_ = [trial for trial in plan.trials() if trial.candidate.variant not in frozen]
    states = (recorded(trial, directory) for trial in open_ if trial.name not in accepted)
    return [seen for seen in states if seen.state == "failed"]


def freeze(plan: Plan, directory: Path) -> Choice:
    """Chooses a candidate, by the `valid.json` of its trials, for every variant that has none yet,
    notes a changed choice in `looks.jsonl`, writes it to `choice.json` and returns the whole
    choice; raises `UserError` if a variant has no candidates.

    A frozen choice stays: a plan that has grown adds variants, and new seeds do not reopen it.
      Failed trials are left out, and named in it; the caller decides whether that is accepted
      (`blocking`).

    Raises:
      UserError: a variant has no candidate to choose from.
    """
    before = Choice.read(directory)
    chosen = {} if before is None else before.chosen
    frozen = {variant: pick for variant, pick in chosen.items() if pick["candidate"] is not None}
    for variant in plan.variants:
        if variant not in frozen and not plan.of(variant):
            raise UserError(
                f"{directory}: variant {variant!r} has no candidate to choose from, so nothing is"
                " chosen; 'sweep' makes some"
            )
    made = {
        variant: frozen.get(variant) or choose(plan, variant, directory)
        for variant in plan.variants
    }
    since = before.made if before else timestamp()
    choice = Choice(since, plan.select["metric"], plan.select["mode"], {**frozen, **made})
    if choice != before:
        new = {name: pick["candidate"] for name, pick in made.items() if name not in frozen}
        _append(directory, plan, {"event": "choice", "chosen": new})
        choice.write(directory)
    return choice


def choose(plan: Plan, variant: str, directory: Path) -> Chosen:
    """Chooses, of the candidates of a variant with the most scored seeds, the one with the best
    mean validation score; returns a `Chosen`, a dict with its id (or None), whether all its settled
    seeds have a score, the scores of all, the numbers of candidates and of those that lost no
    trial, and the lost trials.
    """
    scores = {candidate.id: scored(plan, candidate, directory) for candidate in plan.of(variant)}
    measured = {identity: entry for identity, entry in scores.items() if entry["seeds"]}
    most = max((len(entry["seeds"]) for entry in measured.values()), default=0)
    sign = 1.0 if plan.select["mode"] == "min" else -1.0
    fullest = [identity for identity, entry in measured.items() if len(entry["seeds"]) == most]
    # the first of equals
    best = min(fullest, key=lambda name: sign * (measured[name]["mean"] or 0.0), default=None)
    trials = [trial for trial in plan.trials() if trial.candidate.variant == variant]
    states = [recorded(trial, directory) for trial in trials]
    settled = [seen.trial for seen in states if seen.settled]
    seeds = {str(trial.seed) for trial in settled if trial.candidate.id == best}
    lacking = [seen for seen in states if seen.lost]
    return {
        "candidate": best,
        "whole": best is not None and seeds <= {*scores[best]["seeds"]},
        "scores": scores,
        "settings": len(scores),
        "trained": len(scores) - len({seen.trial.candidate.id for seen in lacking}),
        "accepted": {seen.trial.name: seen.message for seen in lacking},
    }


def scored(plan: Plan, candidate: Candidate, directory: Path) -> Scored:
    """Returns {"mean": ..., "seeds": {seed: value}} of the selection metric of a candidate, over
    the seeds whose trials are done and have a finite value; the mean is None without any.
    """
    values = {}
    for seed in plan.seeds:
        value = validation_score(Trial(candidate, seed), directory, plan.select["metric"])
        if value is not None:
            values[str(seed)] = value
    return {"mean": statistics.fmean(values.values()) if values else None, "seeds": values}


def validation_score(trial: Trial, directory: Path, metric: str) -> float | None:
    """Returns the value of `metric` in the `valid.json` of a trial, or None if the trial is not
    done or the value is not finite; raises `UserError` if the file is damaged or has no such
    metric.

    Raises:
      UserError: `valid.json` is damaged or has no such metric.
    """
    if recorded(trial, directory).state != "done":
        return None
    path = trial.workdir(directory) / "valid.json"
    try:
        value = float(fit(read(path.read_bytes(), dict[str, Any]).get(metric), float, metric))
    except (FileNotFoundError, Damaged) as error:
        raise UserError(
            f"{path} is damaged or has no {metric!r} ({error}): remove it and run the sweep again"
        ) from error
    return value if math.isfinite(value) else None


def wanted(plan: Plan, choice: Choice | None) -> list[Trial]:
    """Returns the trials to run, in order: all of the plan's, but of a variant whose choice is
    frozen only those of the chosen candidate.
    """
    if choice is None:
        return plan.trials()
    return [
        trial
        for trial in plan.trials()
        if choice.candidate(trial.candidate.variant) in (None, trial.candidate.id)
    ]


class _Event(TypedDict):
    """What both events have: `time` is UTC in ISO 8601, `plan` the plan's hash, `seeds` all of its
    seeds, `code` the revision as in manifests.
    """

    time: str
    plan: str
    seeds: tuple[Natural, ...]
    code: Mapping[str, Any] | None


class Frozen(_Event):
    """A choice: `chosen` is variant to candidate, of those that are chosen now."""

    event: Literal["choice"]
    chosen: Mapping[str, str | None]


class Tested(_Event):
    """A reading of the test split for a candidate: `scored` are the seeds that had no test scores,
    `cores` how many there were, on CPUs.
    """

    event: Literal["test"]
    candidate: str
    scored: tuple[Natural, ...]
    cores: NotRequired[Natural]


Look = Frozen | Tested


def note_test(directory: Path, plan: Plan, candidate: str, scored: Sequence[int]) -> None:
    """Records in `looks.jsonl` that the test split is about to be read to score a candidate (its
    id) with the seeds `scored`, and on CPUs the number of cores.
    """
    cores = {} if usable_gpus() else {"cores": len(usable_cores())}
    look = {"event": "test", "candidate": candidate, "scored": list(scored), **cores}
    _append(directory, plan, look)


def looked(directory: Path) -> tuple[Mapping[str, Any], ...]:
    """Returns the records in `looks.jsonl` of a sweep, each a `Look`, in order.

    Raises:
      UserError: the file is damaged.
    """
    return tuple(read_records(directory / LOOKS, Look))


def _append(directory: Path, plan: Plan, entry: Mapping[str, Any]) -> None:
    """Appends an event (`entry`) with the time, the plan's hash and seeds, and the code revision,
    as a line of JSON to `looks.jsonl` in the sweep's folder, and waits until it is on disk.
    """
    context = {"time": timestamp(), "plan": plan.hash, "seeds": plan.seeds, "code": code_revision()}
    with locked(directory), closing(AppendOnly(directory / LOOKS)) as file:
        drop_torn_line(directory / LOOKS)
        file.append((json.dumps({**entry, **context}, ensure_ascii=False) + "\n").encode())
        file.sync()
