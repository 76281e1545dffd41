"""Scores of text: BLEU and chrF by sacrebleu, with the signatures that make the numbers comparable,
exact match, ROUGE, and error rates.

ROUGE says how many n-grams, or how long a subsequence, a text and its reference share.

    ROUGE-N    F of n-grams, each counted as often as it occurs in both
    ROUGE-L    F of the words of the longest common subsequence
    F          2 m / (n + n'), m in common, n and n' in each of the two texts; 0 of two empty ones

Its words are runs of letters and digits, lower-cased, as in the package rouge-score without its
stemmer, which knows ASCII only.

Source: C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.errors import UserError
from attnlab.records.items import CHARACTERS

ROUGE = ("rouge1", "rouge2", "rougeL")


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> dict[str, Any]:
    """Returns by name BLEU and chrF (0 to 100) and the share of exact matches (0 to 1) of a corpus
    of detokenised sentences with one reference each, and the signatures of sacrebleu; raises
    `UserError` for no sentence or unequal numbers.

    BLEU is corpus BLEU-4 with the tokenizer "13a", exponential smoothing and without effective order
    (Post 2018). Numbers with different signatures do not belong in one column.

    Args:
      hypotheses, references: one string for each sentence.
      lowercase: compare without case.

    Returns:
      {"bleu", "chrf" in 0 ... 100, "exact" in 0 ... 1, "bleu_signature", "chrf_signature"}. A
      sentence is exact if it equals its reference, spaces at the ends apart.

    Raises:
      UserError: no hypotheses, or another number of references.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not hypotheses:
        raise UserError("there are no hypotheses to score")
    if len(references) != len(hypotheses):
        counts = f"{len(hypotheses)} hypotheses but {len(references)} references"
        raise UserError(f"{counts}: one for each is needed")
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    hits = _hits(hypotheses, references, lowercase)
    return {
        "bleu": bleu.corpus_score(list(hypotheses), [list(references)]).score,
        "chrf": chrf.corpus_score(list(hypotheses), [list(references)]).score,
        "exact": sum(hits) / len(hits),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def _hits(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool) -> list[bool]:
    """Returns which hypotheses equal their references, spaces at the ends (and case, with
    `lowercase`) apart.
    """

    def plain(text: str) -> str:
        return text.strip().lower() if lowercase else text.strip()

    return list(map(str.__eq__, map(plain, hypotheses), map(plain, references)))


def sentence_counts(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> dict[str, tuple[str, Any]]:
    """Returns for "bleu", "chrf" and "exact" the pair of a rule of `attnlab.records.items`, which
    computes the score from summed counts, and the list of the counts of each sentence, from its
    hypothesis and its reference.

    Args:
      hypotheses, references: one string for each sentence.
      lowercase: compare without case.
    """
    from sacrebleu.metrics.bleu import BLEU

    # effective_order is for single sentences; it only changes a score that is not used
    counting = BLEU(lowercase=lowercase, effective_order=True)
    pairs = [*zip(hypotheses, references, strict=True)]
    scores = [counting.sentence_score(answer, [gold]) for answer, gold in pairs]
    cased = [(answer.lower(), gold.lower()) for answer, gold in pairs] if lowercase else pairs
    return {
        "bleu": (
            "bleu",
            [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores],
        ),
        "chrf": ("chrf", [_character_counts(*pair) for pair in cased]),
        "exact": ("ratio", [[hit, 1] for hit in _hits(hypotheses, references, lowercase)]),
    }


def _character_counts(hypothesis: str, reference: str) -> list[int]:
    """Returns a flat list of three counts for each n of chrF, from 1 on: character n-grams of the
    hypothesis (0 if the reference has none), n-grams of the reference, and n-grams in common.
    Blanks do not count.
    """
    counts, texts = [], ["".join(text.split()) for text in (hypothesis, reference)]
    for order in range(1, CHARACTERS + 1):
        grams, gold = (
            Counter(text[i : i + order] for i in range(len(text) - order + 1)) for text in texts
        )
        counts += [grams.total() if gold else 0, gold.total(), (grams & gold).total()]
    return counts


def rouge(hypothesis: str, reference: str) -> dict[str, float]:
    """ROUGE-1, -2 and -L of a text and its reference by `ROUGE`, 0 ... 100."""
    words, gold = (re.findall(r"[^\W_]+", text.lower()) for text in (hypothesis, reference))
    scores = {f"rouge{n}": _ngram_score(words, gold, n) for n in (1, 2)}
    return {**scores, "rougeL": _f(lcs_length(words, gold), len(words), len(gold))}


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
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


def error_rates(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> tuple[float, float]:
    """Returns the edits per reference token over all hypotheses, each compared with its reference
    of the fewest edits per token, and the share of hypotheses that need any edit; raises
    `UserError` if there is nothing to count or the numbers of the two differ.

    Args:
      hypotheses: the tokens of each answer.
      references: at least one reference for each; the one with the fewest edits per token counts,
        the longer one if equal.

    Raises:
      UserError: no hypotheses, another number of references, or references without a token.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses and references for {len(references)}: one or more for"
            " each is needed"
        )
    counted = [edits_of(answer, gold) for answer, gold in zip(hypotheses, references, strict=True)]
    edits, tokens = (sum(column) for column in zip(*counted, strict=True))
    if not tokens:
        raise UserError("the references have no token, so there is no rate of errors")
    return edits / tokens, sum(fewest > 0 for fewest, _ in counted) / len(hypotheses)


def edits_of(answer: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, int]:
    """The number of edits from an answer to its nearest reference, and the length of that
    reference; see `error_rates`.
    """
    counted = [(edit_distance(answer, reference), len(reference)) for reference in references]
    return min(counted, key=lambda pair: (pair[0] / max(pair[1], 1), -pair[1]))


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the fewest insertions, deletions and replacements that turn one sequence into the
    other (Levenshtein 1966).
    """
    row = list(range(len(second) + 1))
    for i, token in enumerate(first, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (token != other))
    return row[-1]
