"""Made-up sentences with a tag and a head for every word: who is one, who are many?

    the/DET-many big/ADJ-many foxes/NOUN-many will/AUX-many see/VERB-many a/DET-one cat/NOUN-one

These are source sentences of `grammar`. "the", adjectives, "will" and the verb behind it look the
same for one and for many, so their tags must be told from a noun that may stand far off: below a
determiner or adjective's own noun, or the subject of a verb. The heads lead there.
"""

from __future__ import annotations

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
        drawn = self.apart(split, lambda: of(grammar.drawn(draw, self.depth)), _text, _text)
        return list(drawn)


def _text(sentence: Sentence) -> str:
    return " ".join(sentence.words)


def of(sentence: grammar.Sentence) -> Sentence:
    """Returns the source words of a grammar sentence, each with its tag (kind and "one" or "many")
    and its head, a position or `ROOT`.
    """
    words = grammar.source_words(sentence)
    origins = [origin for _, origin in words]
    places = {origin: place for place, origin in enumerate(origins)}
    many = {"s": sentence.subject.plural, "p": sentence.subject.plural}
    _numbers(sentence.subject, "s", many)
    if sentence.clause.object is not None:
        many["p.o"] = sentence.clause.object.plural
        _numbers(sentence.clause.object, "p.o", many)
    tags, heads = [], []
    for origin in origins:
        at, _, part = origin.rpartition(".")
        kind = _KINDS.get(part.rstrip("0123456789"))
        number = "many" if many.get(at) else "one"
        tags.append({"adverb": "ADV", "that": "PRON"}.get(part, f"{kind}-{number}"))
        heads.append(places.get(_head(at, part), ROOT))
    return Sentence(tuple(word for word, _ in words), tuple(tags), tuple(heads))


def _head(at: str, part: str) -> str:
    """Returns the origin of a word's head in the dependency tree, from the word's own origin
    `at`.`part` (as `grammar.source_words` names origins); "" for the root.
    """
    if part == "adverb":
        return "p.verb"
    if part == "that":
        return f"{at}.r.verb"
    if part == "will":
        return f"{at}.verb"
    if part == "verb":  # of a relative clause: the noun that it is about
        return f"{at.removesuffix('.r')}.noun" if at != "p" else ""
    if part == "noun":
        return "p.verb" if at == "s" else f"{at.removesuffix('.o')}.verb"
    return f"{at}.noun"


def _numbers(phrase: grammar.Phrase, at: str, many: dict[str, bool]) -> None:
    """Writes into `many` whether each relative clause in a phrase and each object in one is plural,
    keyed by origin, recursively.
    """
    if phrase.relative is None:
        return
    many[f"{at}.r"] = phrase.plural
    if phrase.relative.object is not None:
        many[f"{at}.r.o"] = phrase.relative.object.plural
        _numbers(phrase.relative.object, f"{at}.r.o", many)
