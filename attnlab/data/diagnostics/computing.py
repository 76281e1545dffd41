"""Computing: the state of a group after each of its elements, and the value of nested lists."""

import functools
import itertools
import random
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from attnlab.data.asked import Drawn, Row, power_of_two
from attnlab.data.generated import below, check_lengths, within
from attnlab.errors import UserError

Kind = Literal["parity", "cyclic", "symmetric", "alternating"]
_LARGEST = {"parity": 2, "cyclic": 1000, "symmetric": 6, "alternating": 6}


@dataclass(frozen=True)
class StateTracking(Drawn):
    """The product of all elements of a group so far, asked for at every word.

        g3 g1 g7 ...          answers e3, e1 e3, e7 e1 e3, ... (as elements, named e0, e1, ...)

    A word is an element x_t, the answer the state s_t = x_t s_{t-1}, s_0 the identity. "parity" has the
    two elements of Z_2, "cyclic" those of Z_n, "alternating" and "symmetric" the even and all
    permutations of n things. A_5 has 60 elements, as Z_60 does, but is not solvable: no system of fixed
    depth whose steps commute can follow it for long (W. Merrill, J. Petty, A. Sabharwal, "The Illusion
    of State in State-Space Models", ICML 2024), and none with positive real eigenvalues alone parity
    (R. Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR
    2025).

    Groups of the accuracy are the places of the words, rounded up to powers of 2, so
    that the accuracy beyond the length of training stands apart.

    Attributes:
      of: the group.
      order: n; parity needs none.
      length: words of a text.
      tested: words of a text of the test split; 0 for `length`.

    Raises:
      UserError: a number out of range.
    """

    of: Kind = "parity"
    order: int = 5
    length: int = 32
    tested: int = 0

    group = "place"
    limits = {"length": (1,), "tested": (0,)}

    def __post_init__(self) -> None:
        """Raises `UserError` if `order` is out of range for the kind of group, besides the checks
        of `Sized`.
        """
        super().__post_init__()
        if self.of != "parity":
            within("order", self.order, 2 if self.of != "alternating" else 3, _LARGEST[self.of])

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: random elements of the group (`tested` of them in "test" if set), where
        the answer at each is the product of all elements so far, the latest on the left; the groups
        of the answers are their positions, rounded up to powers of 2. See `Drawn.draw_row`.
        """
        length = (self.tested or self.length) if split == "test" else self.length
        table = products(self.of, 2 if self.of == "parity" else self.order)
        words, answers, state = [], [], 0
        for _ in range(length):
            element = below(draw, len(table))
            state = table[element][state]
            words.append(f"g{element}")
            answers.append(f"e{state}")
        return Row(tuple(words), tuple(answers), tuple(map(power_of_two, range(1, length + 1))))


@functools.cache
def products(kind: Kind, order: int) -> tuple[tuple[int, ...], ...]:
    """Returns the multiplication table of the group of this kind and order: entry [x][y] is the
    number of the product x y, and element 0 is the identity. Permutations are composed, (x y)(i) =
    x(y(i)), and numbered in lexical order.
    """
    if kind in ("parity", "cyclic"):
        return tuple(tuple((x + y) % order for y in range(order)) for x in range(order))
    elements = [p for p in itertools.permutations(range(order)) if kind == "symmetric" or _even(p)]
    numbers = {p: index for index, p in enumerate(elements)}
    return tuple(tuple(numbers[tuple(x[i] for i in y)] for y in elements) for x in elements)


def _even(permutation: tuple[int, ...]) -> bool:
    """Returns whether a permutation is even, a product of an even number of transpositions."""
    pairs = itertools.combinations(permutation, 2)
    return sum(first > second for first, second in pairs) % 2 == 0


OPERATORS = ("MIN", "MAX", "MED", "SM")
_SHARE = 0.25  # of operators
_TRIES = 100_000  # trees drawn for one within the limits


@dataclass(frozen=True)
class ListOps(Drawn):
    """Nested lists of digits whose value is asked for at their end.

        [MAX 2 9 [MIN 4 7 ] 0 ]          the answer at the last word is 9

        tree(depth):  r ~ U(0, 1), r = 1 at the greatest depth; r > 1/4: a digit 0 ... 9;
                      else an operator of MIN, MAX, MED, SM and n ~ U{2, ..., most} trees(depth + 1)

    MED is the median, rounded down, SM the sum modulo 10. Trees are kept whose number of words lies
    within limits. Source: N. Nangia, S. Bowman, "ListOps", NAACL SRW 2018; drawn as Y. Tay et al.,
    "Long Range Arena", ICLR 2021, do in their code, in which an operator has the probability 1/4.

    Groups of the accuracy are the numbers of words, rounded up to powers of 2.

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
