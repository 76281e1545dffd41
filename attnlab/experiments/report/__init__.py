"""From the records to a report: statistics, verdicts, tables, pages, exports. Imports no jax.
Everything here is a pure function of the files in the folder of a sweep.
"""

from attnlab.experiments.report.across import write_across
from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import Comparison, compare
from attnlab.experiments.report.foresight import foresight
from attnlab.experiments.report.live_page import keep_page
from attnlab.experiments.report.report import write
from attnlab.experiments.report.tasks import write_over_tasks
from attnlab.experiments.report.trackers import TRACKERS, Exported, export

__all__ = [
    "TRACKERS",
    "Comparison",
    "Exported",
    "collect",
    "compare",
    "export",
    "foresight",
    "keep_page",
    "write",
    "write_across",
    "write_over_tasks",
]
