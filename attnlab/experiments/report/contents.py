"""What a report is made from, shared by all its files and the terminal."""

import dataclasses
import functools
from pathlib import Path

from attnlab.experiments.report.collect import Records, collect
from attnlab.experiments.report.comparison import Comparison, compare
from attnlab.experiments.report.effects import Effect, effects
from attnlab.experiments.report.environment import Environment, environment
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.search import Tried, searched
from attnlab.experiments.report.sections import SECTIONS, Section
from attnlab.experiments.report.verdict import Verdict, judge
from attnlab.experiments.report.warnings import Warned, warnings
from attnlab.experiments.run import counts
from attnlab.pages.html import Figure
from attnlab.pages.svg import Look
from attnlab.pages.tables import Table

NO_CLAIM = "no claim was stated"


@dataclasses.dataclass(frozen=True)
class Contents:
    """A report.

    Attributes:
      records: what it is made from.
      comparison: the rows.
      verdict: on the claim; None without one.
      environment: where the trials ran.
      warnings: warnings to read before any number, the most serious first.
    """

    records: Records
    comparison: Comparison
    verdict: Verdict | None
    environment: Environment
    warnings: tuple[Warned, ...] = ()

    @property
    def outcome(self) -> str:
        """The claim's outcome in words."""
        return NO_CLAIM if self.verdict is None else self.verdict.sentence

    @property
    def extent(self) -> str:
        """Returns one line of text on what was run: the number of variants, the seeds, and how many
        trials are in each state, without those that a frozen choice excludes and that have not
        begun.
        """
        plan, wanted = self.records.plan, self.records.wanted
        trials = self.records.trials
        seen = [run.seen for run in trials if run in wanted or run.seen.state != "pending"]
        states = ", ".join(f"{number} {state}" for state, number in counts(seen).items())
        seeds = ", ".join(map(str, plan.seeds))
        return f"{len(plan.variants)} variants, seeds {seeds}; {len(seen)} trials: {states}"

    @property
    def unfinished(self) -> str:
        """Returns a sentence on what the sweep still lacks (trials, the choice, or test scores); ""
        if it is complete.
        """
        if self.records.complete:
            return ""
        wanted = self.records.wanted
        open_ones = sum(not record.seen.settled for record in wanted)
        lacks = "the choice is made, and not every chosen trial is scored on the test split yet."
        if open_ones:
            lacks = f"{open_ones} of {len(wanted)} trials have not settled."
            lacks += " What follows is what there is so far."
        elif self.records.choice is None:
            lacks = "all trials have settled, and the choice is not made yet."
        return f"Unfinished: {lacks}"

    @functools.cached_property
    def looks(self) -> list[Look]:
        """The style of each row in figures."""
        return looks(self.comparison, self.records.plan.baseline)

    @functools.cached_property
    def searched(self) -> dict[str, list[Tried]]:
        """The settings that were tried, by variant; see `figures.search.searched`."""
        return searched(self.records)

    @functools.cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Returns the effects of settings, where the variants are a design; see `effects.effects`."""
        return effects(self.records, self.comparison)

    @functools.cached_property
    def parts(self) -> list[tuple[Section, Table | Figure]]:
        """The sections that have something to show, with it, in order."""
        made = [(section, section.make(self)) for section in SECTIONS]
        return [(section, part) for section, part in made if part is not None]


def gather(directory: Path, method: str = "model") -> Contents:
    """Reads the records in a sweep's folder and returns the `Contents` of its report: records,
    comparison (intervals of means by `method`, "model" or "bootstrap"), verdict on the claim,
    environment and warnings.

    Raises:
      UserError: no sweep there, or a damaged record.
    """
    records = collect(directory)
    comparison = compare(records, method)
    where, verdict = environment(records.trials), judge(comparison, records.plan.claim)
    return Contents(records, comparison, verdict, where, warnings(records, comparison, where))
