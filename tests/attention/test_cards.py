"""Every registered component carries a card, its facts are those of its docstring, and its
complexity is how its cost grows.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import re
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


def growth(text: str, letters: dict[str, float], doubled: str) -> float:
    """By which power of two a complexity in words grows as letters double."""
    formula = re.sub(
        r"(?<=[\w)]) +(?=[\w(])", " * ", text.replace("^", "**").replace("log T", "log")
    )

    def value(of: dict[str, float]) -> float:
        known = {
            "N": 2.0,
            "k": 16.0,
            "L": 50.0,
            "log": math.log2(of["T"]),
            **dict.fromkeys("ARCHKrwlcbgn", 4.0),
            **of,
        }
        return float(eval(formula, {"__builtins__": {}}, known))

    return math.log2(
        value({letter: n * (1 + (letter in doubled)) for letter, n in letters.items()})
        / value(letters)
    )


@every
@pytest.mark.quick
def test_the_facts_on_a_card_are_those_of_the_docstring(kind: str, name: str) -> None:
    card, text = card_of(kind, name), documentation(kind, name)
    assert card.family and 1960 <= card.year <= 2026
    assert str(card.year) in card.source and str(card.year) in text
    author = re.split(r"[ ,]", card.source.removeprefix("as in "))[0]
    assert author in text, f"the docstring does not name {author}"


# Lengths and widths, and which is doubled: so far apart that one term is all, or both so long that
# it is the one of the highest order.
FAR = {"T": (2**26, 192), "d": (64, 3 * 2**18), "Td": (2**22, 3 * 2**22)}


@pytest.mark.quick
@pytest.mark.parametrize("letter", FAR)
@pytest.mark.parametrize("name", MECHANISMS.names())
def test_a_mechanism_grows_as_its_card_says(name: str, letter: str) -> None:
    card, mechanism = card_of("mechanism", name), MECHANISMS.resolve(name)
    length, width = FAR[letter]

    def cost(length: int, width: int) -> Any:
        return mechanism(width=width, parent=None).cost(length, length, width, width)

    once, twice = (
        cost(length, width),
        cost(length * (1 + ("T" in letter)), width * (1 + ("d" in letter))),
    )
    letters = {"T": float(length), "d": float(width)}
    assert math.log2(twice.flops / once.flops) == pytest.approx(
        growth(card.time, letters, letter), abs=0.04
    )
    assert math.log2(twice.state_bytes / once.state_bytes) == pytest.approx(
        growth(card.state, letters, letter), abs=0.04
    )


PARTS = [
    (kind, name)
    for kind, name in EVERY
    if kind in ("score", "alignment", "positions") and name != "none"
]


@pytest.mark.quick
@pytest.mark.parametrize("letter", FAR)
@pytest.mark.parametrize(("kind", "name"), PARTS, ids=["-".join(one) for one in PARTS])
def test_a_part_grows_as_its_card_says(kind: str, name: str, letter: str) -> None:
    card, part = card_of(kind, name), TABLES[kind].resolve(name)(parent=None)
    length, width = FAR[letter]
    sizes = [
        Sizes(t, t, 1, 1, n, n, n, 1, n)
        for t, n in (
            (length, width),
            (length * (1 + ("T" in letter)), width * (1 + ("d" in letter))),
        )
    ]
    letters = {"T": float(length), "d": float(width), "D": float(width)}
    both = functools.partial(growth, card.time.replace("D", "d"), letters, letter)
    once, twice = (part.cost(at).flops for at in sizes)
    assert math.log2(twice / once) == pytest.approx(both(), abs=0.04)
    if kind == "score":
        kept = [at.keys * part.kept(at.key_width) for at in sizes]
        assert math.log2(kept[1] / kept[0]) == pytest.approx(
            growth(card.state.replace("D", "d"), letters, letter), abs=0.04
        )


def test_no_positions_cost_nothing() -> None:
    assert (
        card_of("positions", "none").time == "0"
        and not POSITIONS.resolve("none")().cost(Sizes(4, 4, 1, 1, 1, 1, 1, 1, 1)).flops
    )


@pytest.mark.quick
@pytest.mark.parametrize(
    "name", [name for name in VISIBILITIES.names() if card_of("visibility", name).time]
)
def test_a_visibility_shows_as_many_pairs_as_its_card_says(name: str) -> None:
    def seen(length: int) -> int:
        fields = (
            {"length": length, "block": 4, "random": 2}
            if name == "bigbird"
            else SMALL.get(name, {})
        )
        at = np.arange(length)
        return int(
            np.broadcast_to(
                VISIBILITIES.resolve(name)(**fields).allows(at, at), (1, 1, length, length)
            ).sum()
        )

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
    letters = dict.fromkeys("NkCwmMrcbsL", 4.0) | {"T": 256.0, "log": 8.0}
    for text in (card.path, card.steps):
        formula = re.sub(r"(?<=[\w)]) +(?=[\w(])", " * ", text.replace("^", "**"))
        found = eval(formula.replace("log * T", "log"), {"__builtins__": {}}, letters)
        assert 1.0 <= found <= 256.0, f"{name}: {text}"
