"""What an experiment file states, and how it is read. Needs nothing beyond Python.
`attnlab.experiments` exports the names for experiment files; planning takes the checked experiment
as plain values (`definition`).
"""

from attnlab.experiments.define.axes import SHOWN as SHOWN
from attnlab.experiments.define.axes import Axis as Axis
from attnlab.experiments.define.axes import Point as Point
from attnlab.experiments.define.axes import cross as cross
from attnlab.experiments.define.axes import grid as grid
from attnlab.experiments.define.axes import grouped as grouped
from attnlab.experiments.define.axes import layered as layered
from attnlab.experiments.define.axes import overridden as overridden
from attnlab.experiments.define.axes import rows as rows
from attnlab.experiments.define.axes import several as several
from attnlab.experiments.define.axes import short_names as short_names
from attnlab.experiments.define.axes import text as text
from attnlab.experiments.define.axes import zipped as zipped
from attnlab.experiments.define.command_line import InlineExperiment as InlineExperiment
from attnlab.experiments.define.command_line import spelt as spelt
from attnlab.experiments.define.derived import COUNTED as COUNTED
from attnlab.experiments.define.derived import check_derived as check_derived
from attnlab.experiments.define.derived import forms as forms
from attnlab.experiments.define.derived import is_derived as is_derived
from attnlab.experiments.define.derived import is_timed as is_timed
from attnlab.experiments.define.derived import reached as reached
from attnlab.experiments.define.experiment import Budget as Budget
from attnlab.experiments.define.experiment import Claim as Claim
from attnlab.experiments.define.experiment import Contrast as Contrast
from attnlab.experiments.define.experiment import Experiment as Experiment
from attnlab.experiments.define.experiment import better as better
from attnlab.experiments.define.loading import AS_IT_IS as AS_IT_IS
from attnlab.experiments.define.loading import MOST_LOOKS as MOST_LOOKS
from attnlab.experiments.define.loading import Changes as Changes
from attnlab.experiments.define.loading import default_directory as default_directory
from attnlab.experiments.define.loading import definition as definition
from attnlab.experiments.define.loading import definition_hash as definition_hash
from attnlab.experiments.define.loading import load_experiment as load_experiment
from attnlab.experiments.define.search import Range as Range
from attnlab.experiments.define.search import Search as Search
from attnlab.experiments.define.search import choice as choice
from attnlab.experiments.define.search import integers as integers
from attnlab.experiments.define.search import log_uniform as log_uniform
from attnlab.experiments.define.search import uniform as uniform
