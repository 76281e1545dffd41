"""A config with any part in any slot either builds, or is refused by name when it is checked. Every
mechanism is asked for every part, multi-head attention for every pair; there every part is built, of
pairs and elsewhere one of those that declare the same. Nothing is compiled.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.kernels import KERNELS
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.grid import OnGrid
from attnlab.attention.scores import SCORES
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.errors import UserError
from tests.attention import visibility_oracles
from tests.attention.cases import WIDTH
from tests.sampling import full_mode

SLOTS = {
    "encoder": Need(role="self"),
    "decoder": Need(role="self", direction="causal", cache=True, stepwise=True),
    "cross": Need(role="cross", stepwise=True),
    "carrying": Need(role="cross", stepwise=True, history=True),
}
REFUSALS = (  # field, parts, slots, what the message says
    ("positions", "sinusoidal sinusoidal_2d learned syntax", "*", "acts on embeddings"),
    ("positions", "shaw transformer_xl t5 alibi rope cope", "cross carrying", "one sequence"),
    ("positions", "rope_2d syntax_relative", "cross carrying", "one sequence"),
    ("positions", "rope_2d", "encoder decoder", "needs rows and columns"),
    ("positions", "syntax_relative", "encoder decoder", "needs dependency trees"),
    ("positions", "cope", "encoder", "counts back"),
    ("alignment", "monotonic temporal selective", "decoder cross", "one by one"),
    ("score", "location_aware coverage", "decoder cross", "nothing is carried on"),
    ("alignment", "diagonal local_m local_p local_p_renormalised", "decoder", "the future"),
    ("alignment", "stick_breaking moba", "encoder cross carrying", "what stands between"),
    ("alignment", "selective", "encoder carrying", "what stands between"),
)
REFUSED = {
    (field, part, slot): words
    for field, parts, slots, words in REFUSALS
    for part in parts.split()
    for slot in (SLOTS if slots == "*" else slots.split())
}
TABLES = {"score": SCORES, "alignment": ALIGNMENTS, "positions": POSITIONS}
PARTS = [(field, part) for field, table in TABLES.items() for part in table.names()]
PAIRS = [
    (field, part, other)
    for field, other in itertools.combinations(TABLES, 2)
    for part in TABLES[field].names()
]


def builds(name: str, chosen: dict[str, Any], slot: str, visibility: View = EVERYTHING) -> None:
    """A mechanism with these fields can be initialised and read as the slot reads it; shapes only,
    nothing is computed.
    """
    need = SLOTS[slot]
    module = MECHANISMS.resolve(name)(width=WIDTH, **chosen)
    x, y = jnp.zeros((2, 5, WIDTH)), jnp.zeros((2, 4 if need.role == "cross" else 5, WIDTH))
    seen = visibility & CAUSAL if need.direction == "causal" else visibility
    reading: Any = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), x, y, seen)[0])
    assert reading.context.shape == (2, 5, WIDTH)


def takes(name: str, chosen: dict[str, Any], slot: str) -> bool:
    """Whether a slot takes a mechanism with these parts; where it does not, the refusal says which
    field it is and names a part.
    """
    try:
        SLOTS[slot].check(MECHANISMS.resolve(name), "slot", chosen)
    except UserError as error:
        named = [TABLES[field].resolve(part).__name__ for field, part in chosen.items()]
        assert re.match(r"slot\.(score|alignment|positions): ", str(error)) and any(
            name in str(error) for name in named
        ), error
        return False
    return True


@pytest.mark.quick
@pytest.mark.parametrize(("field", "part"), PARTS, ids=["-".join(case) for case in PARTS])
def test_multihead_takes_a_part_or_refuses_it_by_name(field: str, part: str) -> None:
    mechanism = MECHANISMS.resolve("multihead")
    for slot, need in SLOTS.items():
        reason = REFUSED.get((field, part, slot))
        if reason is not None:
            with pytest.raises(UserError, match=rf"slot\.{field}: .*{reason}"):
                need.check(mechanism, "slot", {field: part})
            continue
        need.check(mechanism, "slot", {field: part})
        builds("multihead", {"heads": 3, field: part}, slot)


def test_a_score_that_wraps_another_turns_as_that_one_does() -> None:
    wrapped = {"score": {"name": "soft_capped", "score": "additive"}, "positions": "rope"}
    with pytest.raises(
        UserError, match=r"\.positions: Rope turns queries and keys, .*SoftCapped does"
    ):
        SLOTS["encoder"].check(MECHANISMS.resolve("multihead"), "slot", wrapped)


@pytest.mark.quick
@pytest.mark.parametrize("scheme", POSITIONS.names())
@pytest.mark.parametrize("name", MECHANISMS.names())
def test_a_mechanism_takes_the_hooks_it_offers(name: str, scheme: str) -> None:
    mechanism = MECHANISMS.resolve(name)
    if "positions" not in getattr(mechanism, "parts", {}):
        pytest.skip("has no place for a position scheme")
    hooks = POSITIONS.resolve(scheme).hooks
    if hooks <= mechanism.capabilities.positions:
        places: Any = "grid" if issubclass(POSITIONS.resolve(scheme), OnGrid) else "trees"
        need = Need(role="self", direction="causal", places=places)
        need.check(mechanism, "slot", {"positions": scheme})
    else:
        with pytest.raises(UserError, match=r"slot\.positions: "):
            SLOTS["decoder"].check(mechanism, "slot", {"positions": scheme})


@functools.cache
def declared(field: str, part: str) -> tuple[Any, ...]:
    """What a part says of itself that decides how a mechanism uses it."""
    says = {
        "score": ("product", "rotary", "places", "looks_back"),
        "alignment": ("form", "sums_to", "looks_at"),
        "positions": ("hooks", "trees"),
    }
    component = TABLES[field].resolve(part)(parent=None)
    return tuple(getattr(component, one) for one in says[field])


def alike(field: str, part: str) -> str:
    """The first part that declares the same."""
    same = declared(field, part)
    return next(one for one in TABLES[field].names() if declared(field, one) == same)


@pytest.mark.parametrize(("field", "part", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_two_parts_go_together_unless_one_is_refused_alone_or_a_turn_is(
    field: str, part: str, other: str
) -> None:
    """In the full mode every two that declare something of their own are built."""
    first = alike(field, part) == part
    for second in TABLES[other].names():
        chosen = {field: part, other: second}
        built = not (full_mode() and first and alike(other, second) == second)
        turned = other == "positions" and "query_key" in POSITIONS.resolve(second).hooks
        turned = turned and field == "score" and not SCORES.resolve(part)(parent=None).rotary
        for slot in SLOTS:
            alone = [takes("multihead", {kind: chosen[kind]}, slot) for kind in chosen]
            expected = all(alone) and not turned
            assert takes("multihead", chosen, slot) == expected, (chosen, slot)
            if expected and not built:
                builds("multihead", {"heads": 3, **chosen}, slot)
                built = True


def together(name: str, granted: dict[str, dict[str, str]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every way in which a part is used, once, with a slot that takes it: parts that declare the
    same are used in the same way. Of each kind one at a time, where they go together.
    """
    for field, parts in granted.items():
        kinds = {declared(field, part): part for part in parts}
        granted = granted | {field: {part: parts[part] for part in kinds.values()}}
    while any(granted.values()):
        chosen: dict[str, Any] = {}
        slot = None
        for field, parts in granted.items():
            for part, where in parts.items():
                if slot in (None, where) and takes(name, chosen | {field: part}, where):
                    chosen[field], slot = part, where
                    break
            parts.pop(chosen.get(field, ""), None)
        assert slot is not None
        yield chosen, slot


def fitting(name: str) -> list[str]:
    """The slots for whose role and direction a mechanism is."""
    can = MECHANISMS.resolve(name).capabilities
    fits = lambda need: need.role in can.roles and need.direction in can.directions
    return [slot for slot, need in SLOTS.items() if fits(need)]


@pytest.mark.product("mechanisms")
@pytest.mark.parametrize("name", [name for name in MECHANISMS.names() if name != "multihead"])
def test_every_mechanism_takes_a_part_or_refuses_it_by_name(name: str) -> None:
    mechanism = MECHANISMS.resolve(name)
    fixed = {"heads": 6} if hasattr(mechanism, "heads") else {}
    granted: dict[str, dict[str, str]] = {}
    for field in [field for field in getattr(mechanism, "parts", {}) if field in TABLES]:
        of_part = {
            part: [slot for slot in fitting(name) if takes(name, {field: part}, slot)]
            for part in TABLES[field].names()
        }
        granted[field] = {part: slots[0] for part, slots in of_part.items() if slots}
        assert len(granted[field]) >= 2  # not all of them are refused
    for chosen, slot in together(name, granted):
        builds(name, fixed | chosen, slot)


@pytest.mark.product("mechanisms")
@pytest.mark.parametrize("name", MECHANISMS.names())
def test_every_mechanism_takes_a_rule_or_refuses_it_by_its_heads(name: str) -> None:
    """All of the rules are built in multi-head attention; elsewhere one of those whose masks have
    equal axes.
    """
    built = set()
    for label, (rule, _) in visibility_oracles.cases().items():
        mechanism = MECHANISMS.resolve(name)
        slot = fitting(name)[0]
        need = SLOTS[slot].under(rule)
        chosen = {"heads": visibility_oracles.HEADS} if hasattr(mechanism, "heads") else {}
        try:
            need.check(mechanism, "slot", chosen)
        except UserError as error:
            words = "(the dir|a vis)"
            if mechanism.capabilities.dense:
                assert need.heads > 1, (label, error)
                words = f"a visibility of {need.heads} heads; it has"
            assert re.match(f"slot: {mechanism.__name__} does not support {words}", str(error))
            continue
        axes = jax.eval_shape(rule.allows, np.arange(5), np.arange(5)).shape
        if name == "multihead" or axes not in built:
            builds(name, chosen, slot, View(rule))
        built.add(axes)


@pytest.mark.quick
@pytest.mark.parametrize("kernel", KERNELS.names())
def test_pairs_of_kernel_and_alignment_are_refused_when_the_config_is_checked(kernel: str) -> None:
    fit = {
        "blockwise": {"softmax", "softmax_plus_one", "sink", "sigmoid", "scalable_softmax"},
        "xla": {"softmax"},
        "cudnn": {"softmax"},
        "gathered": {"moba"},
    }
    for alignment in ALIGNMENTS.names():
        causal = ALIGNMENTS.resolve(alignment).looks_between
        need = Need(role="self", direction="causal" if causal else "bidirectional")
        chosen = {"kernel": kernel, "alignment": alignment}
        words = rf"slot\.kernel: kernel '{kernel}' .*kernel='plain'"
        fits = alignment in fit.get(kernel, {alignment})
        with nullcontext() if fits else pytest.raises(UserError, match=words):
            need.check(MECHANISMS.resolve("multihead"), "slot", chosen)
    words = rf"slot\.kernel: .*whole maps, which '{kernel}' never has; choose 'auto', 'plain'"
    for name in ("talking_heads", "differential"):
        fits = kernel in ("auto", "plain")
        with nullcontext() if fits else pytest.raises(UserError, match=words):
            need.check(MECHANISMS.resolve(name), "slot", {"kernel": kernel})
