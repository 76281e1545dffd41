"""What a report is made from, and its parts in their order: the page, the text and the terminal
walk this one list. A new part is a function that makes a table or a figure, and a line in
`SECTIONS`.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from attnlab.experiments.report import beside, effects, environment, tables, totals
from attnlab.experiments.report.collect import Records, collect
from attnlab.experiments.report.comparison import Comparison, compare
from attnlab.experiments.report.effects import Effect
from attnlab.experiments.report.environment import Environment
from attnlab.experiments.report.figures import costs, curves, examples, search, seeds
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.search import Tried
from attnlab.experiments.report.verdict import Verdict, judge
from attnlab.experiments.report.warnings import Warned, warnings
from attnlab.experiments.run import counts
from attnlab.pages.html import Figure
from attnlab.pages.svg import Look
from attnlab.pages.tables import Table

NO_CLAIM = "no claim was stated"


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
      make: the table or figure; None where there is nothing to show. Figures are in the page alone.
      main: a table that is never folded.
      linked: a table whose rows are those of the comparison, which figures refer to by number.
      narrow: the table as the terminal shows it, of a table and the baseline; None where it does
        not.
    """

    make: "Callable[[Contents], Table | Figure | None]"
    main: bool = False
    linked: bool = False
    narrow: Callable[[Table, str], list[Table]] | None = None


SECTIONS = (
    Section(lambda of: tables.contrasts(of.verdict), main=True),
    Section(lambda of: seeds.seeds(of.comparison, of.looks)),
    Section(
        lambda of: tables.results(of.records, of.comparison),
        main=True,
        linked=True,
        narrow=tables.narrow,
    ),
    Section(lambda of: effects.table(of.effects), main=True, narrow=lambda table, _: [table]),
    Section(lambda of: seeds.strips(of.effects, of.comparison)),
    Section(lambda of: costs.costs(of.comparison, of.looks)),
    Section(lambda of: beside.measures(of.comparison), linked=True),
    Section(lambda of: beside.validation(of.records, of.comparison), linked=True),
    Section(lambda of: curves.curves(of.records, of.comparison, of.looks)),
    Section(lambda of: search.search(of.records, of.searched, of.looks)),
    Section(lambda of: search.importances(of.searched)),
    Section(lambda of: examples.outputs(of.comparison, of.looks, of.records.plan.seeds[0])),
    Section(lambda of: examples.maps(of.comparison, of.looks, of.records.plan.seeds[0])),
    Section(lambda of: beside.over_examples(of.comparison, of.records.plan.baseline)),
    Section(lambda of: tables.variants(of.records)),
    Section(lambda of: tables.tried(of.records, of.comparison.method)),
    Section(lambda of: totals.table(of.records)),
    Section(lambda of: tables.trials(of.records)),
    Section(lambda of: environment.shared(of.environment, of.records)),
    Section(lambda of: environment.differing(of.environment)),
)


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
        return search.searched(self.records)

    @functools.cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Returns the effects of settings, where the variants are a design; see `effects.effects`."""
        return effects.effects(self.records, self.comparison)

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
    where = environment.environment(records.trials)
    verdict = judge(comparison, records.plan.claim)
    return Contents(records, comparison, verdict, where, warnings(records, comparison, where))
