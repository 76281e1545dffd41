"""State tracking: the product of all elements of a group so far, asked for at every word.

    g3 g1 g7 ...          answers e3, e1 e3, e7 e1 e3, ... (as elements, named e0, e1, ...)

A word is an element x_t, the answer the state s_t = x_t s_{t-1}, s_0 the identity. "parity" has the
two elements of Z_2, "cyclic" those of Z_n, "alternating" and "symmetric" the even and all
permutations of n things. A_5 has 60 elements, as Z_60 does, but is not solvable: no system of fixed
depth whose steps commute can follow it for long (W. Merrill, J. Petty, A. Sabharwal, "The Illusion
of State in State-Space Models", ICML 2024), and none with positive real eigenvalues alone parity
(R. Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR
2025).
"""

import functools
import itertools
import random
from dataclasses import dataclass
from typing import Literal

from attnlab.data.asked import Row
from attnlab.data.diagnostics.drawing import Drawn, power_of_two
from attnlab.data.generated import below, within

Kind = Literal["parity", "cyclic", "symmetric", "alternating"]
_LARGEST = {"parity": 2, "cyclic": 1000, "symmetric": 6, "alternating": 6}


@dataclass(frozen=True)
class StateTracking(Drawn):
    """See the top of this file. Groups are the places of the words, rounded up to powers of 2, so
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
