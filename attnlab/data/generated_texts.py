"""Made-up texts for language models and classifiers: what is said must be kept, and found again.

    associations    c 3 a 7 c 3 f 0 a 7 ...               a key that occurs again has its value of before
    lookup          c3 a7 f0 ... a   ->   7               pairs of a key and a value, then a key again
    markers         ba ko tu 3 ri ma ... vo 4 da   ->   2 (3 + 4 modulo 5)
    entailment      anna sings and ben does not doze      ben does not sleep     entailment
                    anna sings and ben does not doze      anna does not sing     contradiction
                    anna sings and ben does not doze      anna sleeps            neutral

Every sequence of associations has a pairing of its own: what a language model can know only by looking
back. A recurrence of few units cannot hold all pairs of a sequence, one look at the place where the
key stood before answers at once. (The associative recall of J. Ba et al., "Using Fast Weights to
Attend to the Recent Past", NIPS 2016, arXiv 1610.06258, asked for at every key instead of once at the
end.)

How much can a state of a given width hold? A pair of `lookup` is one word, so that it enters a memory
as one; where key and value are two words (associations), finding the value takes two looks. A
recurrence has to keep all pairs in one state, a tape keeps a slot for each.

Two numbers are hidden in a long run of made-up words; the label of such markers is their sum modulo
the number of numbers. Where they stand tells nothing and a sum cannot be read off one of them: a
system that pools all states can do it, a last state that has to carry both to the end finds it hard.
A task of Lin et al.'s kind, where evidence may stand anywhere in the text.

Entailment asks of two sentences whether the second follows from the first, contradicts it, or neither.
Every action has two words that mean the same. What is asked for in a neutral pair is the action of
somebody else in the first sentence half the time, so that who does what has to be kept together.
Neither sentence alone says anything about the label: persons, actions and negation are drawn in the
same way for all three.
"""

import math
import random
import string
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from attnlab.data import SPLITS
from attnlab.data.generated import Sized, below, check_even, check_lengths
from attnlab.errors import UserError


@dataclass(frozen=True)
class Associations(Sized):
    """Texts of `length` words, a key (a letter) and its value (a digit) in turn; each text draws
    which value a key has, and then its keys.

    All draws are uniform, so that a text is in two splits only by chance. A guess at a value is
    right in one of `values` cases.

    Attributes:
      length: words of a text, an even number: keys and values in turn.
      tested: words of a text of the test split, to test longer ones; 0 for `length`.
      keys: how many different keys there are.
      values: how many different values there are.

    Raises:
      UserError: a number out of range.
    """

    length: int = 40
    tested: int = 0
    keys: int = 10
    values: int = 10

    limits = {"keys": (1, len(string.ascii_lowercase)), "values": (1, len(string.digits))}

    def __post_init__(self) -> None:
        """Raises `UserError` unless `length` is an even number of at least 2 and `tested` an even
        number of at least 0, besides the checks of `Sized`.
        """
        super().__post_init__()
        check_even("length", self.length, 2)
        check_even("tested", self.tested, 0)

    def texts(self, split: str) -> list[str]:
        """Draws the texts of `split`, alternately keys and values, in "test" of `tested` words if
        that is set.
        """
        draw = random.Random(f"associations {self.seed} {SPLITS.index(split)}")
        length = (self.tested or self.length) if split == "test" else self.length
        return [self._text(draw, length) for _ in range(self.count(split))]

    def recalled(self, text: str) -> list[bool]:
        """Returns a bool for each word of a text of keys and values in turn, True for a value whose
        key has occurred before, else False.
        """
        earlier_keys: set[str] = set()
        mask = []
        for key in text.split()[::2]:
            mask += [False, key in earlier_keys]
            earlier_keys.add(key)
        return mask

    def _text(self, draw: random.Random, length: int) -> str:
        """Draws the value of every key, and then a text of `length` words, random keys each with
        its value.
        """
        values = [string.digits[below(draw, self.values)] for _ in range(self.keys)]
        keys = [below(draw, self.keys) for _ in range(length // 2)]
        return " ".join(f"{string.ascii_lowercase[key]} {values[key]}" for key in keys)


@dataclass(frozen=True)
class Lookup(Sized):
    """Texts of `pairs` words of a letter and a digit, no letter twice, and one of these letters;
    all digits are equally likely.

    A text's split follows from its own hash (90/5/5), so no text is in two splits, whatever the
    seeds.

    Attributes:
      pairs: of a text; one of its keys is asked for.
      keys, values: different ones.
      tested: which pair the texts of validation and test split ask for, "any", the "first" or the
        "last"; those of training ask for any.

    Raises:
      UserError: a number out of range.
    """

    pairs: int = 16
    keys: int = 20
    values: int = 10
    tested: Literal["any", "first", "last"] = "any"

    sentences: ClassVar[int] = 1
    limits = {"values": (2, len(string.digits))}

    def __post_init__(self) -> None:
        """Raises `UserError` for numbers of pairs and keys out of order or too few possible texts,
        besides the checks of `Sized`.
        """
        super().__post_init__()
        if not 1 <= self.pairs <= self.keys <= len(string.ascii_lowercase):
            limits = f"config.data.pairs={self.pairs} and config.data.keys={self.keys}"
            raise UserError(
                f"{limits}: expected 1 <= pairs <= keys <= {len(string.ascii_lowercase)}"
            )
        texts = math.perm(self.keys, self.pairs) * self.values**self.pairs * self.pairs
        if texts < 200:  # about ten of them for validation
            raise UserError(
                f"config.data.pairs={self.pairs}: {texts} texts are too few for three splits; take"
                " more pairs, keys or values"
            )

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Draws the examples of `split` as ((text,), label): a text of pairs of a letter and a
        digit and then one of the letters (outside of "train" that of the pair that `tested` names),
        and as the label the digit of this letter.
        """
        draw = random.Random(f"lookup {self.seed} {split}")

        def draw_text() -> tuple[tuple[str, ...], str]:
            """Draws a text and its label; outside of training the last letter is that of the pair
            `tested` says.
            """
            keys = draw.sample(string.ascii_lowercase[: self.keys], self.pairs)
            values = [string.digits[below(draw, self.values)] for _ in keys]
            index = below(draw, self.pairs)
            if split != "train":
                index = {"any": index, "first": 0, "last": self.pairs - 1}[self.tested]
            pairs = [key + value for key, value in zip(keys, values, strict=True)]
            return (" ".join([*pairs, keys[index]]),), values[index]

        return list(self.apart(split, draw_text, lambda example: example[0][0]))

    def evidence(self, text: str) -> frozenset[int]:
        """Returns the set with the position, from 0, of the pair whose key is the text's last word."""
        *pairs, key = text.split()
        return frozenset(position for position, pair in enumerate(pairs) if pair[0] == key)


SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class Markers(Sized):
    """Texts of `shortest` to `longest` words, two of them numbers below `numbers`; all labels are
    equally likely.

    A text's split follows from its own hash (90/5/5), so no text is in two splits, whatever the
    seeds.

    Attributes:
      shortest: how few words a text may have, the numbers among them.
      longest: how many words a text may have, the numbers among them.
      numbers: how many different numbers there are, and so classes.
      words: how many different words there are beside the numbers.

    Raises:
      UserError: a length or a number out of range.
    """

    shortest: int = 30
    longest: int = 60
    numbers: int = 5
    words: int = 50

    sentences: ClassVar[int] = 1
    limits = {"numbers": (2, 100), "words": (2, len(SYLLABLES))}

    def __post_init__(self) -> None:
        """Raises `UserError` unless 4 <= `shortest` <= `longest`, besides the checks of `Sized`."""
        super().__post_init__()
        check_lengths(4, self.shortest, self.longest)

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Draws the examples of `split` as ((text,), label), such that no text is in two splits."""
        draw = random.Random(f"markers {self.seed} {split}")
        return list(self.apart(split, lambda: self._draw_text(draw), lambda example: example[0][0]))

    def _draw_text(self, draw: random.Random) -> tuple[tuple[str, ...], str]:
        """Draws an example ((text,), label): a text of random syllables with two numbers at random
        positions, and their sum modulo `numbers`, as a str.
        """
        length = self.shortest + below(draw, self.longest - self.shortest + 1)
        words = [SYLLABLES[below(draw, self.words)] for _ in range(length)]
        positions = draw.sample(range(length), 2)
        first, second = (below(draw, self.numbers) for _ in positions)
        words[positions[0]], words[positions[1]] = str(first), str(second)
        return (" ".join(words),), str((first + second) % self.numbers)

    def evidence(self, text: str) -> frozenset[int]:
        """The places of the two numbers."""
        return frozenset(position for position, word in enumerate(text.split()) if word.isdecimal())


LABELS = ("entailment", "neutral", "contradiction")
PERSONS = ("anna", "ben", "clara", "david", "emma", "felix", "greta", "hugo")
# Two words for one action, each as (it ...s, does not ...).
ACTIONS = (
    (("sings", "sing"), ("chants", "chant")),
    (("sleeps", "sleep"), ("dozes", "doze")),
    (("runs", "run"), ("jogs", "jog")),
    (("talks", "talk"), ("speaks", "speak")),
    (("laughs", "laugh"), ("giggles", "giggle")),
    (("waits", "wait"), ("lingers", "linger")),
)


class Clause(NamedTuple):
    """Somebody does something, or does not; numbers index the tables above, `word` one of the two
    words of the action.
    """

    person: int
    action: int
    denied: bool
    word: int

    def __str__(self) -> str:
        says, bare = ACTIONS[self.action][self.word]
        return f"{PERSONS[self.person]} {f'does not {bare}' if self.denied else says}"


@dataclass(frozen=True)
class Entailment(Sized):
    """Pairs of a premise of `clauses` clauses and a hypothesis of one; all three labels are equally
    likely.

    A premise's split follows from its own hash (90/5/5), so no premise is in two splits, whatever
    the seeds.

    Attributes:
      clauses: how many clauses a premise has; of different persons and different actions.

    Raises:
      UserError: a number of clauses out of range.
    """

    clauses: int = 2

    sentences: ClassVar[int] = 2
    limits = {"clauses": (2, len(ACTIONS) - 1)}

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Draws the examples of `split` as ((premise, hypothesis), label): a text of several
        clauses, a clause, and "entailment", "neutral" or "contradiction".
        """
        draw = random.Random(f"entailment {self.seed} {split}")
        examples: list[tuple[tuple[str, ...], str]] = []
        for facts in self.apart(split, lambda: self._facts(draw), _premise):
            label = LABELS[draw.randrange(3)]
            examples.append(((_premise(facts), str(_hypothesis(facts, label, draw))), label))
        return examples

    def _facts(self, draw: random.Random) -> list[Clause]:
        """Draws the clauses of a premise, with different persons and different actions, each denied
        with probability 1/2.
        """
        persons, actions = (
            draw.sample(range(len(table)), self.clauses) for table in (PERSONS, ACTIONS)
        )
        return [
            Clause(*pair, draw.random() < 0.5, draw.randrange(2))
            for pair in zip(persons, actions, strict=True)
        ]


def _premise(facts: list[Clause]) -> str:
    return " and ".join(map(str, facts))


def _hypothesis(facts: list[Clause], label: str, draw: random.Random) -> Clause:
    """Draws a clause about a person of the premise whose clauses are `facts`: one that they imply,
    contradict or leave open, as the label says.
    """
    person, action, denied, _ = draw.choice(facts)
    word = draw.randrange(2)
    if label != "neutral":
        return Clause(person, action, denied == (label == "entailment"), word)
    mentioned = [fact.action for fact in facts if fact.action != action]
    absent = [other for other in range(len(ACTIONS)) if other != action and other not in mentioned]
    return Clause(
        person, draw.choice(mentioned if draw.random() < 0.5 else absent), draw.random() < 0.5, word
    )
