"""Training: one loop, one step function, one file of parallelism, and everything that keeps a run
from being lost.
"""
