"""Dates in nine styles to ISO 8601, character by character: the smallest translation that needs
alignment.

    3 of march 1967 -> 1967-03-03

Year, month and day move, months change from words to digits, and the weekday means nothing.
"""

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlab.data import SPLITS
from attnlab.data.generated import Alignment, Pair, Sized

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
