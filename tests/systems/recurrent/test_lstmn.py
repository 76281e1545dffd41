"""LSTMNs beyond what their oracles hold: what is told of maps, shallow fusion, and long texts that
are read in pieces.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.config.registry import build
from attnlab.data.vocabulary import PAD
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier
from attnlab.tasks.models import system_factory
from tests.systems import checks, classifiers
from tests.systems.language_models import SPECS, parameters
from tests.systems.tiny import make, seldom

WRITING = checks.SPECS["lstmn_seq2seq"]


def test_the_map_of_a_single_step_holds_that_step_which_does_not_see_itself() -> None:
    """Its slot is the last of a map with room to spare; where that is left out, the last one is the
    step's before.
    """
    weights = np.array([0.25, 0.75, 0.0], np.float32).reshape(1, 1, 1, 3)
    for collected in (weights, weights[..., :2]):
        left = {"readers": {"decoder": {"attention": {"weights": (collected,)}}}}
        maps = make(WRITING).maps(left)
        assert maps["readers/decoder/attention"].weights.tolist() == [[[[0.0]]]]


@pytest.mark.quick
def test_fusion_without_a_second_text_is_named() -> None:
    _, params, system = classifiers.prepared(classifiers.SPECS["lstmn_pair-deep"], 2)
    words = "lstmn_pair: deep fusion wants two texts, here is one; choose 'lstmn_classifier'"
    with pytest.raises(UserError, match=words):
        system.apply({"params": params}, classifiers.batch(1)[0])
    assert system.texts == (2,) and SYSTEMS.resolve("lstmn_classifier").texts == (1,)
    shallow = {**classifiers.SPECS["lstmn_pair-shallow"], "inter_attention": {"name": "key_value"}}
    assert system_factory(ConfigDict({"system": shallow}), Classifier)  # takes what it looks at


@pytest.mark.parametrize(
    ("dtype", "layers"), seldom((("float32", 1), ("float32", 2), ("bfloat16", 1)), ("float32", 1))
)
def test_a_long_text_is_read_in_pieces_as_in_one(dtype: str, layers: int) -> None:
    """Who watches gets one piece; logits, states and gradients are the same, padding in a row or
    not.
    """
    spec = {**SPECS["lstmn_lm"], "layers": layers}
    system: Any = build(SYSTEMS, ConfigDict(spec), "system")(vocabulary=11)
    tokens = np.random.default_rng(0).integers(4, 11, (3, 21))
    tokens[1, 13:], tokens[2] = PAD, PAD
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), parameters(system, tokens[:, :2]))
    state = system.apply({"params": params}, 3, 0, method="start")

    def both(params: Any, watched: bool) -> Any:
        actual = system.apply(
            {"params": params}, state, tokens, method="read", mutable=[MAPS] if watched else False
        )
        logits, after = actual[0] if watched else actual
        return (np.asarray(tokens != PAD)[..., None] * logits**2).sum(), (logits[:2, :13], after)

    traced = [
        jax.jit(jax.value_and_grad(functools.partial(both, watched=w), has_aux=True)).trace(params)
        for w in (False, True)
    ]
    actual, expected = (one.lower().compile()(params) for one in traced)
    pieces = ["length=3" in str(one.jaxpr) for one in traced]
    assert pieces == [True, False] and actual[0][1][0].dtype == dtype
    bound = 1e-5 if dtype == "float32" else 0.1
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=bound, atol=bound),
        actual,
        expected,
    )
