"""Decoding: greedy search, sampling and beam search over any step function, a driver over batches,
and text metrics.

Nothing here imports a model or flax: a model is a step function (`StepFn`), or a `bind(params)`
that returns one (`Functions`).
"""

from attnlab.decoding.beam import beam_search
from attnlab.decoding.generate import Bind, Decoded, Decoder, Functions, decode
from attnlab.decoding.greedy import greedy
from attnlab.decoding.hypotheses import Hypotheses, StepFn
from attnlab.decoding.metrics import corpus_scores
from attnlab.decoding.sampling import sample
from attnlab.decoding.scoring import coverage_penalty, length_penalty
from attnlab.decoding.settings import METHODS, Settings, validate

__all__ = [
    "METHODS",
    "Bind",
    "Decoded",
    "Decoder",
    "Functions",
    "Hypotheses",
    "Settings",
    "StepFn",
    "beam_search",
    "corpus_scores",
    "coverage_penalty",
    "decode",
    "greedy",
    "length_penalty",
    "sample",
    "validate",
]
