"""The parts of a report in their order: the page, the text and the terminal walk this one list. A new
part is a function that makes a table or a figure, and a line here.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnlab.experiments.report import beside, effects, environment, sampling, tables, totals
from attnlab.experiments.report.figures import costs, curves, maps, outputs, search, seeds
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
    Section(lambda of: outputs.outputs(of.comparison, of.looks, of.records.plan.seeds[0])),
    Section(lambda of: maps.maps(of.comparison, of.looks, of.records.plan.seeds[0])),
    Section(lambda of: sampling.table(of.comparison, of.records.plan.baseline)),
    Section(lambda of: tables.variants(of.records)),
    Section(lambda of: tables.tried(of.records, of.comparison.method)),
    Section(lambda of: totals.table(of.records)),
    Section(lambda of: tables.trials(of.records)),
    Section(lambda of: environment.shared(of.environment, of.records)),
    Section(lambda of: environment.differing(of.environment)),
)
