"""ListOps: nested lists of digits whose value is asked for at their end.

    [MAX 2 9 [MIN 4 7 ] 0 ]          the answer at the last word is 9

    tree(depth):  r ~ U(0, 1), r = 1 at the greatest depth; r > 1/4: a digit 0 ... 9;
                  else an operator of MIN, MAX, MED, SM and n ~ U{2, ..., most} trees(depth + 1)

MED is the median, rounded down, SM the sum modulo 10. Trees are kept whose number of words lies
within limits. Source: N. Nangia, S. Bowman, "ListOps", NAACL SRW 2018; drawn as Y. Tay et al.,
"Long Range Arena", ICLR 2021, do in their code, in which an operator has the probability 1/4.
"""

import random
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from attnlab.data.asked import Row
from attnlab.data.diagnostics.drawing import Drawn, power_of_two
from attnlab.data.generated import below, check_lengths
from attnlab.errors import UserError

OPERATORS = ("MIN", "MAX", "MED", "SM")
_SHARE = 0.25  # of operators
_TRIES = 100_000  # trees drawn for one within the limits


@dataclass(frozen=True)
class ListOps(Drawn):
    """See the top of this file. Groups are the numbers of words, rounded up to powers of 2.

    The baseline "operator in front" answers what is most frequent in the split among texts with the
    same first operator; it reads one word (37 % with the lengths of the Long Range Arena).

    Attributes:
      depth: the greatest depth of operators (10 in the Long Range Arena).
      most: arguments of an operator (10 there).
      shortest, longest: words of a text (500 to 2,000 there).

    Raises:
      UserError: a number out of range, or limits that hardly any tree keeps.
    """

    depth: int = 5
    most: int = 5
    shortest: int = 20
    longest: int = 100

    group = "length"
    limits = {"depth": (1, 50), "most": (2, 100)}

    def __post_init__(self) -> None:
        """Raises `UserError` unless 4 <= `shortest` <= `longest`, besides the checks of `Sized`."""
        super().__post_init__()
        check_lengths(4, self.shortest, self.longest)

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: the words of a random expression of allowed length, whose value is the
        answer at the last word, with the length, rounded up to a power of 2, as its group; raises
        `UserError` after 100,000 failed draws. See `Drawn.draw_row`.
        """
        for _ in range(_TRIES):
            words: list[str] = []
            value = self._tree(draw, 1, words)
            if self.shortest <= len(words) <= self.longest:
                answers = ("",) * (len(words) - 1) + (str(value),)
                return Row(tuple(words), answers, (power_of_two(len(words)),))
        raise UserError(
            f"config.data: none of {_TRIES:,} trees of depth {self.depth} with at most {self.most}"
            f" arguments has {self.shortest} to {self.longest} words; change these limits"
        )

    def _tree(self, draw: random.Random, depth: int, words: list[str]) -> int:
        """Draws an expression at the nesting level `depth` (from 1), appends its words to the list
        `words` and returns its value, 0 to 9; it is a digit with probability 3/4, and always beyond
        the greatest depth or length.
        """
        if depth > self.depth or draw.random() > _SHARE or len(words) > self.longest:
            digit = below(draw, 10)
            words.append(str(digit))
            return digit
        operator = OPERATORS[below(draw, len(OPERATORS))]
        words.append(f"[{operator}")
        count = 2 + below(draw, self.most - 1)
        values = [self._tree(draw, depth + 1, words) for _ in range(count)]
        words.append("]")
        return applied(operator, values)

    def guesses(self, rows: list[Row]) -> dict[str, float]:
        """Returns {"operator in front": accuracy}, the accuracy of a baseline that answers each of
        these rows with the most frequent answer of the rows with the same first word.
        """
        tally: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            tally[row.words[0]][row.answers[-1]] += 1
        right = sum(max(counts.values()) for counts in tally.values())
        return {"operator in front": right / len(rows)}


def applied(operator: str, values: list[int]) -> int:
    """Returns the value of an operator (MIN, MAX, MED for the median rounded down, SM for the sum
    modulo 10) applied to the values.
    """
    functions: dict[str, Any] = {
        "MIN": min,
        "MAX": max,
        "MED": lambda values: int(statistics.median(values)),
        "SM": lambda values: sum(values) % 10,
    }
    return int(functions[operator](values))
