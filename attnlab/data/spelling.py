"""Words of an invented orthography and how they are said: grapheme-to-phoneme conversion, whose
rules have to be learned.

    knaithel -> N EY TH EH L

Two letters may be one sound, one letter may be two or none, and what a letter stands for hangs on
its neighbours: "c" and "g" are soft before "e" and "i", "s" is voiced between vowels, an "e" at the
end is silent and makes the vowel before the last consonant long.
"""

import random
import re
from dataclasses import dataclass

from attnlab.data.generated import Alignment, Pair, Sized, below, split_of
from attnlab.errors import UserError

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
