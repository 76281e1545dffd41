"""Every registered component carries a card, and its complexity is how the work of its program
grows.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.analysis.work import work
from attnlab.api.costs import Cost, cost
from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.positions import POSITIONS
from attnlab.attention.scores import SCORES
from attnlab.attention.view import View
from attnlab.attention.visibility import VISIBILITIES
from attnlab.layers import cards
from attnlab.layers.cards import Card
from attnlab.mixers import MIXERS

TABLES = {
    "mechanism": MECHANISMS,
    "score": SCORES,
    "alignment": ALIGNMENTS,
    "positions": POSITIONS,
    "visibility": VISIBILITIES,
}
EVERY = [(kind, name) for kind, table in TABLES.items() for name in table.names()]
RULES = ("rule", "given", "sparse")
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
# Lengths and widths, and which is doubled: so far apart that one term is most.
FAR = {"T": (3072, 24), "d": (16, 3 * 2**12)}
FIELDS: dict[str, Any] = {"linformer": {"length": 8192, "rank": 1}, "synthesizer": {"length": 8192}}
# What a program has beside the arithmetic of a card, at lengths where it is not small: comparisons
# of positions with a limit, of ranks of blocks; a sort of comparisons alone; a sum of one number.
BESIDE = {("location", "T"), ("moba", "T"), ("top_k", "T"), ("source_only", "T")}
every = pytest.mark.parametrize(("kind", "name"), EVERY, ids=["-".join(one) for one in EVERY])


def card_of(kind: str, name: str) -> Card:
    """The card that a registered component itself carries; an error where it has none."""
    card = cards.card_of(TABLES[kind].resolve(name))
    assert card is not None, f"{kind} {name} carries no card of its own"
    return card


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


def check_growth(of: Callable[[int, int], float], text: str, letter: str) -> None:
    """A number, by length and width, grows as a card says when a letter is doubled."""
    length, width = FAR[letter]
    letters = {"T": float(length), "d": float(width), "D": float(width)}
    twice = of(2 * length, width) if letter == "T" else of(length, 2 * width)
    grown = math.log2(twice / of(length, width))
    assert grown == pytest.approx(growth(text, letters, letter), abs=0.15)


def shaped(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def operations(module: Any, method: Any, *given: Any) -> float:
    """Of a method of a module, or a function that takes it, on arrays of these shapes."""
    init = functools.partial(module.init, jax.random.key(0), method=method)
    result = work(
        functools.partial(module.apply, method=method), jax.eval_shape(init, *given), *given
    )
    return result.flops + result.transcendentals - result.sums


def score_cost(name: str, length: int, width: int) -> float:
    """Of a score, for queries and keys [1,1,length,width]."""
    module = SCORES.resolve(name)()

    def scored(module: Any, q: Any, k: Any) -> Any:
        past = (jnp.zeros((1, 1, length, length)),) if module.looks_back else ()
        raised = module.of_query(q, width) * module.scale(width)
        return module.pairs(raised, module.of_key(k), jnp.arange(length), *past)

    return operations(module, scored, *2 * [shaped(1, 1, length, width)])


def alignment_cost(name: str, length: int, width: int) -> float:
    """Of an alignment, for scores [1,1,length,length] of queries of a width."""
    at = jnp.arange(length)

    def aligned(module: Any, scores: Any, mask: Any, query: Any, real: Any) -> Any:
        view = View(query=query, valid=at < real[:, None])
        return module(scores, mask, view.among(at, at))

    given = shaped(1, 1, length, length), shaped(1, 1, 1, length, dtype=bool)
    given += shaped(1, length, width), shaped(1, dtype=jnp.int32)
    return operations(ALIGNMENTS.resolve(name)(), aligned, *given)


def positions_cost(name: str, length: int, width: int) -> float:
    """Of a scheme: what it does to embeddings, or what it adds to one head of attention."""
    scheme = POSITIONS.resolve(name)()
    if "embedding" in scheme.hooks:
        given = shaped(1, length, width), shaped(1, length, dtype=jnp.int32)
        return operations(scheme, "embed", *given)

    def whole(name: str) -> float:
        module = MECHANISMS.resolve("multihead")(width=width, heads=1, positions=name)
        return cost(module, length, direction="bidirectional").flops

    return whole(name) - whole("none")


@every
@pytest.mark.quick
def test_every_component_says_where_it_comes_from(kind: str, name: str) -> None:
    card = card_of(kind, name)
    assert card.family and 1960 <= card.year <= 2026


@pytest.mark.parametrize("letter", FAR)
@pytest.mark.parametrize("name", MECHANISMS.names())
@pytest.mark.product("mechanisms")
def test_a_mechanism_grows_as_its_card_says(name: str, letter: str) -> None:
    card, mechanism = card_of("mechanism", name), MECHANISMS.resolve(name)

    def counted(length: int, width: int) -> Cost:
        module = mechanism(width=width, **FIELDS.get(name, {}))
        return cost(module, length, direction=min(module.capabilities.directions))

    check_growth(lambda *sizes: counted(*sizes).flops, card.time, letter)
    check_growth(lambda *sizes: counted(*sizes).state_bytes, card.state, letter)


COUNTS = {"score": score_cost, "alignment": alignment_cost, "positions": positions_cost}
PARTS = [
    (kind, name, letter)
    for kind, name in EVERY
    for letter in FAR
    if kind in COUNTS and name != "none" and (name, letter) not in BESIDE
    if (name, letter) not in (("t5", "d"), ("alibi", "d"))  # the width adds nothing
]


@pytest.mark.parametrize(("kind", "name", "letter"), PARTS, ids=["-".join(one) for one in PARTS])
@pytest.mark.product("parts")
def test_a_part_grows_as_its_card_says(kind: str, name: str, letter: str) -> None:
    text = card_of(kind, name).time.replace("D", "d")
    check_growth(functools.partial(COUNTS[kind], name), text, letter)
    if kind == "score":
        text = card_of(kind, name).state.replace("D", "d")
        check_growth(lambda length, width: length * _kept(name, width), text, letter)


def _kept(name: str, width: int) -> int:
    """How many numbers a score keeps of a key."""
    init = functools.partial(SCORES.resolve(name)().init_with_output, jax.random.key(0))
    key, _ = jax.eval_shape(functools.partial(init, method="of_key"), shaped(1, 1, 1, width))
    return int(key.shape[-1])


def test_controls_cost_what_they_stand_for_or_nothing() -> None:
    assert card_of("positions", "none").time == "0"
    assert alignment_cost("uniform", 8, 4) == alignment_cost("softmax", 8, 4)


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


@pytest.mark.parametrize("name", sorted({*MIXERS.names()} - {"by_layer", "none"}))
def test_a_mixer_says_how_far_tokens_are_apart_and_what_follows_one_another(name: str) -> None:
    card = cards.card_of(MIXERS.resolve(name))
    assert card and card.path and card.steps, f"{name}: path, steps"
    letters = dict.fromkeys("NkCwmMrcbsL", 4.0) | {"T": 256.0}
    for text in (card.path, card.steps):
        assert 1.0 <= value(text, letters) <= 256.0, f"{name}: {text}"
