"""ROUGE of a text and its reference: how many n-grams, or how long a subsequence, they share.

    ROUGE-N    F of n-grams, each counted as often as it occurs in both
    ROUGE-L    F of the words of the longest common subsequence
    F          2 m / (n + n'), m in common, n and n' in each of the two texts; 0 of two empty ones

Words are runs of letters and digits, lower-cased, as in the package rouge-score without its
stemmer, which knows ASCII only.

Source: C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

NAMES = ("rouge1", "rouge2", "rougeL")


def rouge(hypothesis: str, reference: str) -> dict[str, float]:
    """ROUGE-1, -2 and -L by `NAMES`, 0 ... 100."""
    words, gold = (re.findall(r"[^\W_]+", text.lower()) for text in (hypothesis, reference))
    scores = {f"rouge{n}": _ngram_score(words, gold, n) for n in (1, 2)}
    return {**scores, "rougeL": _f(longest_common(words, gold), len(words), len(gold))}


def rows(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, list[list[float]]]:
    """Returns, by score, a row [score, 1] for every text, whose sums give the mean."""
    by_text = [rouge(*pair) for pair in zip(hypotheses, references, strict=True)]
    return {name: [[scores[name], 1.0] for scores in by_text] for name in NAMES}


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence of two sequences of words."""
    best = np.zeros(len(second) + 1, np.int64)
    for word in first:
        longer = best.copy()
        matches = np.array([word == other for other in second], bool)
        longer[1:][matches] = best[:-1][matches] + 1
        best = np.maximum.accumulate(np.maximum(longer, best))
    return int(best[-1])


def _ngram_score(hypothesis: Sequence[str], reference: Sequence[str], n: int) -> float:
    """Returns ROUGE-n, from 0 to 100, of a hypothesis and its reference, lists of words, which is
    the F score of their common n-grams, each counted as often as it occurs in both.
    """
    counts = [
        Counter(zip(*(text[first:] for first in range(n)), strict=False))
        for text in (hypothesis, reference)
    ]
    return _f((counts[0] & counts[1]).total(), counts[0].total(), counts[1].total())


def _f(common: int, size: int, reference_size: int) -> float:
    """F, 0 ... 100, of `common` items of a text of `size` and its reference of `reference_size`."""
    return 200.0 * common / (size + reference_size) if common else 0.0
