"""Numbers by a rule of whole numbers, so that golden numbers and tests have the same parameters
without any file that holds them: SplitMix64 (Steele et al. 2014) of a place and a name.

Needs NumPy only; `golden.py`, which runs beside torch, imports it too.
"""

import math
import zlib
from collections.abc import Sequence

import numpy as np

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def uniform(name: str, shape: Sequence[int]) -> np.ndarray:
    """Numbers of [-1, 1) with 24 bits each, float32; the same for a name and a shape for ever."""
    count = math.prod(shape)
    place = np.arange(1, count + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = (place + np.uint64(zlib.crc32(name.encode()) << 32)) * np.uint64(_STEP)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_FIRST)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_SECOND)
        x = x ^ (x >> np.uint64(31))
    bits = (x >> np.uint64(40)).astype(np.int64)
    return ((bits - 2**23) / 2**23).astype(np.float32).reshape(shape)


def parameter(name: str, shape: Sequence[int]) -> np.ndarray:
    """A parameter of a model: norms about 1 (all vectors called weight) and variances, biases that
    are not 0, matrices so large that attention is not flat, and windows of deviation 1 / sqrt(inputs),
    so that deep networks do not overflow; float32.
    """
    numbers = uniform(name, shape)
    if len(shape) == 4:
        return (numbers * np.float32((3 / math.prod(shape[1:])) ** 0.5)).astype(np.float32)
    if len(shape) > 1:
        return (numbers * np.float32(0.45)).astype(np.float32)
    if name.endswith(("weight", "running_var")):
        return (1 + numbers * np.float32(0.3)).astype(np.float32)
    return (numbers * np.float32(0.2)).astype(np.float32)


def tokens(vocabulary: int, rows: int, length: int) -> np.ndarray:
    """A batch of ids [rows, length] int32."""
    part = (uniform("tokens", (rows, length)) + 1) / 2
    return (part * vocabulary).astype(np.int32)
