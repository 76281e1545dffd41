"""Experiments: a question, what is compared, and how the answer is found. An experiment file
imports what it needs from here.

Four rooms in the order of the work: `define` (what a file states), `plan` (`plan.json`), `run`
(trials, the choice, the one look at the test split) and `report`. Other rooms import from their
`__init__.py` only.
"""

from attnlab.experiments.define import Axis as Axis
from attnlab.experiments.define import Budget as Budget
from attnlab.experiments.define import Claim as Claim
from attnlab.experiments.define import Contrast as Contrast
from attnlab.experiments.define import Experiment as Experiment
from attnlab.experiments.define import Point as Point
from attnlab.experiments.define import Search as Search
from attnlab.experiments.define import better as better
from attnlab.experiments.define import choice as choice
from attnlab.experiments.define import cross as cross
from attnlab.experiments.define import grid as grid
from attnlab.experiments.define import integers as integers
from attnlab.experiments.define import log_uniform as log_uniform
from attnlab.experiments.define import rows as rows
from attnlab.experiments.define import uniform as uniform
from attnlab.experiments.define import zipped as zipped
