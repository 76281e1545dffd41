"""From an experiment to `plan.json`: every candidate resolved, checked and counted. Imports no jax.

`ensure`, `draft` and `grow` start the process that plans (`process.py`), which needs jax; `Plan` is
what it writes.
"""

from attnlab.experiments.plan.candidate import Candidate, Trial
from attnlab.experiments.plan.client import draft, ensure, grow
from attnlab.experiments.plan.plan import Plan, fix_cores, locked

__all__ = ["Candidate", "Plan", "Trial", "draft", "ensure", "fix_cores", "grow", "locked"]
