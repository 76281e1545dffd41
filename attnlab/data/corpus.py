"""Pairs of texts, source and target, as ids."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from attnlab.data.columns import Examples
from attnlab.data.dataset import Dataset, Split, fingerprint_of_texts
from attnlab.data.learned import SIDES, Learned
from attnlab.data.vocabulary import Vocabulary

Pair = tuple[str, str]


class Corpus(Dataset[Pair]):
    """The data of a run of translation and the like; rows are (source, target) texts, the references of
    an evaluation, and columns "source" and "target".
    """

    method = "pairs"
    things: ClassVar[str] = "pairs"

    def texts_of(self, train: Sequence[Pair]) -> Iterable[str]:
        """See `Dataset.texts_of`: those of both sides."""
        return itertools.chain.from_iterable(train)

    def learn(self, by_split: Mapping[str, Sequence[Pair]]) -> Learned:
        """Trains one vocabulary for both sides of the training pairs, or one for each side, as the
        settings say, and returns a `Learned` with them. See `Dataset.learn`.
        """
        if self.settings.shared:
            return super().learn(by_split)
        settings = self.settings.arguments, self.settings.target_arguments
        source, target = (
            Vocabulary.train((pair[side] for pair in by_split["train"]), **arguments)
            for side, arguments in enumerate(settings)
        )
        return Learned(source=source, target=target)

    def encoded(self, rows: Sequence[Pair], split: str) -> Split:
        """See `Dataset.encoded`."""
        return Split(rows, encode(self.learned.vocabularies, rows), fingerprint_of_texts(rows))

    def counts(self, split: str) -> dict[str, int]:
        """Returns as a dict the number of pairs of a split and, for each side, the numbers of its
        tokens (EOS included) and unknown tokens and the length of its longest text, such as
        "source_longest".
        """
        counts = {"pairs": len(self.examples[split])}
        for side, vocabulary in zip(SIDES, self.learned.vocabularies, strict=True):
            packed = self.examples[split].packed(side)
            counts |= {
                f"{side}_tokens": len(packed.ids),
                f"{side}_unknown": vocabulary.special.unknown(packed.ids),
                f"{side}_longest": int(packed.lengths.max()),
            }
        return counts

    def about(self, split: str) -> str:
        """Returns one line of text with the numbers of pairs, and of tokens and unknown tokens per
        side, of a split.
        """
        counts = self.counts(split)
        sides = (
            f"{side} {counts[f'{side}_tokens']:,} tokens ({counts[f'{side}_unknown']:,} unknown)"
            for side in SIDES
        )
        return f"{counts['pairs']:,} pairs, {', '.join(sides)}"


def encode(vocabularies: tuple[Vocabulary, Vocabulary], pairs: Sequence[Pair]) -> Examples:
    """Encodes pairs of texts with the vocabularies of both sides and returns `Examples` with the
    columns "source" and "target", each text as ids with the vocabulary's opening ids in front and
    EOS at the end. For sentences without a translation, give "" as their target.
    """
    source, target = (
        vocabulary.packed((pair[side] for pair in pairs), vocabulary.special.front)
        for side, vocabulary in enumerate(vocabularies)
    )
    return Examples(source=source, target=target)
