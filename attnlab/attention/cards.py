"""What a component of attention declares about itself: its source (`Card`) and its cost (`Cost`,
both in `layers/cards.py`). The cost of a component is the sum of the costs of its parts.

Costs are those of one sequence, one forward pass, every key visible, no dropout, the plain kernel,
float32. FLOPs count

    a matrix product [m,k] x [k,n]                       2 m k n (a multiply-add is two)
    work on a pair of query and key                      1 for each of + - * /, the larger of two, exp, tanh, sqrt, sigmoid
    a sum or a largest over n numbers                    n
    a sort of n numbers, their running sums              n log2 n, 2 n

A softmax thus costs 5 for each pair and head: largest, difference, exponential, sum, quotient; a
norm 3 to 7 and a rotation 3 for each number. Not counted: one operation for each number of a query,
key or context (biases, scales, gates, residual sums), and what is no arithmetic (comparing,
selecting, masks, moving data, indices). Axis letters: Tq queries, Tk keys, H heads, K key heads, D
head width, d width of the context, dq/ds widths of query and source.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

from attnlab.config.registry import made
from attnlab.layers.cards import Card as Card
from attnlab.layers.cards import Cost as Cost
from attnlab.layers.cards import dense as dense

Function = TypeVar("Function", bound=Callable[..., Any])
FLOAT = 4  # bytes of a number in a memory, float32; bfloat16 has half of it


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one look of a mechanism at one sequence.

    Attributes:
      queries, keys: Tq and Tk.
      heads, key_heads: H and K.
      query_width, key_width, value_width: of one head.
      value_heads: heads that values are summed over.
      width: dq, of the queries before projection.
    """

    queries: int
    keys: int
    heads: int
    key_heads: int
    query_width: int
    key_width: int
    value_width: int
    value_heads: int
    width: int

    @property
    def pairs(self) -> int:
        """H Tq Tk."""
        return self.heads * self.queries * self.keys


def carrying(card: Card) -> Callable[[Function], Function]:
    """A decorator that gives a component that is a function its card."""

    def decorate(function: Function) -> Function:
        function.card = card  # type: ignore[attr-defined]
        return function

    return decorate


def memory(slots: int, numbers: int) -> Cost:
    """A `Memory` of `slots` with so many numbers in each, their `valid` and its `length`."""
    return Cost(state_bytes=slots * (FLOAT * numbers + 1) + 4)


def of_parts(mechanism: Any, at: Sizes) -> Cost:
    """The cost of the score, alignment and position scheme of a mechanism, as far as it has them."""
    fields = [field for field in ("score", "alignment", "positions") if field in mechanism.parts]
    return sum(
        (
            made(mechanism.parts[field], getattr(mechanism, field))(parent=None).cost(at)
            for field in fields
        ),
        Cost(),
    )


def sorting(numbers: int, of: int) -> int:
    """FLOPs of sorting `numbers` numbers, `of` at a time."""
    return round(numbers * math.log2(max(of, 2)))
