"""The parts of a report in their order: the page, the text and the terminal walk this one list. A new
part is a function that makes a table or a figure, and a line here.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnlab.experiments.report import beside, environment, sampling, tables, totals, tuning
from attnlab.experiments.report.effects import table as effects
from attnlab.experiments.report.figures.costs import costs
from attnlab.experiments.report.figures.curves import curves
from attnlab.experiments.report.figures.effects import strips
from attnlab.experiments.report.figures.maps import maps
from attnlab.experiments.report.figures.outputs import outputs
from attnlab.experiments.report.figures.search import importances, search
from attnlab.experiments.report.figures.seeds import seeds
from attnlab.pages.html import Figure
from attnlab.pages.tables import Table

if TYPE_CHECKING:
    from attnlab.experiments.report.contents import Contents


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
    Section(lambda of: seeds(of.comparison, of.looks)),
    Section(
        lambda of: tables.results(of.records, of.comparison),
        main=True,
        linked=True,
        narrow=tables.narrow,
    ),
    Section(lambda of: effects(of.effects), main=True, narrow=lambda table, _: [table]),
    Section(lambda of: strips(of.effects, of.comparison)),
    Section(lambda of: costs(of.comparison, of.looks)),
    Section(lambda of: beside.measures(of.comparison), linked=True),
    Section(lambda of: beside.validation(of.records, of.comparison), linked=True),
    Section(lambda of: curves(of.records, of.comparison, of.looks)),
    Section(lambda of: search(of.records, of.searched, of.looks)),
    Section(lambda of: importances(of.searched)),
    Section(lambda of: outputs(of.comparison, of.looks, of.records.plan.seeds[0])),
    Section(lambda of: maps(of.comparison, of.looks, of.records.plan.seeds[0])),
    Section(lambda of: sampling.table(of.comparison, of.records.plan.baseline)),
    Section(lambda of: tables.variants(of.records)),
    Section(lambda of: tuning.tried(of.records, of.comparison.method)),
    Section(lambda of: totals.table(of.records)),
    Section(lambda of: tables.trials(of.records)),
    Section(lambda of: environment.shared(of.environment, of.records)),
    Section(lambda of: environment.differing(of.environment)),
)
