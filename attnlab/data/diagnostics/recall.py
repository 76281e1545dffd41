"""Recall: values that must be found again by their keys, and words that must be said again.

Many questions in one text, one question at its end, or a needle in a text that says nothing; words
among blanks, and what followed the last time.
"""

import math
import random
from dataclasses import dataclass
from typing import Literal

from attnlab.data.asked import Drawn, Row, power_of_two
from attnlab.data.generated import below, check_even, within
from attnlab.errors import UserError

BLANK, ASK, SAY, TRIGGER = "_", "?", "=", "!"


@dataclass(frozen=True)
class MultiQueryRecall(Drawn):
    """Multi-query associative recall, MQAR: pairs of keys and values, then every key again.

        k3 v7 k1 v2 _ _ k1 _ _ _ k3 _          at the second k1 the answer is v2, at k3 v7

    The first 2n words are n different keys, each with a value of its own (no two the same). Of the
    (T - 2n) / 2 pairs of places that follow, n hold a key and a blank: place r = 1, 2, ... with a
    probability proportional to a r^(a - 1), without repetition, so that with a small a keys are
    asked for soon, as in text, and with a = 1 anywhere. Groups are distances between the two places
    of a key, rounded up to powers of 2, or the number of pairs.

    Source: S. Arora, S. Eyuboglu et al., "Zoology: Measuring and Improving Recall in Efficient
    Language Models", ICLR 2024, appendix. Here keys and values are words, not numbers; with
    `noise` the places without a key hold words that are no key of the text (in the paper's code,
    any word).

    Attributes:
      length: T, how many words a text has, an even number.
      pairs: n, how many pairs of a key and its value a text has; a text of T words holds T / 4 at
          most.
      symbols: V, how many different words there are, half of them keys and half values.
      power: a, which decides how soon questions follow the pairs: smaller is sooner (the power law
          of the paper).
      noise: whether other places hold random words instead of blanks.
      tested_pairs: pairs of a text of the test split, to test more than was trained; 0 for `pairs`.
      tested_length: words of a text of the test split; 0 for `length`.
      fewest: 0, or the fewest pairs of a text: each text draws n from this number, twice, four times
        it and so on, up to `pairs` (up to `tested_pairs` in the test split). Many pairs are learned
        sooner among texts with few.
      by: what the accuracy is split up by.

    Raises:
      UserError: a number out of range.
    """

    length: int = 64
    pairs: int = 4
    symbols: int = 128
    power: float = 0.01
    noise: bool = False
    tested_pairs: int = 0
    tested_length: int = 0
    fewest: int = 0
    by: Literal["distance", "pairs"] = "distance"

    @property
    def group(self) -> str:
        """What the groups of the rows are called."""
        return self.by

    def __post_init__(self) -> None:
        """Raises `UserError` for a power, length, or number of pairs or symbols out of range, for
        the sizes of training and of the test split.
        """
        super().__post_init__()
        if not 0.0 < self.power <= 1.0:
            raise UserError(f"config.data.power={self.power} must be above 0 and at most 1")
        for prefix, split in (("", "train"), ("tested_", "test")):
            length, pairs = self._sizes(split)
            check_even(f"{prefix}length", length, 4)
            within(f"{prefix}pairs", pairs, 1, length // 4)
            within("fewest", self.fewest, 0, pairs)
            within("symbols", self.symbols, 2 * pairs + 2 * self.noise)

    def _sizes(self, split: str) -> tuple[int, int]:
        """Returns the numbers of words and of pairs of a text of `split`."""
        if split != "test":
            return self.length, self.pairs
        return self.tested_length or self.length, self.tested_pairs or self.pairs

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: pairs of different keys and values, then each key once more at a random
        position among blanks (or random words, with `noise`), where the answer is its value; groups
        are the number of pairs or the distance, rounded up to a power of 2. See `Drawn.draw_row`.
        """
        length, pairs = self._sizes(split)
        if self.fewest:
            doublings = (pairs // self.fewest).bit_length()
            pairs = self.fewest << below(draw, doublings)
        half = self.symbols // 2
        keys, values = (draw.sample(range(half), pairs) for _ in range(2))
        words = [BLANK] * length
        if self.noise:
            unused = [key for key in range(half) if key not in set(keys)]
            for place in range(2 * pairs, length):
                chosen = below(draw, len(unused) + half)
                words[place] = (
                    f"k{unused[chosen]}" if chosen < len(unused) else f"v{chosen - len(unused)}"
                )
        answers = [""] * length
        groups: dict[int, int] = {}
        gaps = self._gaps(draw, (length - 2 * pairs) // 2, pairs)
        for number, (key, value, gap) in enumerate(zip(keys, values, gaps, strict=True)):
            words[2 * number : 2 * number + 2] = f"k{key}", f"v{value}"
            place = 2 * pairs + 2 * gap
            words[place], answers[place] = f"k{key}", f"v{value}"
            groups[place] = pairs if self.by == "pairs" else power_of_two(place - 2 * number)
        return Row(tuple(words), tuple(answers), tuple(groups[place] for place in sorted(groups)))

    def _gaps(self, draw: random.Random, space: int, count: int) -> list[int]:
        """Draws `count` different numbers below `space`, number n with the weight `power` x (n + 1) **
        (`power` - 1), and returns them in random order.
        """
        rates = (self.power * place ** (self.power - 1.0) for place in range(1, space + 1))
        waits = [-math.log(1.0 - draw.random()) / rate for rate in rates]
        chosen = sorted(range(space), key=waits.__getitem__)[:count]
        return draw.sample(chosen, count)

    def guesses(self, rows: list[Row]) -> dict[str, float]:
        """Returns {"a value of the text": accuracy}, that of a random guess among a text's values."""
        counts = [sum(map(bool, row.answers)) for row in rows]
        return {"a value of the text": len(rows) / sum(counts)}


@dataclass(frozen=True)
class SingleQueryRecall(Drawn):
    """Associative recall with one question: pairs, then a key that has occurred.

        k3 v7 k1 v2 k3 v7 ? k1                 at the last word the answer is v2

    Every text draws a value for each key, with repetition, and then its pairs. Groups are the
    words between the last occurrence of the key and the question; `distance` fixes them, to ask how
    far a system sees.

    Source: D. Fu et al., "Hungry Hungry Hippos", ICLR 2023, appendix (associative recall).

    Attributes:
      pairs: in a text.
      keys, values: different ones.
      distance: pairs between the last occurrence of the key and the question; -1 for any. With a
        distance all keys of a text are different.
      tested: pairs of the texts of the test split; 0 for `pairs`.

    Raises:
      UserError: a number out of range.
    """

    pairs: int = 20
    keys: int = 9
    values: int = 9
    distance: int = -1
    tested: int = 0

    group = "distance"
    limits = {"keys": (2,), "values": (2,)}

    def __post_init__(self) -> None:
        """Raises `UserError` for numbers of pairs or keys, or a distance, out of range, for the
        sizes of training and of the test split.
        """
        super().__post_init__()
        for split in ("train", "test"):
            pairs = self._pairs(split)
            within("pairs", pairs, 1)
            within("distance", self.distance, -1, pairs - 1)
            if self.distance >= 0:
                within("keys", self.keys, pairs)

    def _pairs(self, split: str) -> int:
        return (self.tested or self.pairs) if split == "test" else self.pairs

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: pairs of keys and values, then "?" and a key that has occurred, where the
        answer is its value; the group is the distance in words to the last occurrence of the key.
        See `Drawn.draw_row`.
        """
        pairs = self._pairs(split)
        value = [below(draw, self.values) for _ in range(self.keys)]
        if self.distance >= 0:
            keys = draw.sample(range(self.keys), pairs)
            key = keys[pairs - 1 - self.distance]
        else:
            keys = [below(draw, self.keys) for _ in range(pairs)]
            key = keys[below(draw, pairs)]
        words = [word for key in keys for word in (f"k{key}", f"v{value[key]}")] + [ASK, f"k{key}"]
        last = max(index for index, other in enumerate(keys) if other == key)
        return Row(
            tuple(words),
            ("",) * (len(words) - 1) + (f"v{value[key]}",),
            (len(words) - 1 - 2 * last,),
        )


@dataclass(frozen=True)
class Needle(Drawn):
    """One pair that matters, somewhere in a text that does not, and its key at the end.

        _ _ _ _ k3 v7 _ _ _ _ _ ? k3                       hay="blanks": nothing there to be stored
        k1 v2 k8 v8 k3 v7 k5 v0 ... ? k3                   hay="pairs": all of it looks worth storing

    The first asks whether a memory decays, the second whether it can choose what to keep. Groups
    are distances between needle and question, rounded up to powers of 2.

    Source: the single needles S-NIAH of C.-P. Hsieh et al., "RULER", 2024, in small.

    Attributes:
      length: words before the question, even.
      hay: what surrounds the needle.
      keys, values: different ones; with hay of pairs as many keys as there are pairs.
      tested: words before the question in the test split; 0 for `length`.

    Raises:
      UserError: a number out of range.
    """

    length: int = 64
    hay: Literal["blanks", "pairs"] = "blanks"
    keys: int = 64
    values: int = 16
    tested: int = 0

    group = "distance"
    limits = {"values": (2,)}

    def __post_init__(self) -> None:
        """Raises `UserError` unless the lengths of both training and test are even and the keys
        suffice.
        """
        super().__post_init__()
        for field, length in (("length", self.length), ("tested", self.tested or self.length)):
            check_even(field, length, 2)
            within("keys", self.keys, length // 2 if self.hay == "pairs" else 1)

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: one pair of key and value at a random position among blanks or other
        pairs, then "?" and this key, where the answer is the value; the group is the distance,
        rounded up to a power of 2. See `Drawn.draw_row`.
        """
        length = (self.tested or self.length) if split == "test" else self.length
        places = length // 2
        place = below(draw, places)
        if self.hay == "pairs":
            keys = draw.sample(range(self.keys), places)
            words = [word for key in keys for word in (f"k{key}", f"v{below(draw, self.values)}")]
        else:
            words = [BLANK] * length
            words[2 * place] = f"k{below(draw, self.keys)}"
            words[2 * place + 1] = f"v{below(draw, self.values)}"
        key, value = words[2 * place : 2 * place + 2]
        return Row(
            (*words, ASK, key),
            ("",) * (length + 1) + (value,),
            (power_of_two(length + 1 - 2 * place),),
        )


@dataclass(frozen=True)
class SelectiveCopying(Drawn):
    """Words among blanks, to be said again in their order behind the text.

        _ d _ _ b _ a = = =          answers d, b, a at the last words

    A mixer whose weights do not depend on what it reads can copy from fixed places (`scattered =
    False`: the words come first), but not from random ones. Groups are the numbers of the answers,
    counted from 1.

    Source: A. Gu, T. Dao, "Mamba", 2023, section 3.1; the fixed form S. Hochreiter, J. Schmidhuber,
    1997, and M. Arjovsky et al., "Unitary Evolution Recurrent Neural Networks", ICML 2016.

    Attributes:
      blanks: of a text.
      words: to be copied.
      symbols: different words.
      scattered: whether the words stand anywhere among the blanks, or before them.
      tested: blanks of the texts of the test split; 0 for `blanks`.

    Raises:
      UserError: a number out of range.
    """

    blanks: int = 32
    words: int = 8
    symbols: int = 14
    scattered: bool = True
    tested: int = 0

    group = "place"
    limits = {"blanks": (0,), "words": (1,), "symbols": (2,), "tested": (0,)}

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: random words among blanks (before the blanks unless `scattered`; "test"
        has `tested` blanks if set), then "=" once per word, with these words in order as the
        answers and 1, 2, ... as their groups. See `Drawn.draw_row`.
        """
        blanks = (self.tested or self.blanks) if split == "test" else self.blanks
        symbols = [f"s{below(draw, self.symbols)}" for _ in range(self.words)]
        places = range(blanks + self.words)
        chosen = sorted(draw.sample(places, self.words)) if self.scattered else places[: self.words]
        text = [BLANK] * len(places)
        for place, word in zip(chosen, symbols, strict=True):
            text[place] = word
        return Row(
            (*text, *[SAY] * self.words),
            ("",) * len(text) + tuple(symbols),
            tuple(range(1, self.words + 1)),
        )


@dataclass(frozen=True)
class Induction(Drawn):
    """What followed the trigger the last time: random words, a trigger somewhere among them, and
    the trigger again at the end.

        s4 s1 s1 ! s9 s2 s0 s4 !          the answer at the last word is s9

    Two layers of attention solve it: one joins each word with the one before, the other looks for
    the trigger. Groups are distances between the two triggers, rounded up to powers of 2.

    Source: C. Olsson et al., "In-context Learning and Induction Heads", 2022; in this form A. Gu,
    T. Dao, "Mamba", 2023, section 4.1.2.

    Attributes:
      length: words before the last trigger.
      symbols: different words.
      tested: words before the last trigger in the test split; 0 for `length`.

    Raises:
      UserError: a number out of range.
    """

    length: int = 64
    symbols: int = 16
    tested: int = 0

    group = "distance"
    limits = {"length": (2,), "tested": (0,), "symbols": (2,)}

    def __post_init__(self) -> None:
        """Raises `UserError` unless `tested` is 0 or at least 2, besides the checks of `Sized`."""
        super().__post_init__()
        if self.tested:
            within("tested", self.tested, 2)

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: random words (`tested` of them in "test" if set) with the trigger at a
        random position and again at the end, where the answer is the word after the first trigger;
        its group is their distance, rounded up to a power of 2. See `Drawn.draw_row`.
        """
        length = (self.tested or self.length) if split == "test" else self.length
        words = [f"s{below(draw, self.symbols)}" for _ in range(length)]
        first = below(draw, length - 1)
        words[first] = TRIGGER
        answer = words[first + 1]
        return Row((*words, TRIGGER), ("",) * length + (answer,), (power_of_two(length - first),))
