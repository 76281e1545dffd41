"""From the records to a report: statistics, verdicts, tables, pages, exports. Imports no jax.
Everything here is a pure function of the files in the folder of a sweep.
"""

from attnlab.experiments.report.across import write_across as write_across
from attnlab.experiments.report.collect import collect as collect
from attnlab.experiments.report.comparison import Comparison as Comparison
from attnlab.experiments.report.comparison import compare as compare
from attnlab.experiments.report.notes import foresight as foresight
from attnlab.experiments.report.report import keep_page as keep_page
from attnlab.experiments.report.report import write as write
from attnlab.experiments.report.tasks import write_over_tasks as write_over_tasks
from attnlab.experiments.report.trackers import TRACKERS as TRACKERS
from attnlab.experiments.report.trackers import Exported as Exported
from attnlab.experiments.report.trackers import export as export
