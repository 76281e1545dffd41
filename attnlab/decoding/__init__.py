"""Decoding: greedy search, sampling and beam search over any step function, a driver over batches,
and text metrics.

Nothing here imports a model or flax: a model is a step function (`StepFn`), or a `bind(params)`
that returns one (`Functions`).
"""
