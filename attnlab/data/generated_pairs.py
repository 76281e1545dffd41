"""Made-up pairs of texts with their alignments: words to be said again, dates to ISO 8601, and words of
an invented orthography as they are said.

Words are said again in their order, from the last to the first, or sorted: nothing to learn but what
to carry over, and where it is. How much that is stands in the config, as the number of words: the task
of choice where the length of the source is the question, or the order in which it is read.

Dates in nine styles, character by character, are the smallest translation that needs alignment: year,
month and day move, months change from words to digits, and the weekday means nothing.

Spelling is grapheme-to-phoneme conversion, whose rules have to be learned. Two letters may be one
sound, one letter may be two or none, and what a letter stands for hangs on its neighbours: "c" and "g"
are soft before "e" and "i", "s" is voiced between vowels, an "e" at the end is silent and makes the
vowel before the last consonant long.
"""

import datetime
import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attnlab.data import SPLITS
from attnlab.data.generated import Alignment, Pair, Sized, below, check_lengths, split_of
from attnlab.errors import UserError

_FEWEST = 1000  # different texts, so that every split has some


@dataclass(frozen=True)
class Copying(Sized):
    """Texts of `shortest` to `longest` words, each length equally likely and each word one of
    `symbols` letters, and the same words again.

        g a q a c -> g a q a c          g a q a c -> c a q a g

    A text's split follows from its own hash (90/5/5), so no text is in two splits, whatever the
    seeds. Short texts may occur more than once in a split. Positions of alignments are words
    (separated by blanks).

    Attributes:
      shortest: how few words a text may have.
      longest: how many words a text may have.
      symbols: different words.
      order: of the target's words, as in the source ("same"), from its last to its first
        ("reversed"), or that of the alphabet ("sorted"; repeated words stay).
      tested: words of the longest text of the test split, whose texts then have `longest` + 1 to
        `tested` words, to ask what longer texts than those of training do; 0 for the same lengths.

    Raises:
      UserError: `longest` below `shortest`, a number out of range, or too few different texts to
        keep the splits apart.
    """

    shortest: int = 1
    longest: int = 20
    symbols: int = 20
    order: Literal["same", "reversed", "sorted"] = "same"
    tested: int = 0

    limits = {"symbols": (2, len(string.ascii_lowercase))}

    def __post_init__(self) -> None:
        """Raises `UserError` for lengths out of order or too few possible texts, besides the checks
        of `Sized`.
        """
        super().__post_init__()
        check_lengths(1, self.shortest, self.longest)
        if self.tested and self.tested <= self.longest:
            raise UserError(
                f"config.data.tested={self.tested} must be 0 or above"
                f" config.data.longest={self.longest}"
            )
        if self.symbols**self.longest < _FEWEST:
            texts = f"{self.symbols}^{self.longest} different texts"
            raise UserError(
                f"config.data.longest={self.longest}: {texts} are too few, take more symbols or"
                " longer texts"
            )

    def pairs(self, split: str) -> list[Pair]:
        """Draws the examples of `split` as (source, target) texts: random letters (more of them in
        "test" if `tested` is set), and the same letters in the configured order.
        """
        draw = random.Random(f"copying {self.seed} {split}")
        shortest, longest = self.shortest, self.longest
        if split == "test" and self.tested:
            shortest, longest = self.longest + 1, self.tested

        def draw_words() -> list[str]:
            length = shortest + below(draw, longest - shortest + 1)
            return [string.ascii_lowercase[below(draw, self.symbols)] for _ in range(length)]

        texts = self.apart(split, draw_words, " ".join)
        return [(" ".join(words), " ".join(self._ordered(words))) for words in texts]

    def alignment(self, pair: Pair) -> Alignment:
        """Returns the set of (source position, target position) of each word and its copy in a pair
        of texts; raises `ValueError` if the target is not the words of the source in the configured
        order.
        """
        source, target = (text.split() for text in pair)
        if target != self._ordered(source):
            raise ValueError(f"{pair[1]!r} does not repeat {pair[0]!r} (order {self.order!r})")
        positions = sorted(range(len(source)), key=source.__getitem__)
        if self.order != "sorted":
            positions = self._ordered(list(range(len(source))))
        return frozenset(zip(positions, range(len(source)), strict=True))

    def _ordered(self, items: list[Any]) -> list[Any]:
        """Returns the items in the configured order: the same, reversed or sorted."""
        if self.order == "sorted":
            return sorted(items)
        return items if self.order == "same" else items[::-1]


_MONTHS = "January February March April May June July August September October November December"
MONTHS = _MONTHS.split()
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

# Numbers with slashes or dots are day first, unless the year leads.
FORMATS = (
    "{d} {MMMM} {yyyy}",
    "{d} {MMM} {yyyy}",
    "{MMMM} {d}, {yyyy}",
    "{MMM} {d} {yyyy}",
    "{dd}/{MM}/{yyyy}",
    "{yyyy}/{MM}/{dd}",
    "{EEEE}, {d} {MMMM} {yyyy}",
    "{d} of {MMMM} {yyyy}",
    "{dd}.{MM}.{yy}",
)
CENTURY = range(1950, 2050)  # what two digits of a year can mean: 50..99 are 19xx, 00..49 are 20xx

_FIRST, _LAST = datetime.date(1900, 1, 1).toordinal(), datetime.date(2099, 12, 31).toordinal()
_WRITTEN: dict[str, Callable[[datetime.date], str]] = {
    "d": lambda date: str(date.day),
    "dd": lambda date: f"{date.day:02}",
    "MM": lambda date: f"{date.month:02}",
    "MMM": lambda date: MONTHS[date.month - 1][:3],
    "MMMM": lambda date: MONTHS[date.month - 1],
    "yy": lambda date: f"{date.year % 100:02}",
    "yyyy": lambda date: str(date.year),
    "EEEE": lambda date: WEEKDAYS[date.weekday()],
}
# where the fields stand in YYYY-MM-DD
_ISO = {"y": range(0, 4), "M": range(5, 7), "d": range(8, 10)}


@dataclass(frozen=True)
class Dates(Sized):
    """Dates from 1900-01-01 to 2099-12-31; 90 % of the days are for training, 5 % for validation, 5
    % for the test.

        3 of march 1967 -> 1967-03-03

    No day occurs in two splits, and every day of a split is used before one is used again. The
    style is uniform over `FORMATS` (the one with a two-digit year only where it is unambiguous, see
    `CENTURY`), all lower case half the time. Chance of an exact match: about 1 in 73,000. Positions
    of alignments are characters.
    """

    def pairs(self, split: str) -> list[Pair]:
        """Returns the examples of `split`: a date written in a random style, and the same date as
        ISO 8601, of days that occur in no other split.
        """
        number = SPLITS.index(split)
        days = np.random.default_rng((self.seed, 0)).permutation(np.arange(_FIRST, _LAST + 1))
        rng = np.random.default_rng((self.seed, 1 + number))
        share = rng.permutation(
            np.split(days, [len(days) * 90 // 100, len(days) * 95 // 100])[number]
        )
        chosen = np.resize(share, self.count(split)).tolist()
        return [
            _pair(day, *draw)
            for day, draw in zip(chosen, rng.random((len(chosen), 2)).tolist(), strict=True)
        ]

    def alignment(self, pair: Pair) -> Alignment:
        """Returns the set of (source, target) character positions that belong to the same field
        (year, month or day) of a written date and its ISO form; raises `ValueError` if the source
        is no way to write the date. "-" has no link.
        """
        source, target = pair
        date = datetime.date.fromisoformat(target)
        for style in FORMATS:
            parts = _parts_in_style(date, style)
            text = "".join(part for _, part in parts)
            if source in (text, text.lower()):
                break
        else:
            raise ValueError(f"{source!r} is not a way to write {target}")
        links, start = set(), 0
        for field, part in parts:
            links |= {
                (i, j) for i in range(start, start + len(part)) for j in _ISO.get(field[:1], ())
            }
            start += len(part)
        return frozenset(links)


def _pair(day: int, style: float, case: float) -> Pair:
    """Returns (written date, ISO date) of the day with the ordinal `day`; the numbers `style` and
    `case` in [0, 1) select the style, and lower case below 0.5.
    """
    date = datetime.date.fromordinal(day)
    styles = FORMATS if date.year in CENTURY else FORMATS[:-1]
    text = "".join(part for _, part in _parts_in_style(date, styles[int(style * len(styles))]))
    return text.lower() if case < 0.5 else text, date.isoformat()


def _parts_in_style(date: datetime.date, style: str) -> list[tuple[str, str]]:
    """Writes a date in a style such as "{d} {MMM} {yyyy}" and returns its parts as (field, text),
    with the field "" for the text between fields.
    """
    between_and_fields = re.split(r"\{(\w+)\}", style)  # literals at even, fields at odd places
    return [
        (part, _WRITTEN[part](date)) if i % 2 else ("", part)
        for i, part in enumerate(between_and_fields)
    ]


V, C = "[aeiou]", "[bcdfghjklmnpqrstvwxz]"
RULES: tuple[tuple[str, str], ...] = (
    ("k(?=n)", ""),  # knot
    ("w(?=r)", ""),  # wrist
    (r"(?<=m)b$", ""),  # lamb
    (f"(?<={V})gh", ""),  # though
    (f"(?<={V}{C})e$", ""),  # made
    (rf"({C})(?=\1)", ""),  # butter
    ("ch", "CH"),
    ("sh", "SH"),
    ("th", "TH"),
    ("ph", "F"),
    ("gh", "G"),
    ("ck", "K"),
    ("qu", "K W"),
    (f"ng(?!{V})", "NG"),
    ("ee", "IY"),
    ("oo", "UW"),
    ("ai", "EY"),
    ("oa", "OW"),
    ("ou", "AW"),
    (f"a(?={C}e$)", "EY"),
    (f"i(?={C}e$)", "AY"),
    (f"o(?={C}e$)", "OW"),
    (f"u(?={C}e$)", "UW"),
    ("c(?=[ei])", "S"),
    ("g(?=[ei])", "JH"),
    (f"(?<={V})s(?={V})", "Z"),
    *zip("aeiou", ("AE", "EH", "IH", "AA", "AH"), strict=True),
    *(
        (letter, {"c": "K", "h": "HH", "j": "JH", "x": "K S"}.get(letter, letter.upper()))
        for letter in "bcdfghjklmnprstvwxz"
    ),
)
"""What stands at a place of a word, as a regular expression, and its phonemes; of the rules that fit the first one holds."""

_PATIENCE = 5000  # words in a row that are known or of another split
_CLUSTERS = "ch sh th ph gh kn wr qu br cl dr gr pl st tr"
_ONSETS = ("", *"bcdfghjklmnprstvwz", *_CLUSTERS.split())
_NUCLEI = (*"aeiou", *"aeiou", "ee", "oo", "ai", "oa", "ou")
_ENDINGS = "ck ng mb gh th sh nt st ll ss tt"
_CODAS = ("", "", "", *"bdgklmnprstvxz", *_ENDINGS.split())
_COMPILED = tuple((re.compile(pattern), phonemes.split()) for pattern, phonemes in RULES)


@dataclass(frozen=True)
class Spelling(Sized):
    """Made-up words of one to `syllables` syllables, no word twice, and their phonemes with blanks
    between them.

        knaithel -> N EY TH EH L

    A word's split follows from its own hash (90/5/5), so no word is in two splits, whatever the
    seeds. Positions of alignments are letters of the word and phonemes.

    Attributes:
      syllables: the most syllables that a word has.

    Raises:
      UserError: no syllable at all.
    """

    syllables: int = 3

    limits = {"syllables": (1,)}

    def pairs(self, split: str) -> list[Pair]:
        """Draws the examples of `split` as (made-up word, its phonemes joined by blanks), all
        different, such that no word is in two splits; raises `UserError` if too few words exist.

        Raises:
          UserError: more words are wanted than so few syllables have.
        """
        draw = random.Random(f"spelling {self.seed} {split}")
        pairs: dict[str, str] = {}
        in_vain = 0
        while len(pairs) < self.count(split):
            word = _word(draw, self.syllables)
            if word in pairs or split_of(word) != split:
                in_vain += 1
            else:
                pairs[word] = " ".join(
                    phoneme for _, phonemes in pronounce(word) for phoneme in phonemes
                )
                in_vain = 0
            if in_vain == _PATIENCE:
                raise UserError(
                    f"config.data.syllables={self.syllables}: {self.count(split)} different words"
                    f" for {split} are too many, {len(pairs)} were found; take more syllables or"
                    " fewer words"
                )
        return list(pairs.items())

    def alignment(self, pair: Pair) -> Alignment:
        """Returns the set of (letter position, phoneme position) of each phoneme and the letters
        that a rule writes it with; raises `ValueError` if the numbers of phonemes differ. Silent
        letters have no link.
        """
        links: set[tuple[int, int]] = set()
        start = sound = 0
        for letters, phonemes in pronounce(pair[0]):
            links |= {
                (start + i, sound + j) for i in range(len(letters)) for j in range(len(phonemes))
            }
            start, sound = start + len(letters), sound + len(phonemes)
        if sound != len(pair[1].split()):
            raise ValueError(f"{pair[0]!r} is not said {pair[1]!r}")
        return frozenset(links)


def pronounce(word: str) -> list[tuple[str, list[str]]]:
    """Cuts a word from left to right into groups of letters, each by the first rule that matches
    there, and returns a list of pairs (letters, list of their phonemes, which may be empty); raises
    `ValueError` if no rule matches.

    Raises:
      ValueError: a letter that no rule knows.
    """
    parts, position = [], 0
    while position < len(word):
        for pattern, phonemes in _COMPILED:
            if match := pattern.match(word, position):
                parts.append((match.group(), phonemes))
                position = match.end()
                break
        else:
            raise ValueError(f"{word!r}: no rule for {word[position:]!r}")
    return parts


def _word(draw: random.Random, syllables: int) -> str:
    """Draws a word of one to `syllables` syllables, each of an onset, a nucleus and a coda; one word in
    four gets an "e" at its end.
    """
    count = 1 + below(draw, syllables)
    kinds = (_ONSETS, _NUCLEI, _CODAS) * count
    parts = [kind[below(draw, len(kind))] for kind in kinds]
    return "".join(parts) + ("e" if draw.random() < 0.25 else "")
