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
        """Draws the sentences of `split` and returns them as a list of `Sentence`, each with its
        words, tags and heads, all different and none in two splits.
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
    plural = {
        **_phrase_plurals(sentence.subject, "s"),
        **_clause_plurals(sentence.clause, sentence.subject.plural, "p"),
    }
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


def _phrase_plurals(phrase: grammar.Phrase, origin: str) -> dict[str, bool]:
    """Returns a mapping of origins to whether what has this origin is plural: the noun phrase,
    whose origin is `origin`, and all of the `_clause_plurals` of its relative clause, if it has
    one.
    """
    relative = phrase.relative
    inner = _clause_plurals(relative, phrase.plural, f"{origin}.r") if relative else {}
    return {origin: phrase.plural, **inner}


def _clause_plurals(clause: grammar.Clause, plural: bool, origin: str) -> dict[str, bool]:
    """Returns a mapping of origins to whether what has this origin is plural: `origin`, that of the
    clause, to `plural`, whether its subject is, and all of the `_phrase_plurals` of its object, if
    it has one.
    """
    inner = _phrase_plurals(clause.object, f"{origin}.o") if clause.object else {}
    return {origin: plural, **inner}
