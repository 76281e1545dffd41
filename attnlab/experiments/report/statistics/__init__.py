"""Statistics of differences over seeds and over test examples. Pure functions of numbers; numpy and
scipy are imported when they are called.

  Family   variants on one measure: means, differences to a baseline (Dunnett), all pairs (Tukey), claims, power
  Scale    bounds of the measure, and how many test examples it counts
  compare  two systems over test examples: paired bootstrap and approximate randomisation
  spent    the level of each look, for those who add seeds until satisfied

How the method was chosen, with its measured error rates: docs/report.md and
benchmarks/statistics.py.
"""

from attnlab.experiments.report.statistics.family import AGREE as AGREE
from attnlab.experiments.report.statistics.family import ALPHA as ALPHA
from attnlab.experiments.report.statistics.family import INCLUDES as INCLUDES
from attnlab.experiments.report.statistics.family import ONE_SEED as ONE_SEED
from attnlab.experiments.report.statistics.family import REFUTED as REFUTED
from attnlab.experiments.report.statistics.family import SUPPORTED as SUPPORTED
from attnlab.experiments.report.statistics.family import TIE as TIE
from attnlab.experiments.report.statistics.family import UNDECIDED as UNDECIDED
from attnlab.experiments.report.statistics.family import Decision as Decision
from attnlab.experiments.report.statistics.family import Difference as Difference
from attnlab.experiments.report.statistics.family import Family as Family
from attnlab.experiments.report.statistics.family import Share as Share
from attnlab.experiments.report.statistics.family import Summary as Summary
from attnlab.experiments.report.statistics.family import conjunction as conjunction
from attnlab.experiments.report.statistics.items import Sampled as Sampled
from attnlab.experiments.report.statistics.items import compare as compare
from attnlab.experiments.report.statistics.items import mean_score as mean_score
from attnlab.experiments.report.statistics.looks import spent as spent
from attnlab.experiments.report.statistics.power import CHANCE as CHANCE
from attnlab.experiments.report.statistics.power import chance_to_find as chance_to_find
from attnlab.experiments.report.statistics.power import detectable as detectable
from attnlab.experiments.report.statistics.power import seeds_needed as seeds_needed
from attnlab.experiments.report.statistics.scale import UNBOUNDED as UNBOUNDED
from attnlab.experiments.report.statistics.scale import Interval as Interval
from attnlab.experiments.report.statistics.scale import Scale as Scale
