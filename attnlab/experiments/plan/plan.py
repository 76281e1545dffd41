"""`plan.json`: every candidate and trial of an experiment, resolved and counted before the first
trial starts. And `tasks.json`: of an experiment over several tasks, which folders beside it are
their sweeps.

Needs neither jax nor numpy: the launcher, the status table and the report read them.
`attnlab.experiments.plan.process` makes a plan.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from attnlab.errors import UserError, nearest
from attnlab.experiments.define import MOST_LOOKS, Experiment, layered, zipped
from attnlab.experiments.plan.candidate import Candidate, Trial, Wanted, candidate_id
from attnlab.records import json_kinds
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import SWEEP, Damaged, Finite, FolderName, Natural
from attnlab.records.locks import exclusive
from attnlab.records.provenance import Record
from attnlab.records.sealed import sweep_of
from attnlab.training.pruning import Keep

FILE = "plan.json"


class Metric(TypedDict):
    """A score and which way is better."""

    metric: str
    mode: Literal["min", "max"]


class Point(TypedDict):
    """A setting that is tried: its name, and full dotted names to values."""

    name: str
    overrides: Mapping[str, Any]


class BudgetTerms(TypedDict):
    """What is held equal, see `attnlab.experiments.Budget`."""

    match: Literal["parameters", "flops"]
    within: Finite
    knob: str
    to: str
    knobs: Mapping[str, str]


class ContrastTerms(TypedDict):
    """A contrast, see `attnlab.experiments.Contrast`."""

    weights: Mapping[str, Finite]
    at_least: Finite
    on: NotRequired[str]


class ClaimTerms(TypedDict):
    """A claim, see `attnlab.experiments.Claim`."""

    statement: str
    contrasts: list[ContrastTerms]


class RangeTerms(TypedDict):
    """A range, see `attnlab.experiments.Search`."""

    kind: str
    low: NotRequired[Finite | None]
    high: NotRequired[Finite | None]
    options: NotRequired[list[Any]]


class SearchTerms(TypedDict):
    """A search, see `attnlab.experiments.Search`."""

    sampler: str
    trials: Natural
    pruner: str | None
    at_once: Natural
    seed: Natural
    finish: NotRequired[Natural]
    space: Mapping[str, RangeTerms]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What an experiment trains, and why.

    Attributes:
      name: of the experiment file, with its argument: "bottleneck", "bottleneck:my/folder".
      file: the experiment file as it was given, with its argument.
      question: what is asked.
      config: config file and argument.
      base: overrides of every variant.
      variants: name to its own overrides, in the order of the report.
      tune: the points that are tried for every variant; empty for none.
      seeds: of every candidate.
      baseline: the variant that the others are compared with.
    """

    name: str
    file: str
    question: str
    config: str
    base: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]
    tune: tuple[Point, ...]
    seeds: tuple[Natural, ...]
    baseline: str


@dataclasses.dataclass(frozen=True)
class Plan(Asked):
    """A whole experiment, as `plan.json` holds it under the same names: what is asked, how it is
    judged, and its candidates.

    Attributes:
      baseline: the variant that the others are compared with.
      select: by which a candidate is chosen, on the validation split.
      measure: what is reported, on the test split.
      budget: what is held equal, or None.
      claim: what is put to the test, or None.
      search: the search for tuned settings, as it describes itself, or None.
      hash: 12 hex digits of everything that defines the experiment.
      created: when it was planned first, UTC, ISO 8601.
      candidates: in the order of the variants, within one in the order of `tune`; those of a search
        behind.
      own_code: the files of experiment and config, and who went on with other code of a
        candidate's: see `attnlab.records.provenance.Record`.
      looks: how many times the test split is planned to be read, seeds being added in between.
      cores: of each trial: they decide how XLA divides sums, and so how they round; None with
        GPUs, and in version 1.
      unmatched: candidates may miss the budget, those too that a search draws later: the user has
        accepted it.
      keep: what stays of the states of a trial that is done, see `attnlab.training.pruning`.
      version: of all records of the sweep, see `attnlab.records.json_kinds`.
    """

    select: Metric
    measure: Metric
    budget: BudgetTerms | None
    claim: ClaimTerms | None
    search: SearchTerms | None
    hash: str
    created: str
    candidates: tuple[Candidate, ...]
    own_code: Record | None = None
    looks: Natural = 1
    cores: Natural | None = None
    unmatched: bool = False
    keep: Keep = "all"
    version: Natural = SWEEP

    def trials(self) -> list[Trial]:
        """Returns all trials in running order: the first seed of every candidate, then the second
        of every candidate, and so on; with a search only promoted candidates have more than the
        first seed.
        """
        return [
            Trial(candidate, seed)
            for seed in self.seeds
            for candidate in self.candidates
            if self.search is None or candidate.promoted or seed == self.seeds[0]
        ]

    def of(self, variant: str) -> list[Candidate]:
        """Returns the candidates of a variant, in order."""
        return [candidate for candidate in self.candidates if candidate.variant == variant]

    def made_of(self, wanted: str) -> Candidate | None:
        """Returns the candidate that was made from the `Wanted` with this id; None if there is none
        yet.
        """
        return next((made for made in self.candidates if (made.wanted or made.id) == wanted), None)

    def trial(self, identity: str, seed: int) -> Trial:
        """Returns the trial of a candidate, given by its id, and a seed; raises `UserError` if the
        plan lacks either.

        Raises:
          UserError: the plan has no such candidate or seed.
        """
        by_id = {candidate.id: candidate for candidate in self.candidates}
        if identity not in by_id:
            raise UserError(f"the plan has no candidate {identity!r}; {nearest(identity, by_id)}")
        if seed not in self.seeds:
            raise UserError(
                f"the plan has no seed {seed}; its seeds: {', '.join(map(str, self.seeds))}"
            )
        return Trial(by_id[identity], seed)

    def want(self, variant: str, tuned: Mapping[str, Any], name: str = "") -> Wanted:
        """Returns a `Wanted`, a candidate before its config is resolved, of a variant's name with
        tuned settings (dotted name to value); its id is made from `name`, by default that of a grid
        point; raises `UserError` for an unknown variant.

        Raises:
          UserError: no such variant, or a setting no config can hold.
        """
        if variant not in self.variants:
            raise UserError(
                f"the plan has no variant {variant!r}; {nearest(variant, self.variants)}"
            )
        if tuned and not name:
            name = zipped({key: (value,) for key, value in tuned.items()})[0].name
        tuned = json.loads(json.dumps(tuned))
        overrides = layered(self.base, self.variants[variant], tuned)
        identity = candidate_id(self.config, overrides, (variant, name))
        return Wanted(identity, variant, tuned, overrides)

    def study(self, variant: str) -> str:
        """Returns the name of the search of a variant, "VARIANT-" and 8 hex digits of a hash of
        everything that its results depend on: a changed experiment is another search.
        """
        fields = ("config", "base", "select", "search", "budget")
        meaning: dict[str, Any] = {name: getattr(self, name) for name in fields}
        meaning |= {"variant": self.variants[variant], "seed": self.seeds[0]}
        canonical = json.dumps(meaning, sort_keys=True)
        return f"{variant}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"

    def grown(self, candidates: Iterable[Candidate]) -> "Plan":
        """Returns this plan with the candidates that it does not have yet (by id) added at the end."""
        ids = {candidate.id for candidate in self.candidates}
        added = (new for new in candidates if new.id not in ids)
        return dataclasses.replace(self, candidates=(*self.candidates, *added))

    def promote(self, identities: Iterable[str]) -> "Plan":
        """Returns this plan with exactly these candidates promoted."""
        chosen = set(identities)
        return self._with_each(lambda candidate: {"promoted": candidate.id in chosen})

    def paced(self, until: Mapping[str, int | None]) -> "Plan":
        """Returns this plan with `Candidate.until` set by id to the step at which a candidate
        waits; None (the end) for all others.
        """
        return self._with_each(lambda candidate: {"until": until.get(candidate.id)})

    def _with_each(self, changes: Callable[[Candidate], Mapping[str, Any]]) -> "Plan":
        """Returns this plan with the fields replaced that `changes` returns for each candidate."""
        candidates = (dataclasses.replace(each, **changes(each)) for each in self.candidates)
        return dataclasses.replace(self, candidates=tuple(candidates))

    def with_cores(self, cores: int | None, directory: Path) -> "Plan":
        """Returns this plan with `cores` cores for each trial; the same plan if it has a number
        already or a trial has a folder in `directory`.
        """
        if self.cores is not None or any(directory.glob("trials/*/seed*")):
            return self
        return dataclasses.replace(self, cores=cores)

    def write(self, directory: str | Path) -> None:
        """Writes `<directory>/plan.json` atomically; makes the folder if absent. Processes that may
        run at the same time must hold `locked`.
        """
        Path(directory).mkdir(parents=True, exist_ok=True)
        write_atomic(Path(directory) / FILE, self.to_json())

    def to_json(self) -> str:
        """Returns the text of `plan.json`."""
        return json.dumps({"version": self.version, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def read(cls, directory: str | Path) -> "Plan | None":
        """Reads and returns the plan of a sweep folder; returns None if there is none, and raises
        `UserError` if it is damaged, of a newer version or unreadable.

        Raises:
          UserError: the file is damaged, or of a newer version.
        """
        path = Path(directory) / FILE
        try:
            return cls.from_json(path.read_bytes(), str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error

    @classmethod
    def of_sweep(cls, directory: str | Path) -> "Plan":
        """Reads and returns the plan of a sweep folder; raises `UserError` if there is none, or it
        is damaged, of a newer version or unreadable.

        Raises:
          UserError: there is none, or it cannot be read.
        """
        if plan := cls.read(directory):
            return plan
        if Path(directory, "manifest.json").exists():
            sweep = sweep_of(directory) or "that of a sweep"
            raise UserError(f"{directory} is the folder of a run, no sweep; name {sweep}")
        raise UserError(
            f"{directory} holds no sweep (no {FILE} in it); of several tasks name the folder of"
            f" one; 'sweep FILE.py --dir={directory}' makes one, and all nodes must see it"
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> "Plan":
        """Parses and checks the text that `to_json` has written and returns its plan; raises
        `UserError`, which calls the text `where`, if it is damaged or of a newer version.

        Raises:
          UserError: the text is damaged, or of a newer version.
        """
        try:
            plan: Plan = json_kinds.fit(json_kinds.versioned(text, SWEEP, where), cls)
            _check_names(plan)
        except ValueError as error:  # `Damaged` is one
            raise UserError(
                f"{where} is damaged ({error}): put back a good copy, or use another --dir"
            ) from error
        return plan

    @classmethod
    def extend(cls, directory: str | Path, candidates: Iterable[Candidate]) -> "Plan":
        """Adds the candidates that it lacks to `<directory>/plan.json` under its lock and returns
        the plan as it now is; raises `UserError` if there is none.

        Raises:
          UserError: there is no plan, or it cannot be read.
        """
        with locked(directory):
            plan = cls.of_sweep(directory).grown(candidates)
            plan.write(directory)
        return plan


def _check_names(plan: Plan) -> None:
    """Raises `Damaged` if the parts of a plan contradict each other: an unknown baseline, repeated
    seeds or ids, a claim without contrasts, a number that cannot be.
    """
    if plan.baseline not in plan.variants:
        raise Damaged(f"it has no variant {plan.baseline!r}, its baseline")
    if not plan.seeds or len(set(plan.seeds)) < len(plan.seeds):
        raise Damaged("its seeds are none, or one is there twice")
    if plan.claim is not None and not (
        plan.claim["contrasts"] and all(contrast["weights"] for contrast in plan.claim["contrasts"])
    ):
        raise Damaged("its claim has no contrasts, or one of nothing")
    if not 1 <= plan.looks <= MOST_LOOKS:
        raise Damaged(f"its looks are {plan.looks}")
    if any(each.budget and not each.budget["wanted"] for each in plan.candidates):
        raise Damaged("a budget of 0 is wanted")
    if plan.cores == 0:
        raise Damaged("its trials have no core")
    if len({candidate.id for candidate in plan.candidates}) < len(plan.candidates):
        raise Damaged("two candidates have the same id")


@contextmanager
def locked(directory: str | Path) -> Iterator[None]:
    """Context manager: takes the lock of a sweep folder's plan, for which other processes wait, and
    makes the folder if absent. Reading `plan.json` needs no lock.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    with exclusive(Path(directory) / ".plan.lock"):
        yield


class Tasks(TypedDict):
    """The question of an experiment and its tasks, in order."""

    version: Natural
    question: str
    tasks: list[FolderName]


def read_tasks(directory: Path) -> Tasks | None:
    """Reads `tasks.json` of a folder and returns it as a dict: its version, the question, and the
    list of names of the tasks whose sweeps are there; returns None if there is no such file.

    Raises:
      UserError: the file is damaged.
    """
    remedy = "remove it, and run the same 'sweep' command again"
    return json_kinds.read_file(directory / "tasks.json", Tasks, remedy)


def write_tasks(directory: Path, experiment: Experiment, replace: bool) -> None:
    """Writes `tasks.json`, the question and task names of an experiment, into `directory`, made if
    absent; raises `UserError` if a task of the earlier file is missing, unless `replace`.

    Raises:
      UserError: the experiment lacks a task that was there.
    """
    before = read_tasks(directory)
    gone = [name for name in (before["tasks"] if before else ()) if name not in experiment.tasks]
    if gone and not replace:
        raise UserError(
            f"{directory} has a task {gone[0]!r} too; put it back, or add --change-plan"
        )
    made = {"version": SWEEP, "question": experiment.question, "tasks": [*experiment.tasks]}
    directory.mkdir(parents=True, exist_ok=True)
    write_atomic(directory / "tasks.json", json.dumps(made, indent=1) + "\n")
