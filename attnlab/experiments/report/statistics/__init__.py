"""Statistics of differences over seeds and over test examples. Pure functions of numbers; numpy and
scipy are imported when they are called.

  family   variants on one measure: means, differences to a baseline (Dunnett), all pairs (Tukey), claims
  scale    bounds of the measure, and how many test examples it counts
  planned  the differences that numbers of seeds find, and the level of each look that is planned
  items    two systems over test examples: paired bootstrap and approximate randomisation

How the method was chosen, with its measured error rates: docs/report.md and
benchmarks/statistics.py.
"""
