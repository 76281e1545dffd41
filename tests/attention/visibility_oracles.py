"""Who sees whom, said pair by pair in plain Python: every rule and some combinations beside a
predicate (row, head, i, j) -> bool.
"""

import itertools
from collections.abc import Callable, Iterable

import numpy as np

from attnlab.attention.visibility import (
    Causal,
    Dense,
    Everything,
    Global,
    Local,
    PerHead,
    Prefix,
    RandomBlocks,
    Rule,
    Segments,
    Stride,
    Summary,
    Window,
    bigbird,
    dilated,
    longformer,
    prefix_lm,
    sparse_fixed,
    sparse_strided,
)
from attnlab.attention.visibility.sparse import draw

Predicate = Callable[[int, int, int, int], bool]

ROWS, HEADS, T = 2, 2, 9
_RNG = np.random.default_rng(0)
IDS = np.array([[0, 0, 0, 1, 1, 2, 2, 2, 2], [3, 3, 1, 1, 1, 1, 1, 1, 3]], np.int32)
MARKS = _RNG.random((ROWS, T)) < 0.2
LENGTHS = np.array([2, 5], np.int32)
DENSE = _RNG.random((ROWS, HEADS, T, T)) < 0.4
BLOCKS = draw(T, 2, HEADS, 7)


def cases() -> dict[str, tuple[Rule, Predicate]]:
    """Every rule and some combinations, made anew, each beside its predicate."""
    return {
        "everything": (Everything(), lambda b, h, i, j: True),
        "causal": (Causal(), lambda b, h, i, j: j <= i),
        "window": (Window(3), lambda b, h, i, j: j in (i - 2, i - 1, i, i + 1, i + 2)),
        "stride": (Stride(3), lambda b, h, i, j: any(j == i + 3 * m for m in range(-T, T))),
        "local": (Local(4), lambda b, h, i, j: j in range(i - i % 4, i - i % 4 + 4)),
        "neighbours": (Local(2, 1), lambda b, h, i, j: j in range(i - i % 2 - 2, i - i % 2 + 4)),
        "summary": (Summary(4, 2), lambda b, h, i, j: j in (2, 3, 6, 7)),
        "turned summary": (Summary(5, 2, turn=1), lambda b, h, i, j: j in (1, 2, 6, 7)),
        "prefix": (Prefix(4), lambda b, h, i, j: j in (0, 1, 2, 3)),
        "global": (Global((0, 5)), lambda b, h, i, j: i in (0, 5) or j in (0, 5)),
        "random": (RandomBlocks(T, 1, 2, HEADS, 7), lambda b, h, i, j: bool(BLOCKS[h, i, j])),
        "dilated": (dilated(3, 2), lambda b, h, i, j: j in (i - 4, i - 2, i, i + 2, i + 4)),
        "sliding": (Causal() & Window(3), lambda b, h, i, j: j in (i - 2, i - 1, i)),
        "prefixes": (Prefix(3, LENGTHS), lambda b, h, i, j: j < max(3, LENGTHS[b])),
        "segments": (Segments(IDS), lambda b, h, i, j: IDS[b, i] == IDS[b, j]),
        "dense": (Dense(DENSE), lambda b, h, i, j: bool(DENSE[b, h, i, j])),
        "dense keys": (Dense(DENSE[:, :1, :1]), lambda b, h, i, j: bool(DENSE[b, 0, 0, j])),
        "dense queries": (Dense(DENSE[0, 0, :, :1]), lambda b, h, i, j: bool(DENSE[0, 0, i, 0])),
        "marked": (
            Global((4,), MARKS),
            lambda b, h, i, j: i == 4 or j == 4 or bool(MARKS[b, i] or MARKS[b, j]),
        ),
        "per head": (
            PerHead((Window(2), dilated(2, 3))),
            lambda b, h, i, j: abs(i - j) in ((0, 1), (0, 3))[h],
        ),
        "prefix-LM": (prefix_lm(3), lambda b, h, i, j: j <= i or j < 3),
        "prefix-LM by row": (prefix_lm(LENGTHS), lambda b, h, i, j: j <= i or j < LENGTHS[b]),
        "longformer": (longformer(4, (2,)), lambda b, h, i, j: abs(i - j) <= 2 or 2 in (i, j)),
        "dilated longformer": (
            longformer(2, MARKS, 3),
            lambda b, h, i, j: abs(i - j) in (0, 3) or bool(MARKS[b, i] or MARKS[b, j]),
        ),
        "bigbird": (bigbird(T, HEADS, block=2, random=1, seed=3), _bigbird),
        "strided": (
            sparse_strided(3),
            lambda b, h, i, j: i - 3 < j <= i or (j <= i and (i - j) % 3 == 0),
        ),
        "fixed": (
            sparse_fixed(4, 1),
            lambda b, h, i, j: j <= i and (j // 4 == i // 4 or j % 4 >= 3),
        ),
        "factorised": (
            Causal() & PerHead((Window(3), Stride(3))),
            lambda b, h, i, j: j <= i and (i - j < 3, (i - j) % 3 == 0)[h],
        ),
        "packed": (Segments(IDS) & Causal(), lambda b, h, i, j: j <= i and IDS[b, i] == IDS[b, j]),
        "mixed": (
            Causal() & (Local(3) | Global((1,))),
            lambda b, h, i, j: j <= i and (j // 3 == i // 3 or 1 in (i, j)),
        ),
        "nested": (
            (Causal() | Dense(DENSE)) & (Window(4) | Segments(IDS) & Stride(2)),
            lambda b, h, i, j: (
                (j <= i or DENSE[b, h, i, j])
                and (abs(i - j) < 4 or (IDS[b, i] == IDS[b, j] and (i - j) % 2 == 0))
            ),
        ),
    }


def mask(
    predicate: Predicate, i: Iterable[int] = range(T), j: Iterable[int] = range(T)
) -> np.ndarray:
    """[ROWS,HEADS,len(i),len(j)] bool, asking the predicate about every pair."""
    i, j = list(i), list(j)
    asked = [
        predicate(b, h, q, k) for b, h, q, k in itertools.product(range(ROWS), range(HEADS), i, j)
    ]
    return np.array(asked, bool).reshape(ROWS, HEADS, len(i), len(j))


def _bigbird(b: int, h: int, i: int, j: int) -> bool:
    """Five blocks of two, the last of one: only rows 1 and 3 have somebody to draw, and with one
    draw it is the only one there.
    """
    row, column = i // 2, j // 2
    return abs(row - column) <= 1 or bool({row, column} & {0, 4}) or {row, column} == {1, 3}


CASES_BY_NAME = cases()
