"""Every part in every slot: a config either builds, or is refused by name when it is checked. The full matrix, nothing compiled."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import Need
from attnlab.attention.scores import SCORES
from attnlab.attention.visibility import CAUSAL, EVERYTHING
from attnlab.errors import UserError
from tests.attention.cases import WIDTH

SLOTS = {
    "encoder": Need(role="self"),
    "decoder": Need(role="self", direction="causal", cache=True, stepwise=True),
    "cross": Need(role="cross", stepwise=True),
}
REFUSED = {  # (field, part, slot): what the message says
    **{("positions", name, slot): "acts on embeddings" for name in ("sinusoidal", "learned", "syntax") for slot in SLOTS},
    **{("positions", name, "cross"): "one sequence" for name in ("shaw", "transformer_xl", "t5", "alibi", "rope")},
    **{("alignment", "monotonic", slot): "one by one" for slot in ("decoder", "cross")},
    **{("alignment", name, "decoder"): "the future" for name in ("local_m", "local_p", "local_p_renormalised")},
}
CASES = [
    (field, part, slot)
    for field, table in (("score", SCORES), ("alignment", ALIGNMENTS), ("positions", POSITIONS))
    for part, slot in itertools.product(table.names(), SLOTS)
]


@pytest.mark.quick
@pytest.mark.parametrize(("field", "part", "slot"), CASES, ids=["-".join(case) for case in CASES])
def test_multihead_takes_a_part_or_refuses_it_by_name(field: str, part: str, slot: str) -> None:
    mechanism, need = MECHANISMS.resolve("multihead"), SLOTS[slot]
    reason = REFUSED.get((field, part, slot))
    if reason is not None:
        with pytest.raises(UserError, match=rf"slot\.{field}: .*{reason}"):
            need.check(mechanism, "slot", {field: part})
        return
    need.check(mechanism, "slot", {field: part})
    module = mechanism(width=WIDTH, heads=3, **{field: part})
    x, y = jnp.zeros((2, 5, WIDTH)), jnp.zeros((2, 4 if need.role == "cross" else 5, WIDTH))
    visibility = CAUSAL if need.direction == "causal" else EVERYTHING
    reading: Any = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), x, y, visibility)[0])
    assert reading.context.shape == (2, 5, WIDTH)


TURNED = list(itertools.product(SCORES.names(), ("rope", "transformer_xl")))


@pytest.mark.quick
@pytest.mark.parametrize(("score", "scheme"), TURNED, ids=["-".join(case) for case in TURNED])
def test_schemes_that_turn_go_with_scores_that_allow_it(score: str, scheme: str) -> None:
    mechanism = MECHANISMS.resolve("multihead")
    chosen = {"score": score, "positions": scheme}
    if SCORES.resolve(score)(parent=None).rotary:
        SLOTS["encoder"].check(mechanism, "slot", chosen)
    else:
        with pytest.raises(UserError, match=r"slot\.positions: .* turns queries and keys, which .* does not allow"):
            SLOTS["encoder"].check(mechanism, "slot", chosen)


def test_a_score_that_wraps_another_turns_as_that_one_does() -> None:
    wrapped = {"score": {"name": "soft_capped", "score": "additive"}, "positions": "rope"}
    with pytest.raises(UserError, match="SoftCapped does not allow"):
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
        SLOTS["encoder"].check(mechanism, "slot", {"positions": scheme})
    else:
        with pytest.raises(UserError, match=r"slot\.positions: "):
            SLOTS["encoder"].check(mechanism, "slot", {"positions": scheme})
