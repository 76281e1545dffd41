"""Spans in tags of the form B-X, I-X, O: precision, recall and F1, as `conlleval` counts them.

A span of a kind begins at B-X, or at an I-X that does not continue a span of X; it goes on with I-X.
Source: E. F. Tjong Kim Sang, S. Buchholz, "Introduction to the CoNLL-2000 Shared Task", CoNLL 2000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[str, int, int]  # its kind, its first word, the word behind its last


def in_spans(tags: Iterable[str]) -> bool:
    """Whether tags are of this form, and not all of them O."""
    every = set(tags)
    return bool(every - {"O"}) and all(tag == "O" or tag[:2] in ("B-", "I-") for tag in every)


def spans(tags: Sequence[str]) -> set[Span]:
    """The spans of a sentence."""
    found, kind, first = set[Span](), "", 0
    for at, tag in enumerate([*tags, "O"]):
        if kind and tag != f"I-{kind}":
            found.add((kind, first, at))
            kind = ""
        if tag != "O" and not kind:
            kind, first = tag[2:], at
    return found


def counts(gold: Sequence[str], said: Sequence[str]) -> tuple[int, int, int]:
    """Spans that are right, spans that were said and spans that there are."""
    right, wanted = spans(said), spans(gold)
    return len(right & wanted), len(right), len(wanted)


def scores(right: int, said: int, gold: int) -> dict[str, float]:
    """ "precision", "recall" and "f1"; 0 where nothing was said or there is nothing."""
    precision, recall = right / max(said, 1), right / max(gold, 1)
    return {"precision": precision, "recall": recall, "f1": 2 * right / max(said + gold, 1)}
