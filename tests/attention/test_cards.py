"""Every registered component carries a card, its facts are those of its docstring, and its
complexity is how its cost grows.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.cards import Card, Sizes
from attnlab.attention.positions import POSITIONS
from attnlab.attention.scores import SCORES
from attnlab.attention.visibility import VISIBILITIES
from attnlab.commands.describe import Origin, origin
from attnlab.mixers import MIXERS

TABLES = {
    "mechanism": MECHANISMS,
    "score": SCORES,
    "alignment": ALIGNMENTS,
    "positions": POSITIONS,
    "visibility": VISIBILITIES,
}
EVERY = [(kind, name) for kind, table in TABLES.items() for name in table.names()]
RULES = ("rule", "bands", "given", "longformer", "bigbird", "sparse_transformer")
SMALL: dict[str, dict[str, Any]] = {  # patterns far smaller than a sequence of 256
    "window": {"width": 4},
    "dilated": {"width": 4},
    "stride": {"stride": 4},
    "local": {"block": 4},
    "summary": {"stride": 4, "width": 2},
    "first": {"length": 4},
    "prefix": {"length": 4},
    "strided": {"stride": 4},
    "fixed": {"stride": 4, "summary": 2},
    "longformer": {"window": 4},
}
# Lengths and widths, and which is doubled: so far apart that one term is all, or both so long that
# it is the one of the highest order.
FAR = {"T": (2**26, 192), "d": (64, 3 * 2**18), "Td": (2**22, 3 * 2**22)}
every = pytest.mark.parametrize(("kind", "name"), EVERY, ids=["-".join(one) for one in EVERY])


def card_of(kind: str, name: str) -> Card:
    component = TABLES[kind].resolve(name)
    card = vars(component).get("card")
    assert isinstance(card, Card), f"{kind} {name} carries no card of its own"
    return card


def documentation(kind: str, name: str) -> str:
    """The docstring of the module a component stands in; for a named rule, which has its facts with
    the rule itself, of all rules.
    """
    if kind == "visibility":
        return " ".join(
            importlib.import_module(f"attnlab.attention.visibility.{module}").__doc__ or ""
            for module in RULES
        )
    return inspect.getmodule(TABLES[kind].resolve(name)).__doc__ or ""  # type: ignore[union-attr]


def value(text: str, letters: dict[str, float]) -> float:
    """A complexity in words, for these letters."""
    formula = text.replace("^", "**").replace("log T", "log")
    formula = re.sub(r"(?<=[\w)]) +(?=[\w(])", " * ", formula)
    return float(eval(formula, {"__builtins__": {}}, letters | {"log": math.log2(letters["T"])}))


def growth(text: str, letters: dict[str, float], doubled: str) -> float:
    """By which power of two a complexity in words grows as letters double."""
    known = {"T": 1.0, "N": 2.0, "k": 16.0, "L": 50.0} | dict.fromkeys("ARCHKrwlcbgn", 4.0)
    known |= letters
    twice = {letter: n * (1 + (letter in doubled)) for letter, n in letters.items()}
    return math.log2(value(text, known | twice) / value(text, known))


def cost_growth(of: Callable[[int, int], Any], letter: str) -> tuple[Any, Any, dict[str, float]]:
    """What a function of length and width gives before and after letters double, and the letters."""
    length, width = FAR[letter]
    once = of(length, width)
    twice = of(length * (1 + ("T" in letter)), width * (1 + ("d" in letter)))
    return once, twice, {"T": float(length), "d": float(width), "D": float(width)}


@every
@pytest.mark.quick
def test_the_facts_on_a_card_are_those_of_the_docstring(kind: str, name: str) -> None:
    card, text = card_of(kind, name), documentation(kind, name)
    assert card.family and 1960 <= card.year <= 2026
    assert str(card.year) in card.source and str(card.year) in text
    author = re.split(r"[ ,]", card.source.removeprefix("as in "))[0]
    assert author in text, f"the docstring does not name {author}"


@pytest.mark.quick
@pytest.mark.parametrize("letter", FAR)
@pytest.mark.parametrize("name", MECHANISMS.names())
def test_a_mechanism_grows_as_its_card_says(name: str, letter: str) -> None:
    card, mechanism = card_of("mechanism", name), MECHANISMS.resolve(name)

    def cost(length: int, width: int) -> Any:
        return mechanism(width=width, parent=None).cost(length, length, width, width)

    once, twice, letters = cost_growth(cost, letter)
    for before, after, text in (
        (once.flops, twice.flops, card.time),
        (once.state_bytes, twice.state_bytes, card.state),
    ):
        expected = growth(text, letters, letter)
        assert math.log2(after / before) == pytest.approx(expected, abs=0.04)


KINDS = ("score", "alignment", "positions")
PARTS = [(kind, name) for kind, name in EVERY if kind in KINDS and name != "none"]


@pytest.mark.quick
@pytest.mark.parametrize("letter", FAR)
@pytest.mark.parametrize(("kind", "name"), PARTS, ids=["-".join(one) for one in PARTS])
def test_a_part_grows_as_its_card_says(kind: str, name: str, letter: str) -> None:
    card, part = card_of(kind, name), TABLES[kind].resolve(name)(parent=None)
    sizes = lambda t, n: Sizes(t, t, 1, 1, n, n, n, 1, n)
    once, twice, letters = cost_growth(sizes, letter)
    expected = growth(card.time.replace("D", "d"), letters, letter)
    grown = math.log2(part.cost(twice).flops / part.cost(once).flops)
    assert grown == pytest.approx(expected, abs=0.04)
    if kind == "score":
        kept = [at.keys * part.kept(at.key_width) for at in (once, twice)]
        expected = growth(card.state.replace("D", "d"), letters, letter)
        assert math.log2(kept[1] / kept[0]) == pytest.approx(expected, abs=0.04)


def test_no_positions_cost_nothing() -> None:
    assert card_of("positions", "none").time == "0"
    assert not POSITIONS.resolve("none")().cost(Sizes(4, 4, 1, 1, 1, 1, 1, 1, 1)).flops


@pytest.mark.quick
@pytest.mark.parametrize(
    "name", [name for name in VISIBILITIES.names() if card_of("visibility", name).time]
)
def test_a_visibility_shows_as_many_pairs_as_its_card_says(name: str) -> None:
    def seen(length: int) -> int:
        of_bigbird = {"length": length, "block": 4, "random": 2}
        fields = of_bigbird if name == "bigbird" else SMALL.get(name, {})
        at = np.arange(length)
        mask = VISIBILITIES.resolve(name)(**fields).allows(at, at)
        return int(np.broadcast_to(mask, (1, 1, length, length)).sum())

    card = card_of("visibility", name)
    assert math.log2(seen(512) / seen(256)) == pytest.approx(
        growth(card.time, {"T": 256.0}, "T"), abs=0.1
    )


def test_a_card_is_not_inherited() -> None:
    class Mine(MECHANISMS.resolve("multihead")):  # type: ignore[misc]
        """Somebody's own."""

    assert origin(Mine) == Origin() != origin(MECHANISMS.resolve("multihead"))


@pytest.mark.parametrize("name", sorted({*MIXERS.names()} - {"by_layer", "none"}))
def test_a_mixer_says_how_far_tokens_are_apart_and_what_follows_one_another(name: str) -> None:
    card = vars(MIXERS.resolve(name)).get("card")
    assert isinstance(card, Card) and card.path and card.steps, f"{name}: path, steps"
    letters = dict.fromkeys("NkCwmMrcbsL", 4.0) | {"T": 256.0}
    for text in (card.path, card.steps):
        assert 1.0 <= value(text, letters) <= 256.0, f"{name}: {text}"
