"""Spans in tags: precision, recall and F1, as `conlleval` counts them.

A tag is O, or a letter and the kind of its span, B-X (or the letter alone, of one kind). In one
definition for all schemes, a span of X begins at B or S, or at any letter with X that does not go on
with an open span of X; it ends behind E or S (L, U and W likewise), or where the next tag does not go
on. IOB1 (B only between neighbours of a kind) and IOB2 (B at each beginning) differ in the tags that
a corpus has, not in what these mean.
Source: E. F. Tjong Kim Sang, S. Buchholz, "Introduction to the CoNLL-2000 Shared Task", CoNLL 2000.
"""

from collections.abc import Iterable, Sequence

Span = tuple[str, int, int]  # its kind, its first word, the word behind its last

SCHEMES = {"IOB": "BI", "IOBES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEW": "BMEW"}
"""The letters of each known scheme, O aside; IOB stands for IOB1 and IOB2, IOBES is BIOES too."""
_OUTSIDE, _BEGINS, _ENDS = "O", frozenset("BSUW"), frozenset("ESLUW")


def scheme(tags: Iterable[str]) -> str | None:
    """The first known scheme that tags are of; None where there is none, or all of them are O."""
    parted = [_letter_and_kind(tag) for tag in {*tags} - {_OUTSIDE}]
    letters = {letter for letter, _ in parted}
    fits = (name for name, allowed in SCHEMES.items() if letters <= {*allowed})
    return next(fits, None) if parted else None


def look_like_spans(tags: Iterable[str]) -> bool:
    """Whether tags are meant to mark spans, in whatever scheme: some are O, or begin with a letter
    and a hyphen.
    """
    return any(tag == _OUTSIDE or (tag[:1].isalpha() and tag[1:2] == "-") for tag in tags)


def spans(tags: Sequence[str]) -> set[Span]:
    """Returns the set of spans that the tags of a sentence (B-kind, I-kind, O and the like) mark:
    kind, first word and the word after the last.
    """
    closed, open_kind, first = set[Span](), None, 0
    for position, tag in enumerate([*tags, _OUTSIDE]):
        letter, kind = _letter_and_kind(tag)
        if open_kind is not None and (tag == _OUTSIDE or letter in _BEGINS or kind != open_kind):
            closed.add((open_kind, first, position))
            open_kind = None
        if tag != _OUTSIDE and open_kind is None:
            open_kind, first = kind, position
        if open_kind is not None and letter in _ENDS:
            closed.add((open_kind, first, position + 1))
            open_kind = None
    return closed


def counts(gold: Sequence[str], answered: Sequence[str]) -> tuple[int, int, int]:
    """Spans that are right, spans that were said and spans that there are."""
    answered_spans, gold_spans = spans(answered), spans(gold)
    return len(answered_spans & gold_spans), len(answered_spans), len(gold_spans)


def scores(hits: int, answered: int, gold: int) -> dict[str, float]:
    """ "precision", "recall" and "f1"; 0 where nothing was said or there is nothing."""
    precision, recall = hits / max(answered, 1), hits / max(gold, 1)
    return {"precision": precision, "recall": recall, "f1": 2 * hits / max(answered + gold, 1)}


def _letter_and_kind(tag: str) -> tuple[str, str]:
    """The letter of a tag and its kind; the whole tag where it has no letter in front."""
    return (tag[:1], tag[2:]) if tag[1:2] in ("", "-") else (tag, "")
