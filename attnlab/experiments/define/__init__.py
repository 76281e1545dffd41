"""What an experiment file states, and how it is read. Needs nothing beyond Python.
`attnlab.experiments` exports the names for experiment files; planning takes the checked experiment
as plain values (`definition`).
"""

from attnlab.experiments.define.axes import (
    SHOWN,
    Axis,
    Point,
    cross,
    flattened,
    grid,
    rows,
    several,
    text,
    zipped,
)
from attnlab.experiments.define.derived import (
    COUNTED,
    check_derived,
    forms,
    is_derived,
    is_timed,
    reached,
)
from attnlab.experiments.define.experiment import Budget, Claim, Contrast, Experiment, better
from attnlab.experiments.define.inline import InlineExperiment
from attnlab.experiments.define.loading import (
    AS_IT_IS,
    MOST_LOOKS,
    Changes,
    definition,
    definition_hash,
    load_experiment,
)
from attnlab.experiments.define.search import Range, Search, choice, integers, log_uniform, uniform
from attnlab.experiments.define.typed import same, spelt, typed

__all__ = [
    "AS_IT_IS",
    "COUNTED",
    "MOST_LOOKS",
    "SHOWN",
    "Axis",
    "Budget",
    "Changes",
    "Claim",
    "Contrast",
    "Experiment",
    "InlineExperiment",
    "Point",
    "Range",
    "Search",
    "better",
    "check_derived",
    "choice",
    "cross",
    "definition",
    "definition_hash",
    "flattened",
    "forms",
    "grid",
    "integers",
    "is_derived",
    "is_timed",
    "load_experiment",
    "log_uniform",
    "reached",
    "rows",
    "same",
    "several",
    "spelt",
    "text",
    "typed",
    "uniform",
    "zipped",
]
