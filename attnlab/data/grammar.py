"""A made-up language pair with reordering, agreement and known word alignments; and its source
sentences with a tag and a head for every word: who is one, who are many?

From the English-like side to the other: adjectives follow their noun in reverse order and agree
with it in number, the verb ends its clause and agrees with a subject that may stand far off ("will
sleep" hides the number), the adverb leads, "the" has no counterpart and "tomorrow" has two words.
Each side determines the other.

"The", adjectives, "will" and the verb behind it look the same for one and for many, so their tags
must be told from a noun that may stand far off: below a determiner or adjective's own noun, or the
subject of a verb. The heads lead there.
"""

import random
from dataclasses import dataclass

from attnlab.data import tagged
from attnlab.data.generated import Alignment, Pair, Sized, below

# (singular, plural) on the source side, then on the target side
NOUNS = (
    ("dog", "dogs", "kano", "kani"),
    ("cat", "cats", "mitso", "mitsi"),
    ("bird", "birds", "velo", "veli"),
    ("horse", "horses", "tarko", "tarki"),
    ("child", "children", "lino", "lini"),
    ("woman", "women", "sero", "seri"),
    ("farmer", "farmers", "gruno", "gruni"),
    ("king", "kings", "rado", "radi"),
    ("teacher", "teachers", "dolo", "doli"),
    ("fox", "foxes", "vupo", "vupi"),
)
ADJECTIVES = (
    ("big", "big", "gora", "gore"),
    ("small", "small", "pita", "pite"),
    ("old", "old", "veta", "vete"),
    ("red", "red", "ruba", "rube"),
    ("happy", "happy", "gaya", "gaye"),
    ("wise", "wise", "sofa", "sofe"),
)
TRANSITIVE = (
    ("sees", "see", "vidas", "vidis"),
    ("loves", "love", "amas", "amis"),
    ("follows", "follow", "sekas", "sekis"),
    ("hears", "hear", "audas", "audis"),
)
INTRANSITIVE = (
    ("sleeps", "sleep", "dormas", "dormis"),
    ("sings", "sing", "kantas", "kantis"),
    ("runs", "run", "kuras", "kuris"),
)
VERBS = TRANSITIVE + INTRANSITIVE
DETERMINERS = (("the", "the", "", ""), ("a", "some", "un", "uni"), ("this", "these", "ti", "tii"))
ADVERBS = (("today", "hodi"), ("tomorrow", "alba nova"), ("often", "ofte"))
THAT, WILL = ("that", "ke"), ("will", "va")
_KINDS = {"determiner": "DET", "adjective": "ADJ", "noun": "NOUN", "will": "AUX", "verb": "VERB"}

_Words = list[tuple[str, str]]
"""(word, where in the tree it comes from); words of both sides with one origin are aligned."""


@dataclass(frozen=True)
class Phrase:
    """A noun phrase; numbers index the tables above."""

    determiner: int
    adjectives: tuple[int, ...]
    noun: int
    plural: bool
    relative: "Clause | None"


@dataclass(frozen=True)
class Clause:
    """A verb and, if it is transitive, its object. The subject is outside."""

    verb: int
    future: bool
    object: Phrase | None


@dataclass(frozen=True)
class Sentence:
    """What both sides say."""

    subject: Phrase
    clause: Clause
    adverb: int | None


@dataclass(frozen=True)
class Grammar(Sized):
    """Sentences of the grammar, no two alike.

        the big old dogs that see a cat will sleep tomorrow
        alba nova kani vete gore ke un mitso vidis dormis va

    A sentence's split follows from its own hash (90/5/5), so no sentence is in two splits, whatever
    the seeds. Positions of alignments are words (separated by blanks). About 50 different words per
    side.

    Attributes:
      depth: how deep relative clauses may nest; 0 for none.
    """

    depth: int = 1

    def pairs(self, split: str) -> list[Pair]:
        """Draws the (source, target) texts of `split`, all different and none in two splits."""
        draw = random.Random(f"grammar {self.seed} {split}")
        sentences = self.apart(split, lambda: sample(draw, self.depth), _source, _source)
        return [(_source(sentence), _text(target_words(sentence))) for sentence in sentences]

    def alignment(self, pair: Pair) -> Alignment:
        """Returns the set of (source position, target position) of each pair of words with the same
        origin; raises `ValueError` unless the target translates the source. "the" has no partner,
        "tomorrow" has two.
        """
        sentence = read_target(pair[1])
        source, target = source_words(sentence), target_words(sentence)
        if _text(source) != pair[0]:
            raise ValueError(f"{pair[1]!r} does not translate {pair[0]!r}")
        return frozenset(
            (i, j) for i, (_, a) in enumerate(source) for j, (_, b) in enumerate(target) if a == b
        )


@dataclass(frozen=True)
class Agreement(Sized):
    """Sentences of the grammar, no two alike, with tags of kind and number and with trees.

        the/DET-many big/ADJ-many foxes/NOUN-many will/AUX-many see/VERB-many a/DET-one cat/NOUN-one

    A sentence's split follows from its own hash (90/5/5), as that of the grammar's does.

    Attributes:
      depth: how deep relative clauses may nest; 0 for none.
    """

    depth: int = 1

    def tagged(self, split: str) -> list[tagged.Sentence]:
        """Draws the sentences of `split` and returns them as a list of `tagged.Sentence`, each
        with its words, tags and heads, all different and none in two splits.
        """
        draw = random.Random(f"agreement {self.seed} {split}")
        sentences = self.apart(split, lambda: sample(draw, self.depth), _source, _source)
        return [with_tags(sentence) for sentence in sentences]


def _pick(draw: random.Random, items: tuple[int, ...]) -> int:
    """One of `items`; only `random()` itself is promised to stay the same over Python versions."""
    return items[below(draw, len(items))]


def sample(draw: random.Random, depth: int) -> Sentence:
    """Draws a sentence (a tree) whose relative clauses nest at most `depth` deep, with an adverb
    with probability 0.4.
    """
    adverb = below(draw, len(ADVERBS)) if draw.random() < 0.4 else None
    return Sentence(_draw_phrase(draw, depth), _draw_clause(draw, depth), adverb)


def _draw_clause(draw: random.Random, depth: int) -> Clause:
    """Draws a verb, whether it is in the future, and an object if the verb is transitive."""
    verb = below(draw, len(VERBS))
    return Clause(
        verb, draw.random() < 0.3, _draw_phrase(draw, depth) if verb < len(TRANSITIVE) else None
    )


def _draw_phrase(draw: random.Random, depth: int) -> Phrase:
    """Draws a noun phrase with 0 to 2 adjectives and, with probability 0.3 while `depth` is
    positive, a relative clause.
    """
    adjectives: tuple[int, ...] = ()
    for _ in range(_pick(draw, (0, 0, 1, 1, 2))):
        unused = tuple(i for i in range(len(ADJECTIVES)) if i not in adjectives)
        adjectives += (_pick(draw, unused),)
    relative = _draw_clause(draw, depth - 1) if depth > 0 and draw.random() < 0.3 else None
    return Phrase(
        _pick(draw, (0, 0, 1, 2)),
        adjectives,
        below(draw, len(NOUNS)),
        draw.random() < 0.5,
        relative,
    )


def source_words(sentence: Sentence) -> _Words:
    """Returns the source words of a sentence, in order, each with its origin in the tree."""
    return _sentence_words(sentence, target=False)


def target_words(sentence: Sentence) -> _Words:
    """Returns the target words of a sentence, in order, each with its origin in the tree."""
    return _sentence_words(sentence, target=True)


def _sentence_words(sentence: Sentence, target: bool) -> _Words:
    """Returns the words of a sentence in the source or the `target` language, each as (word,
    origin), a path in the tree; the adverb is last in the source and first in the target.
    """
    adverb = "" if sentence.adverb is None else ADVERBS[sentence.adverb][target]
    adverbs = [(word, "adverb") for word in adverb.split()]
    words = _phrase_words(sentence.subject, "s", target)
    words += _clause_words(sentence.clause, sentence.subject.plural, "p", target)
    return adverbs + words if target else words + adverbs


def _phrase_words(phrase: Phrase, origin: str, target: bool) -> _Words:
    """Returns the words of a noun phrase and its relative clause in the source or the `target`
    language, each as (word, its path in the tree, which begins with `origin`); adjectives follow
    the noun in the target.
    """
    form = 2 * target + phrase.plural
    determiner = (DETERMINERS[phrase.determiner][form], f"{origin}.determiner")
    noun = (NOUNS[phrase.noun][form], f"{origin}.noun")
    adjectives = [(ADJECTIVES[row][form], f"{origin}.adjective{row}") for row in phrase.adjectives]
    words = [noun, *reversed(adjectives)] if target else [*adjectives, noun]
    if determiner[0]:  # "the" has no counterpart
        words.insert(0, determiner)
    if phrase.relative is not None:
        words.append((THAT[target], f"{origin}.that"))
        words += _clause_words(phrase.relative, phrase.plural, f"{origin}.r", target)
    return words


def _clause_words(clause: Clause, plural: bool, origin: str, target: bool) -> _Words:
    """Returns the words of a clause, each as (word, its path in the tree, which begins with
    `origin`): "will", verb, object, and in the `target` language the other way round; the verb is
    plural if its subject is (`plural`).
    """
    # the plural form of the source is the bare verb
    form = 2 + plural if target else plural or clause.future
    words = [(WILL[target], f"{origin}.will")] * clause.future
    words.append((VERBS[clause.verb][form], f"{origin}.verb"))
    patient = _phrase_words(clause.object, f"{origin}.o", target) if clause.object else []
    return patient + words[::-1] if target else words + patient


def _source(sentence: Sentence) -> str:
    return _text(source_words(sentence))


def _text(words: _Words) -> str:
    return " ".join(word for word, _ in words)


def read_target(text: str) -> Sentence:
    """Parses a text of the target language and returns its sentence, the inverse of `target_words`,
    which shows that nothing is lost and checks every agreement.

    Raises:
      ValueError: not a sentence of the target language, with the word that does not fit.
    """
    return _Reader(text.split()).sentence()


class _Reader:
    """Recursive descent over the words of a target sentence, one word of look-ahead."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._next = 0

    def sentence(self) -> Sentence:
        """Parses all words as a target sentence and returns its tree; raises `ValueError` with the
        first word that does not fit.
        """
        adverbs = [
            i
            for i, (_, target) in enumerate(ADVERBS)
            if self._words[: len(target.split())] == target.split()
        ]
        for adverb in adverbs:
            self._next = len(ADVERBS[adverb][1].split())
        subject = self._phrase()
        clause = self._clause(subject.plural)
        if self._next < len(self._words):
            raise self._misfit("the end")
        return Sentence(subject, clause, adverbs[0] if adverbs else None)

    def _phrase(self) -> Phrase:
        """Parses the noun phrase at the next word, moves behind it and returns it; raises
        `ValueError` without a noun or if its number differs from the determiner's.
        """
        determiner = self._accept(DETERMINERS)
        noun = self._accept(NOUNS)
        if noun is None:
            raise self._misfit("a noun")
        plural = noun[1]
        if determiner is not None and determiner[1] != plural:
            raise self._misfit("a noun of the number of its determiner", words_back=1)
        adjectives: tuple[int, ...] = ()
        while (adjective := self._accept(ADJECTIVES, plural)) is not None:
            adjectives = (adjective[0], *adjectives)
        relative = self._clause(plural) if self._accept_word(THAT[1]) else None
        return Phrase(determiner[0] if determiner else 0, adjectives, noun[0], plural, relative)

    def _clause(self, plural: bool) -> Clause:
        """Parses the clause at the next word, whose verb must have the number `plural` of its
        subject, moves behind it and returns it; raises `ValueError` if there is none.
        """
        verb = self._accept(INTRANSITIVE, plural)
        if verb is not None:
            return Clause(len(TRANSITIVE) + verb[0], self._accept_word(WILL[1]), None)
        patient = self._phrase()
        verb = self._accept(TRANSITIVE, plural)
        if verb is None:
            raise self._misfit("a transitive verb of its subject's number")
        return Clause(verb[0], self._accept_word(WILL[1]), patient)

    def _accept(
        self, table: tuple[tuple[str, str, str, str], ...], plural: bool | None = None
    ) -> tuple[int, bool] | None:
        """Returns (row in `table`, whether plural) of the next word and moves behind it, if `table`
        has it as a target word of the number `plural` (any for None); else returns None.
        """
        word = self._words[self._next] if self._next < len(self._words) else ""
        for row, forms in enumerate(table):
            for number in (False, True) if plural is None else (plural,):
                if word and forms[2 + number] == word:
                    self._next += 1
                    return row, number
        return None

    def _accept_word(self, word: str) -> bool:
        """Returns whether the next word is this one, and moves behind it if so."""
        matches = self._words[self._next : self._next + 1] == [word]
        self._next += matches
        return matches

    def _misfit(self, expected: str, words_back: int = 0) -> ValueError:
        """Returns (does not raise) a `ValueError` that names the next word, or the one `words_back` words
        earlier, and what was expected there.
        """
        position = self._next - words_back
        word = self._words[position] if position < len(self._words) else "the end"
        return ValueError(
            f"word {position + 1}: expected {expected}, found {word!r} in {' '.join(self._words)!r}"
        )


def with_tags(sentence: Sentence) -> tagged.Sentence:
    """Returns the source words of a sentence as a `tagged.Sentence`, each word with its tag
    ("ADV", "PRON", or its kind and number such as "NOUN-many") and the position of its head,
    `tagged.ROOT` for none.
    """
    words = source_words(sentence)
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
        heads.append(positions.get(_head(phrase, part), tagged.ROOT))
    return tagged.Sentence(tuple(word for word, _ in words), tuple(tags), tuple(heads))


def _head(phrase: str, part: str) -> str:
    """Returns the origin of the head, in the dependency tree, of the word of origin
    `phrase`.`part` (a path such as "s.r.verb", see `source_words`); "" for the root.
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


def _phrase_plurals(phrase: Phrase, origin: str) -> dict[str, bool]:
    """Returns a mapping of origins to whether what has this origin is plural: the noun phrase,
    whose origin is `origin`, and all of the `_clause_plurals` of its relative clause, if any.
    """
    relative = phrase.relative
    inner = _clause_plurals(relative, phrase.plural, f"{origin}.r") if relative else {}
    return {origin: phrase.plural, **inner}


def _clause_plurals(clause: Clause, plural: bool, origin: str) -> dict[str, bool]:
    """Returns a mapping of origins to whether what has this origin is plural: `origin`, that of the
    clause, to `plural`, whether its subject is, and all of the `_phrase_plurals` of its object, if
    it has one.
    """
    inner = _phrase_plurals(clause.object, f"{origin}.o") if clause.object else {}
    return {origin: plural, **inner}
