"""ROUGE of a text and its reference: how many n-grams, or how long a subsequence, they share.

    ROUGE-N    F of n-grams, each counted as often as it occurs in both
    ROUGE-L    F of the words of the longest common subsequence
    F          2 m / (n + n'), m in common, n and n' in each of the two texts; 0 of two empty ones

Words are runs of letters and digits, lower-cased, as in the package rouge-score without its
stemmer, which knows ASCII only.

Source: C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

NAMES = ("rouge1", "rouge2", "rougeL")


def rouge(hypothesis: str, reference: str) -> dict[str, float]:
    """ROUGE-1, -2 and -L by `NAMES`, 0 ... 100."""
    ours, theirs = (re.findall(r"[^\W_]+", text.lower()) for text in (hypothesis, reference))
    scores = {f"rouge{n}": _ngram_score(ours, theirs, n) for n in (1, 2)}
    return {**scores, "rougeL": _f(longest_common(ours, theirs), len(ours), len(theirs))}


def rows(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, list[list[float]]]:
    """Of each score [score, 1] for every text, whose sums give the mean."""
    each = [rouge(*pair) for pair in zip(hypotheses, references, strict=True)]
    return {name: [[scores[name], 1.0] for scores in each] for name in NAMES}


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence of two sequences of words."""
    best = np.zeros(len(second) + 1, np.int64)
    for word in first:
        after = best.copy()
        matches = np.array([word == each for each in second], bool)
        after[1:][matches] = best[:-1][matches] + 1
        best = np.maximum.accumulate(np.maximum(after, best))
    return int(best[-1])


def _ngram_score(ours: Sequence[str], theirs: Sequence[str], n: int) -> float:
    """Computes ROUGE-n, from 0 to 100, of two texts given as words: F of the n-grams in common,
    each counted as often as it occurs in both.
    """
    counts = [
        Counter(zip(*(words[first:] for first in range(n)), strict=False))
        for words in (ours, theirs)
    ]
    return _f((counts[0] & counts[1]).total(), counts[0].total(), counts[1].total())


def _f(common: int, ours: int, theirs: int) -> float:
    """F of what two texts have in common, 0 ... 100, given how much each has."""
    return 200.0 * common / (ours + theirs) if common else 0.0
