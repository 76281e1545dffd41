"""The records in the folder of a sweep, as plain values. Only this file of the report reads files,
so the same records give the same report.
"""

import dataclasses
import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Candidate, Plan, Trial
from attnlab.experiments.report.answers import Answer, answers
from attnlab.experiments.report.misfits import of_trial
from attnlab.experiments.run import Choice, Seen, look, looked, wanted
from attnlab.records import attempts
from attnlab.records.items import Items
from attnlab.records.json_kinds import Damaged, Finite, Natural, read, read_file
from attnlab.records.manifest import Manifest
from attnlab.records.measures import CLASSES, TEXT, VOCABULARY, Measure, Scores, is_finite
from attnlab.records.sealed import altered_records
from attnlab.records.stream import Measured, read_records
from attnlab.records.stream import Record as Line
from attnlab.training.programs import COUNTED

Curve = tuple[Mapping[str, Any], ...]
SCORES: Mapping[str, str] = {"valid": "valid.json", "test": "results.json"}
"""Where the scores of a split stand in a trial's folder."""
_NORMALISED = dict[str, str]()
"""Digest of a vocabulary to its normaliser; a tokenizer, which trials share, is read for a second."""


class Timing(Line, total=False):
    """What is read of a line of `timing.jsonl`."""

    step_seconds: Finite
    together: Natural
    compiled: Natural
    compiled_seconds: Finite
    loaded: Natural
    loaded_seconds: Finite


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a trial took; None if it is not recorded.

    Attributes:
      step_seconds: median over the logged steps.
      first_step_seconds: from the start of its process to its first step, of the first attempt that
        got there.
      peak_bytes: the peak memory of a process of the trial on the host.
      together: how many trials shared the median step, each with an equal share of its time; 1 for
        one alone.
      most_together: the largest `together` of any logged step: at least so many trials shared the
        peak memory.
      programs: see `programs.COUNTED`.
    """

    step_seconds: float | None = None
    first_step_seconds: float | None = None
    peak_bytes: float | None = None
    together: int = 1
    most_together: int = 1
    programs: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Effort:
    """The work on a trial, of all its attempts together.

    Attributes:
      began: when the first one did, seconds since 1970; None before.
      steps: updates done, including those repeated after a kill, as far as they were recorded.
      seconds: the time of all attempts; for one that died, until its last record.
      retries: how often it failed and was opened again.
      cores: that its processes had, each number once; () where it is not recorded.
    """

    began: float | None = None
    steps: int = 0
    seconds: float = 0.0
    retries: int = 0
    cores: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a trial shows of the first test examples.

    Attributes:
      pictures: pictures of attention, by example and map.
      answers: what it said.
    """

    pictures: Mapping[int, Mapping[str, Path]]
    answers: tuple[Answer, ...]


@dataclasses.dataclass(frozen=True)
class Logged:
    """What a trial logged on its way.

    Attributes:
      curve: the records of `metrics.jsonl`, in order.
      pace: step to seconds of a step, the mean since the one before.
      spans: host, begin and end (seconds since 1970) of each process that worked on it, as far as
        recorded.
    """

    curve: Curve
    pace: Mapping[int, float]
    spans: tuple[tuple[str, float, float], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """The records of one trial; only itself is equal to it.

    Attributes:
      seen: candidate, seed and progress.
      cost: time and memory.
      scores: split to measure to number; numbers that are not finite, or beyond
        `measures.LARGEST`, are left out.
      measures: split to measure to its bounds and counts; nothing where that is not on record.
      logged: what it logged while it was trained.
      items: the measure of each test example; None where it has none, or that is not on record.
      shown: what it shows of the first test examples.
      manifest: None before it has begun.
      effort: the work on it.
      data: split to the digest of what was read of it; the test split's from the last look, where
        that has kept it.
      learned: of `attnlab.records.measures.DEPENDS`, what tells the run's from others, where it is
        on record.
      misfits: what does not fit among its records, see `misfits`.
    """

    seen: Seen
    cost: Cost
    scores: Mapping[str, Mapping[str, float]]
    measures: Mapping[str, Mapping[str, Measure]]
    logged: Logged
    shown: Shown
    manifest: Manifest | None
    items: Items | None = None
    effort: Effort = Effort()
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)
    learned: Mapping[str, str] = dataclasses.field(default_factory=dict)
    misfits: tuple[str, ...] = ()

    @property
    def candidate(self) -> Candidate:
        """What was trained."""
        return self.seen.trial.candidate

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.seen.trial.seed

    def series(self, split: str, metric: str) -> dict[int, float]:
        """Returns the values of a metric on a split that were logged in training, by step; values
        that are not finite are left out.
        """
        points = [point for point in self.logged.curve if point["split"] == split]
        values: dict[int, Any] = {point["step"]: point.get(metric) for point in points}
        return {step: float(value) for step, value in values.items() if is_finite(value)}


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """The records of a sweep; only itself is equal to it.

    Attributes:
      plan: the experiment.
      choice: None before it is frozen.
      trials: of every candidate and seed, in the order of variants, candidates and seeds.
      looks: the looks at the test split, in order, see `attnlab.experiments.run.selection`; in
        version 1 there may be none.
    """

    plan: Plan
    choice: Choice | None
    trials: tuple[Record, ...]
    looks: tuple[Mapping[str, Any], ...] = ()

    def of(self, candidate: Candidate) -> tuple[Record, ...]:
        """The trials of a candidate, by seed as the plan has them."""
        return tuple(record for record in self.trials if record.candidate.id == candidate.id)

    def representative(self, variant: str) -> Candidate | None:
        """Returns the chosen candidate of a variant (its first one if none was chosen, as no trial
        finished), or None if the choice is not made or lacks the variant.
        """
        if self.choice is None or variant not in self.choice.chosen:
            return None
        candidates = self.plan.of(variant)
        first = candidates[0] if candidates else None
        chosen = self.choice.candidate(variant)
        return next((candidate for candidate in candidates if candidate.id == chosen), first)

    def chosen(self, candidate: Candidate) -> bool:
        """Whether it was chosen for its variant; False before the choice."""
        return self.choice is not None and self.choice.candidate(candidate.variant) == candidate.id

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds by which settings are chosen: the first one alone where they are searched for."""
        return tuple(self.plan.seeds if self.plan.search is None else self.plan.seeds[:1])

    @property
    def wanted(self) -> tuple[Record, ...]:
        """Returns the trials that must finish: all before the choice is frozen, then those of the
        chosen candidates, and all of a variant for which none is chosen.
        """
        names = {trial.name for trial in wanted(self.plan, self.choice)}
        return tuple(record for record in self.trials if record.seen.trial.name in names)

    @property
    def complete(self) -> bool:
        """Returns whether the sweep is over: the choice is frozen, and every trial that must finish
        (`wanted`) has settled and, if it is done, is scored on the test split.
        """
        return self.choice is not None and all(
            record.seen.settled and (record.seen.state != "done" or bool(record.scores["test"]))
            for record in self.wanted
        )


def collect(directory: Path, only: Collection[str] | None = None) -> Records:
    """Returns the `Records` of the sweep in a folder: its plan, choice, looks and each trial's
    records (only of trials with the names `only`, if given); raises UserError if it has no plan or
    a damaged file.

    Raises:
      UserError: there is no plan in it, or a file in it is damaged.
    """
    plan = Plan.of_sweep(directory)
    candidates = [candidate.id for variant in plan.variants for candidate in plan.of(variant)]
    trials = [trial for trial in plan.trials() if trial.candidate.id in candidates]
    trials = [trial for trial in trials if only is None or trial.name in only]
    trials.sort(key=lambda trial: candidates.index(trial.candidate.id))
    recorded = tuple(_record(trial, directory, plan) for trial in trials)
    return Records(plan, Choice.read(directory), recorded, looked(directory))


def _record(trial: Trial, directory: Path, plan: Plan) -> Record:
    """Reads the files in the folder of a trial of the sweep in `directory` and returns them as a
    `Record`, with the contradictions among them in its `misfits`; a trial that never began has an
    empty record.
    """
    workdir = trial.workdir(directory)
    scored = read_scores(workdir)
    events, manifest = attempts.read(workdir), Manifest.read(workdir)
    timing = read_records(workdir / "timing.jsonl", Timing)
    scores = {split: numbers for split, (numbers, _, _) in scored.items()}
    curve = tuple(read_records(workdir / "metrics.jsonl", Measured))
    pace = {line["step"]: line["step_seconds"] for line in timing if "step_seconds" in line}
    items, metric = Items.read(workdir), plan.measure["metric"]
    splits = {split: label for split, (_, _, label) in scored.items() if label}
    record = Record(
        seen=look(trial, directory, events),
        cost=cost(timing, events),
        scores=scores,
        measures={split: measures for split, (_, measures, _) in scored.items()},
        logged=Logged(curve, pace, _spans(events)),
        shown=Shown(_pictures(workdir / "maps"), answers(workdir)),
        manifest=manifest,
        items=items and items.without([name for name in items.rules if name != metric]),
        effort=_effort(events),
        data={} if manifest is None else manifest.read_data(workdir),
        learned=_digests_of_vocabularies(workdir, manifest),
    )
    misfits = of_trial(record, items, splits, altered_records(workdir), plan.select["metric"])
    return dataclasses.replace(record, misfits=tuple(misfits))


def _digests_of_vocabularies(workdir: Path, manifest: Manifest | None) -> dict[str, str]:
    """Returns, by the names of `measures.DEPENDS`, the digest of a trial's target vocabulary, its
    text normaliser and its class names as JSON, from its manifest and `workdir`/vocabulary; those
    that are not on record are left out (see `Record.learned`).
    """
    prints = (manifest and manifest.vocabulary) or {}
    digests = {VOCABULARY: prints.get("target.json") or prints.get("shared.json")}
    for name in ("shared.json", "target.json", "labels.json", "images.json"):
        path = workdir / "vocabulary" / name
        digest = prints.get(name, str(path))
        try:
            content = {} if digest in _NORMALISED else read(path.read_bytes(), dict[str, Any])
        except (OSError, Damaged):  # nothing of that kind; what is damaged is for the task to say
            continue
        match content:
            case {"tokenizer": {"content": {"normalizer": rules}} | {"normalizer": rules}}:
                _NORMALISED[digest] = json.dumps(rules)
            case {"labels": names} | {"classes": names} if names:
                digests[CLASSES] = json.dumps(names)
        digests[TEXT] = _NORMALISED.get(digest, digests.get(TEXT))
    return {part: digest for part, digest in digests.items() if digest}


def _pictures(folder: Path) -> dict[int, dict[str, Path]]:
    """Returns the paths of the attention pictures in `folder`, by number of the test example and
    then by name of the map, from file names such as "test0-decoder_0-self.png".
    """
    pictures: dict[int, dict[str, Path]] = {}
    for path in sorted(folder.glob("test*-*.png")):
        example, _, name = path.stem.removeprefix("test").partition("-")
        if example.isdecimal():
            pictures.setdefault(int(example), {})[name] = path
    return pictures


def _spans(events: list[dict[str, Any]]) -> tuple[tuple[str, float, float], ...]:
    """Returns (host, begin, end) of each process that worked on a trial, from its events; the end
    is the time of the last step or end event before the next start.
    """
    spans: list[tuple[str, float, float]] = []
    for event in events:
        if event["event"] == "start":
            spans.append((str(event.get("host", "")), event["time"], event["time"]))
        elif spans and event["event"] in ("step", "end") and is_finite(event.get("time")):
            spans[-1] = (*spans[-1][:2], max(spans[-1][1], event["time"]))
    return tuple(spans)


def cost(timing: list[dict[str, Any]], events: list[dict[str, Any]]) -> Cost:
    """Returns the `Cost` of a trial from the lines of `timing.jsonl` and its events: median seconds
    of a step, seconds to the first step, largest peak memory in bytes, numbers of trials trained
    together, and sums over compiled programs.
    """
    paced = [line for line in timing if "step_seconds" in line]
    steps = [(line["step_seconds"], line.get("together", 1)) for line in paced]
    firsts = [event["first_step_seconds"] for event in events if event.get("first_step_seconds")]
    peaks = [event["peak_bytes"] for event in events if event.get("peak_bytes")]
    pace, together = median_pace(steps)
    most = max((number for _, number in steps), default=1)
    first = firsts[0] if firsts else None
    counted = [line for line in timing if "compiled" in line]
    made = {name: sum(line[name] for line in counted) for name in COUNTED if counted}
    return Cost(pace, first, max(peaks, default=None), together, most, made)


def _effort(events: list[dict[str, Any]]) -> Effort:
    """Returns the `Effort` of a trial from its events: the time of the first start, steps and
    seconds summed over all attempts, the number of retries, and the distinct numbers of processor
    cores.
    """
    began, steps, seconds = None, 0, 0.0
    first = heard = reached = 0.0
    for event in events:
        if event["event"] == "start":
            began = event["time"] if began is None else began
            first = heard = event["time"]
            reached = event["step"]
            continue
        if event["event"] not in ("step", "end"):
            continue
        lasted = (event["time"] if event["event"] == "step" else heard) - first
        if event["event"] == "end" and event.get("seconds") is not None:
            lasted = event["seconds"]
        seconds = seconds + lasted - (heard - first)
        steps += max(0, int(event["step"] - reached))
        heard, reached = first + lasted, max(reached, event["step"])
    cores = {len(event["cores"]) for event in events if isinstance(event.get("cores"), list)}
    retries = sum(event["event"] == "retry" for event in events)
    return Effort(began, steps, seconds, retries, tuple(sorted(cores - {0})))


def median_pace(steps: Sequence[tuple[float, int]]) -> tuple[float | None, int]:
    """Returns the median of the seconds in `steps` (pairs of seconds, trials) and how many trials
    shared that step (of two middle steps, the shorter); (None, 1) without any.
    """
    if not steps:
        return None, 1
    return statistics.median(seconds for seconds, _ in steps), statistics.median_low(steps)[1]


def read_scores(workdir: Path) -> dict[str, tuple[dict[str, float], dict[str, Measure], str]]:
    """Reads the files of scores in a trial's folder and returns, by split, three things: a dict of
    the file's finite numbers (`is_finite`) by name, a dict of what it says of the measures (`Measure`
    by name), and the name of its split; all empty if the file does not exist.
    """
    remedy = "put back a good copy, or remove it and run the sweep again"
    scores = {}
    for split, file in SCORES.items():
        named: dict[str, Any] = dict(read_file(workdir / file, Scores, remedy) or {})
        numbers = {name: float(value) for name, value in named.items() if is_finite(value)}
        scores[split] = numbers, named.get("measures", {}), str(named.get("split", ""))
    return scores
