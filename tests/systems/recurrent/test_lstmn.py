"""LSTMNs beyond the language model: what they write and which classes they give, by their oracles;
padding, maps, misfits.
"""

from __future__ import annotations

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
from tests.systems import checks
from tests.systems.language_models import parameters
from tests.systems.oracles import ORACLES

E, H = 5, 4
_SINGLE = {"name": "single", "score": {"name": "additive", "hidden": 4}}
_ONE = {"name": "lstmn_classifier", "attention": _SINGLE, "embedding": E, "width": 8, "layers": 2}
_TWO = {
    "name": "lstmn_pair",
    "attention": _SINGLE,
    "inter_attention": _SINGLE,
    "embedding": E,
    "width": 8,
}
CASES: dict[str, dict[str, Any]] = {
    "lstmn_classifier": _ONE,
    "lstmn_classifier-last": {**_ONE, "pooling": "last"},
    "lstmn_classifier-span": {**_ONE, "layers": 1, "span": 2, "origin": "none", "question": "word"},
    "lstmn_pair-deep": _TWO,
    "lstmn_pair-shallow": {**_TWO, "fusion": "shallow"},
    "lstmn_pair-deep-span": {**_TWO, "span": 2, "question": "word", "origin": "zeros"},
    "lstmn_pair-shallow-none": {**_TWO, "fusion": "shallow", "origin": "none"},
}


# --- encoder-decoders ---

_WRITING = {
    "name": "lstmn_seq2seq",
    "attention": _SINGLE,
    "inter_attention": _SINGLE,
    "embedding": E,
    "width": H,
}
_HEADS = {"name": "multihead", "heads": 2}
WRITING: dict[str, dict[str, Any]] = {
    "deep": _WRITING,
    "deep-zeros": {**_WRITING, "origin": "zeros", "span": 2},
    "shallow-none": {**_WRITING, "fusion": "shallow", "origin": "none", "question": "word"},
}


@pytest.mark.parametrize("case", WRITING)
def test_words_are_the_papers(case: str) -> None:
    """As in `test_oracles.py`, with parameters large enough for attention to matter."""
    system: Any = checks.make(WRITING[case])
    ids = checks.batch()
    params = parameters(system, *ids)
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params))
    oracle, rng = (
        functools.partial(
            ORACLES["lstmn_seq2seq"], settings=WRITING[case], source=ids[0], target_in=ids[1]
        ),
        np.random.default_rng(1),
    )
    expected = oracle(jax.tree.unflatten(tree, leaves))
    np.testing.assert_allclose(
        jax.jit(system.apply)({"params": params}, *ids),
        expected,
        rtol=0,
        atol=1e-6 * np.abs(expected).max(),
    )
    for number, leaf in enumerate(leaves):
        changed = [
            *leaves[:number],
            leaf + 0.2 * rng.normal(size=leaf.shape),
            *leaves[number + 1 :],
        ]
        assert np.abs(oracle(jax.tree.unflatten(tree, changed)) - expected).max() > 1e-4


def test_shallow_fusion_writes_step_by_step_as_in_one_pass() -> None:
    """With any mechanism between the sequences; deep fusion is among the systems of
    `test_systems.py`.
    """
    spec = {**_WRITING, "fusion": "shallow", "inter_attention": _HEADS}
    checks.check_cached_decoding(spec, slopes=False)


def test_the_map_of_a_single_step_holds_that_step_which_does_not_see_itself() -> None:
    """Its slot is the last of a map with room to spare; where that is left out, the last one is the
    step's before.
    """
    weights = np.array([0.25, 0.75, 0.0], np.float32).reshape(1, 1, 1, 3)
    for collected in (weights, weights[..., :2]):
        maps = checks.make(_WRITING).maps(
            {"readers": {"decoder": {"attention": {"weights": (collected,)}}}}
        )
        np.testing.assert_array_equal(
            maps["readers/decoder/attention"].weights, np.zeros((1, 1, 1, 1))
        )


# --- classifiers ---

SOURCE, _ = checks.batch()
TARGET = np.asarray([[4, 5, 0, 0, 0], [3, 7, 8, 9, 2], [0, 0, 0, 0, 0]], np.int32)
EMPTY = np.where(np.arange(3)[:, None] == 2, 0, SOURCE)  # the last text is nothing but padding


@functools.cache
def classifier(case: str) -> tuple[Any, Any, Any]:
    """`call(*ids)` to logits and what is collected of maps, compiled; the system and its
    parameters.
    """
    system: Any = build(SYSTEMS, ConfigDict(CASES[case]), "system")(
        vocabulary=checks.VOCABULARY, classes=3
    )
    params = parameters(system, *texts(case))
    return (
        jax.jit(lambda *ids: system.apply({"params": params}, *ids, mutable=[MAPS])),
        system,
        params,
    )


def texts(
    case: str, source: np.ndarray = EMPTY, target: np.ndarray = TARGET
) -> tuple[np.ndarray, ...]:
    return (source,) if CASES[case]["name"] == "lstmn_classifier" else (source, target)


QUICK = ("lstmn_classifier", "lstmn_pair-deep")


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[pytest.mark.quick] if one in QUICK else []) for one in CASES]
)
def test_classes_are_the_papers(case: str) -> None:
    call, _, params = classifier(case)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    expected = ORACLES[CASES[case]["name"]](wide, CASES[case], *texts(case))
    assert expected.shape == (3, 3) and np.abs(expected[0] - expected[1]).max() > 1e-2
    np.testing.assert_allclose(
        np.asarray(call(*texts(case))[0], np.float64),
        expected,
        rtol=0,
        atol=1e-6 * np.abs(expected).max(),
    )


@pytest.mark.parametrize("case", ["lstmn_classifier", "lstmn_pair-deep"])
def test_the_oracle_reads_every_parameter_and_each_gets_a_gradient(case: str) -> None:
    _, system, params = classifier(case)
    grads = jax.jit(
        jax.grad(lambda params: (system.apply({"params": params}, *texts(case)) ** 2).sum())
    )(params)
    assert all(
        np.isfinite(grad).all() and np.abs(grad).max() > 1e-9 for grad in jax.tree.leaves(grads)
    )
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params))
    oracle, rng = ORACLES[CASES[case]["name"]], np.random.default_rng(1)
    before = oracle(params, CASES[case], *texts(case))
    for number, leaf in enumerate(leaves):
        changed = jax.tree.unflatten(
            tree,
            [*leaves[:number], leaf + 0.2 * rng.normal(size=leaf.shape), *leaves[number + 1 :]],
        )
        assert np.abs(oracle(changed, CASES[case], *texts(case)) - before).max() > 1e-5


@pytest.mark.parametrize("case", ["lstmn_classifier", "lstmn_pair-deep"])
def test_padding_changes_no_class(case: str) -> None:
    call, _, _ = classifier(case)
    before, wider = call(*texts(case))[0], [np.pad(one, ((0, 0), (0, 2))) for one in texts(case)]
    assert np.isfinite(before).all()
    np.testing.assert_allclose(call(*wider)[0], before, atol=2e-6)


def test_maps_of_classifiers_lie_between_the_texts_they_name() -> None:
    lengths = {"source": 6, "target_in": 5}
    for case, names in (
        ("lstmn_classifier", {"reader_0/attention", "reader_1/attention"}),
        (
            "lstmn_pair-deep",
            {
                "readers/encoder/attention",
                "readers/decoder/attention",
                "readers/decoder/inter_attention",
            },
        ),
        (
            "lstmn_pair-shallow",
            {"readers/encoder/attention", "readers/decoder/attention", "readers/inter_attention"},
        ),
    ):
        call, system, _ = classifier(case)
        maps = system.maps(call(*texts(case))[1][MAPS])
        assert set(maps) == names
        for name, one in maps.items():
            assert one.weights.shape == (3, 1, lengths[one.query], lengths[one.key])
            assert (one.query == one.key) != name.endswith("inter_attention")
            if one.query != one.key:
                np.testing.assert_allclose(one.weights[:2].sum(axis=-1), 1.0, atol=1e-6)
                assert (
                    np.asarray(one.weights)[
                        np.broadcast_to((EMPTY == PAD)[:, None, None], one.weights.shape)
                    ]
                    == 0
                ).all()


@pytest.mark.quick
def test_fusion_without_a_second_text_is_named() -> None:
    _, system, params = classifier("lstmn_pair-deep")
    with pytest.raises(
        UserError,
        match="lstmn_pair: deep fusion wants two texts, here is one; choose 'lstmn_classifier'",
    ):
        system.apply({"params": params}, SOURCE)
    assert system.texts == (2,) and SYSTEMS.resolve("lstmn_classifier").texts == (1,)
    with pytest.raises(UserError, match="lstmn_classifier has no field 'fusion' to set"):
        build(SYSTEMS, ConfigDict({**_ONE, "fusion": "deep"}), "system")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"inter_attention": {"name": "key_value"}},
            "inter_attention: KeyValue does not support values apart from keys",
        ),
        (
            {"attention": {"name": "key_value"}, "fusion": "shallow"},
            "attention: KeyValue does not support values apart",
        ),
        ({"span": 0}, "span=0, must be at least 1"),
        (
            {"attention": {"name": "single", "alignment": {"name": "monotonic"}}},
            "needs all queries of a sequence at once|unknown alignment",
        ),
    ],
)
def test_mechanisms_that_cannot_are_named(change: dict[str, Any], words: str) -> None:
    factory: Any = build(SYSTEMS, ConfigDict({**_TWO, **change}), "system")
    with pytest.raises(UserError, match=words):
        for slot, need in factory.func.asks(factory.keywords).items():
            need.check(factory.keywords[slot].func, slot, factory.keywords[slot].keywords)
    lax: Any = build(
        SYSTEMS,
        ConfigDict({**_TWO, "inter_attention": {"name": "key_value"}, "fusion": "shallow"}),
        "system",
    )
    assert not lax.func.asks(lax.keywords)[
        "inter_attention"
    ].values  # shallow fusion takes what it looks at


# --- language model ---


@pytest.mark.parametrize(("dtype", "layers"), [("float32", 2), ("bfloat16", 1)])
def test_a_long_text_is_read_in_pieces_as_in_one(dtype: str, layers: int) -> None:
    """Who watches gets one piece; logits, states and gradients are the same, padding in a row or
    not.
    """
    spec = {
        "name": "lstmn_lm",
        "attention": _SINGLE,
        "embedding": E,
        "width": H,
        "layers": layers,
        "span": 3,
    }
    system: Any = build(SYSTEMS, ConfigDict(spec), "system")(vocabulary=11)
    tokens = np.random.default_rng(0).integers(4, 11, (3, 21))
    tokens[1, 13:], tokens[2] = PAD, PAD
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), parameters(system, tokens[:, :2]))
    state = system.apply({"params": params}, 3, 0, method="start")

    def both(params: Any, watched: bool) -> Any:
        found = system.apply(
            {"params": params}, state, tokens, method="read", mutable=[MAPS] if watched else False
        )
        logits, after = found[0] if watched else found
        return (np.asarray(tokens != PAD)[..., None] * logits**2).sum(), (logits[:2, :13], after)

    traced = [
        jax.jit(jax.value_and_grad(functools.partial(both, watched=w), has_aux=True)).trace(params)
        for w in (False, True)
    ]
    found, expected = (one.lower().compile()(params) for one in traced)
    pieces = ["length=3" in str(one.jaxpr) for one in traced]
    assert pieces == [True, False] and found[0][1][0].dtype == dtype
    bound = 1e-5 if dtype == "float32" else 0.1
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=bound, atol=bound),
        found,
        expected,
    )
