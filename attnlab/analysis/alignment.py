"""Word alignments: links read off attention weights, gold links, and the alignment error rate.

A link is (i, j): source word i and target word j belong together, both counted from 0. Axis
letters: S source length, T target length, in pieces or in words; P pieces, W words of one sentence.

Source: F. J. Och, H. Ney, "A Systematic Comparison of Various Statistical Alignment Models",
Computational Linguistics 2003 (error rate, sure and possible links); M.-T. Luong, H. Pham, C. D.
Manning, "Effective Approaches to Attention-based Neural Machine Translation", EMNLP 2015 (one link
for each target word, by the largest weight of a forced decoding).
"""

import dataclasses
import re
from collections.abc import Hashable, Iterable, Sequence, Set
from pathlib import Path

import numpy as np

from attnlab.data.files import read_lines
from attnlab.data.vocabulary import Marks
from attnlab.errors import UserError

Link = tuple[int, int]

# the signs for a blank in pieces: before a word, and alone (vocabularies of characters)
_BLANKS = "\u2581\u2423"


@dataclasses.dataclass(frozen=True)
class Gold:
    """The links that people drew for one sentence pair.

    Attributes:
      sure: links that are certain.
      possible: links that may exist; they include the sure ones.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    def flipped(self) -> "Gold":
        """The same links with source and target exchanged."""
        return Gold(*(frozenset((j, i) for i, j in links) for links in (self.sure, self.possible)))


def read_gold(path: str | Path) -> list[Gold]:
    """Reads a file of gold word alignments and returns a `Gold` (sure and possible links) for each
    line, that is for each sentence pair; raises `UserError` for a word that is no link such as 3-4
    or 3p4.

    A line holds `i-j` for a sure and `ipj` for a merely possible link, separated by blanks; i
    counts the words of the first language of the file, j those of the second.

    Raises:
      UserError: the file cannot be read, or a line (named) is something else.
    """
    golds = []
    for number, line in enumerate(read_lines(Path(path)), 1):
        kinds: dict[str, set[Link]] = {"-": set(), "p": set()}
        for word in line.split():
            match = re.fullmatch(r"(\d+)([-p])(\d+)", word, re.ASCII)
            if match is None:
                raise UserError(
                    f"{path}, line {number}: {word!r} is no link; write 3-4 for a sure one, 3p4 for"
                    " a possible one"
                )
            kinds[match[2]].add((int(match[1]), int(match[3])))
        golds.append(Gold(frozenset(kinds["-"]), frozenset(kinds["-"] | kinds["p"])))
    return golds


def error_rate(links: Set[Hashable], sure: Set[Hashable], possible: Set[Hashable]) -> float:
    """Computes the alignment error rate 1 - (|A & S| + |A & P|) / (|A| + |S|), from 0 (best) to 1,
    of the links A with sure links S and possible links P.

    The sure links S count as possible too, whether or not `possible` repeats them. For a corpus
    give the links of all its sentences at once (`pooled`): the mean over sentences is another
    number.

    Returns:
      0 if no link was found and none is sure.
    """
    if not links and not sure:
        return 0.0
    return 1.0 - (len(links & sure) + len(links & (possible | sure))) / (len(links) + len(sure))


def precision(links: Set[Hashable], gold: Set[Hashable]) -> float:
    """Returns the share of `links` that is in `gold`, 1 if there are no links; recall is
    `precision(sure, links)`.
    """
    return len(links & gold) / len(links) if links else 1.0


def pooled(sentences: Iterable[Iterable[Link]]) -> set[tuple[int, int, int]]:
    """The links (i, j) of sentences n = 0, 1, ... as (n, i, j)."""
    return {(n, i, j) for n, links in enumerate(sentences) for i, j in links}


def links(weights: np.ndarray) -> set[Link]:
    """Returns one link (i, j) for each target word j: to the source word i with the largest of the
    `weights` [T,S], the first of equals.

    Args:
      weights: [T,S]. A row of zeros gets no link.
    """
    return {(int(row.argmax()), j) for j, row in enumerate(weights) if row.any()}


def head_error_rates(maps: Iterable[np.ndarray], golds: Sequence[Gold]) -> list[float]:
    """Computes the alignment error rate of each head over a corpus, by the links of its largest
    weights.

    Args:
      maps: [H,T,S] between words, of each sentence pair; see `word_weights`.
      golds: of the sentence pairs.
    """
    sure, possible = pooled(gold.sure for gold in golds), pooled(gold.possible for gold in golds)
    by_head = zip(*([links(head) for head in weights] for weights in maps), strict=True)
    return [error_rate(pooled(sentences), sure, possible) for sentences in by_head]


def diagonal(target: int, source: int) -> set[Link]:
    """Returns the links of a baseline that uses only the lengths: target word j is linked to source
    word floor((j + 1/2) source / target).
    """
    return {((2 * j + 1) * source // (2 * target), j) for j in range(target)}


def chance(golds: Sequence[Gold], lengths: Sequence[tuple[int, int]]) -> float:
    """Returns the expected alignment error rate of a corpus if each target word is linked to a
    source word drawn at random; `golds` are the right links, `lengths` the numbers (source, target)
    of words of each sentence pair; 0 without pairs.

    Every word is linked once, so the denominator is fixed and the expectation exact.

    Args:
      golds: of the sentence pairs.
      lengths: (source words, target words) of each; none may be 0.
    """
    hits = sum(
        (len(gold.sure) + len(gold.possible)) / source
        for gold, (source, _) in zip(golds, lengths, strict=True)
    )
    tries = sum(target for _, target in lengths) + sum(len(gold.sure) for gold in golds)
    return 1.0 - hits / tries if tries else 0.0


def word_weights(weights: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Computes attention between words [W',W] from attention between pieces [T,S]: summed over the
    pieces of a source word, averaged over those of a target word.

    The weights of the pieces of a source word are summed. The rows of the pieces of a target word
    are averaged. The weight of the source's end mark belongs to no word and is dropped, so a row
    may sum to less than 1.

    Args:
      weights: [T,S] between pieces, or [H,T,S] of several heads.
      source, target: `membership` of both sides, [S,W] and [T,W'].

    Returns:
      [W',W], or [H,W',W].
    """
    averaging = target / np.maximum(target.sum(axis=0), 1e-9)
    return averaging.T @ weights @ source


def membership(pieces: Sequence[str], words: Sequence[str], marks: Marks) -> np.ndarray:
    """Returns a matrix [P,W] of the share of each piece (token) of a sentence that belongs to each
    word, by matching characters; `marks` are the unknown and the silent pieces; raises `ValueError`
    if the pieces do not spell the words.

    Pieces and words are matched by their characters without blanks, so the text of the pieces may
    have other blanks ("l'homme" for the words "l'" and "homme"). A piece that covers several words
    is divided by characters. A single blank belongs to the word after it; begin, end and padding
    belong to no word. An unknown piece matches as few characters as possible.

    Args:
      pieces: as `Vocabulary.tokens` shows them.
      words: normalized as the vocabulary does (`Vocabulary.normalize`).
      marks: the vocabulary's, see `Vocabulary.marks`.

    Returns:
      [P,W]; a row sums to 1, or to 0 for marks that belong to no word.

    Raises:
      ValueError: the pieces do not spell the words.
    """
    text = "".join(words)
    owner = np.repeat(np.arange(len(words)), [len(word) for word in words])
    inside = [piece not in marks.silent for piece in pieces]
    spelt = [piece for piece, counts in zip(pieces, inside, strict=True) if counts]
    match = re.fullmatch(_spelling(spelt, marks.unknown), text)
    if match is None:
        raise ValueError(f"the pieces {list(pieces)} do not spell the words {list(words)}")
    shares = np.zeros((len(pieces), len(words)))
    for group, piece in enumerate(np.flatnonzero(inside), 1):
        begin, end = match.span(group)
        # a piece without characters belongs to the word that follows
        covered = owner[begin : max(end, begin + 1)]
        shares[piece] = np.bincount(covered, minlength=len(words)) / max(len(covered), 1)
    return shares


def _spelling(pieces: Sequence[str], unknown: str | None) -> str:
    """Returns a regular expression that matches the text of the pieces (tokens), with one group for
    each; a piece equal to `unknown` matches any characters. What follows an unknown one is taken
    where it first stands, for good (`?>`), but for the last, which must reach the end: else a text
    that does not match takes time exponential in the unknown ones.
    """
    parts = [""]
    for piece in pieces:
        parts += [""] * (piece == unknown)
        parts[-1] += "(.+?)" if piece == unknown else f"({re.escape(piece.strip(_BLANKS))})"
    return "".join(f"(?>{part})" for part in parts[:-1]) + parts[-1]
