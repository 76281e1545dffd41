"""Made-up sentences with a tag and a head for every word: who is one, who are many?

    the/DET-many big/ADJ-many foxes/NOUN-many will/AUX-many see/VERB-many a/DET-one cat/NOUN-one

These are source sentences of `grammar`. "the", adjectives, "will" and the verb behind it look the
same for one and for many, so their tags must be told from a noun that may stand far off: below a
determiner or adjective's own noun, or the subject of a verb. The heads lead there.
"""

import random
from dataclasses import dataclass

from attnlab.data import grammar
from attnlab.data.generated import Sized
from attnlab.data.tagged import ROOT, Sentence

_KINDS = {"determiner": "DET", "adjective": "ADJ", "noun": "NOUN", "will": "AUX", "verb": "VERB"}


@dataclass(frozen=True)
class Agreement(Sized):
    """Sentences of the grammar, no two alike, with tags of kind and number and with trees.

    A sentence's split follows from its own hash (90/5/5), as that of the grammar's does.

    Attributes:
      depth: how deep relative clauses may nest; 0 for none.
    """

    depth: int = 1

    def tagged(self, split: str) -> list[Sentence]:
        """Draws the sentences of `split`, each with its tags and heads, all different and none in
        two splits.
        """
        draw = random.Random(f"agreement {self.seed} {split}")
        rows = self.apart(split, lambda: with_tags(grammar.sample(draw, self.depth)), _text, _text)
        return list(rows)


def _text(sentence: Sentence) -> str:
    return " ".join(sentence.words)


def with_tags(sentence: grammar.Sentence) -> Sentence:
    """Returns the source words of a grammar sentence as a `Sentence`, each word with its tag
    ("ADV", "PRON", or its kind and number such as "NOUN-many") and the position of its head, `ROOT`
    for none.
    """
    words = grammar.source_words(sentence)
    origins = [origin for _, origin in words]
    positions = {origin: position for position, origin in enumerate(origins)}
    plural = {"s": sentence.subject.plural, "p": sentence.subject.plural}
    _mark_plurals(sentence.subject, "s", plural)
    if sentence.clause.object is not None:
        plural["p.o"] = sentence.clause.object.plural
        _mark_plurals(sentence.clause.object, "p.o", plural)
    tags, heads = [], []
    for origin in origins:
        phrase, _, part = origin.rpartition(".")
        kind = _KINDS.get(part.rstrip("0123456789"))
        number = "many" if plural.get(phrase) else "one"
        tags.append({"adverb": "ADV", "that": "PRON"}.get(part, f"{kind}-{number}"))
        heads.append(positions.get(_head(phrase, part), ROOT))
    return Sentence(tuple(word for word, _ in words), tuple(tags), tuple(heads))


def _head(phrase: str, part: str) -> str:
    """Returns the origin of the head, in the dependency tree, of the word whose origin is
    `phrase`.`part` (a path in the sentence such as "s.r.verb", see `grammar.source_words`); "" for
    the root.
    """
    if part == "adverb":
        return "p.verb"
    if part == "that":
        return f"{phrase}.r.verb"
    if part == "will":
        return f"{phrase}.verb"
    if part == "verb":  # of a relative clause: the noun that it is about
        return f"{phrase.removesuffix('.r')}.noun" if phrase != "p" else ""
    if part == "noun":
        return "p.verb" if phrase == "s" else f"{phrase.removesuffix('.o')}.verb"
    return f"{phrase}.noun"


def _mark_plurals(phrase: grammar.Phrase, origin: str, plural: dict[str, bool]) -> None:
    """Adds to the dict `plural`, for each relative clause in a noun phrase and each object in such
    a clause, recursively, whether the subject or the object is plural; keys are their origins,
    which begin with `origin`, the origin of the phrase.
    """
    if phrase.relative is None:
        return
    plural[f"{origin}.r"] = phrase.plural
    if phrase.relative.object is not None:
        plural[f"{origin}.r.o"] = phrase.relative.object.plural
        _mark_plurals(phrase.relative.object, f"{origin}.r.o", plural)
