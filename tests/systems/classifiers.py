"""Promises of every classifier, as functions that raise AssertionError, and tiny classifiers to
hold to them.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.data.vocabulary import EOS, PAD
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier
from tests.rounding import assert_close
from tests.systems.checks import alone, heard, wide

VOCABULARY, CLASSES = 17, 3
SOURCE, TARGET = (6, 3, 1, 0), (5, 2, 4, 1)  # real tokens of the rows of `batch`
_SMALL = {"embedding": 5, "width": 4, "hidden": 6}
_HOPS = {"name": "hops", "hops": 3, "hidden": 5, "output": "side_by_side"}
_ENCODER = {
    "name": "encoder_classifier",
    "attention": {"name": "multihead", "heads": 2, "bias": ("query", "value", "out")},
    "positions": {"name": "learned", "length": 19},
    "width": 8,
    "layers": 2,
    "hidden": 12,
}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 5}}

SPECS: dict[str, dict[str, Any]] = {
    **{
        f"bilstm_pooling-{how}": {"name": "bilstm_pooling", **_SMALL, "pooling": how}
        for how in ("mean", "max", "last")
    },
    "bilstm_pooling-gru": {"name": "bilstm_pooling", **_SMALL, "cell": "gru"},
    "bilstm_pooling-tanh-one-way": {
        "name": "bilstm_pooling",
        **_SMALL,
        **{"pooling": "last", "cell": "tanh", "directions": 1},
    },
    "attention_pooling": {"name": "attention_pooling", **_SMALL, "attention": _ADDITIVE},
    "attention_pooling-multihead": {
        "name": "attention_pooling",
        **_SMALL,
        "attention": {"name": "multihead", "heads": 2},
    },
    "self_attentive": {"name": "self_attentive", **_SMALL, "gated": 3, "attention": _HOPS},
    **{
        f"encoder_classifier-{how}": {**_ENCODER, "pooling": how, "layers": layers}
        for how, layers in (("mean", 2), ("max", 1), ("first", 1))
    },
    "bert_classifier": {**_ENCODER, "name": "bert_classifier"},
}
CASES = [(name, 1) for name in SPECS] + [
    (name, 2)
    for name in (
        *("bilstm_pooling-mean", "attention_pooling", "self_attentive"),
        *("encoder_classifier-mean", "bert_classifier"),
    )
]


def make(spec: dict[str, Any]) -> Classifier:
    """A tiny system."""
    system: Classifier = build(SYSTEMS, ConfigDict(spec), "system")(
        vocabulary=VOCABULARY, classes=CLASSES
    )
    return system


def parameters(system: Classifier, texts: int, seed: int = 0) -> Any:
    """Parameters with no silent path: N(0, 4/rows) everywhere, also where a paper starts at zero;
    large enough for weights to differ. Norms multiply by about 1, or else their biases are all that
    is left.
    """
    ids = jnp.ones((1, 2), jnp.int32)
    shapes = alone(jax.eval_shape(system.init, jax.random.key(0), *[ids] * texts))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        tree,
        [
            2 * rng.normal(size=s.shape).astype(np.float32) / np.sqrt(max(1, s.shape[0]))
            + np.float32(jax.tree_util.keystr(path).endswith("['scale']"))
            for path, s in leaves
        ],
    )


def batch(texts: int, seed: int = 1) -> list[np.ndarray]:
    """[4,6], and [4,5]: rows of several lengths, EOS at their ends; one of the first text has no
    token at all.
    """
    rng = np.random.default_rng(seed)
    found = []
    for lengths, width in ((SOURCE, 6), (TARGET, 5))[:texts]:
        ids = rng.integers(4, VOCABULARY, (4, width))
        for row, length in enumerate(lengths):
            ids[row, max(length - 1, 0) :] = PAD
            ids[row, length - 1 : length] = EOS
        found.append(ids.astype(np.int32))
    return found


@functools.cache
def _made(spec: str, texts: int) -> tuple[Any, Any, Classifier]:
    system = make(json.loads(spec))
    params = parameters(system, texts)

    @jax.jit
    @jax.default_matmul_precision("highest")  # as the oracles: one program serves all tests
    def call(params: Any, *ids: Any) -> Any:
        return system.apply({"params": params}, *ids)

    return call, params, system


def prepared(spec: dict[str, Any], texts: int) -> tuple[Any, Any, Classifier]:
    """`call(params, *ids)`, compiled; parameters; and the system."""
    return _made(json.dumps(spec, sort_keys=True), texts)


def check_padding(spec: dict[str, Any], texts: int) -> None:
    """More padding on either text changes no logit, and neither do the other rows; a row of nothing
    but padding is finite.
    """
    call, params, _ = prepared(spec, texts)
    ids = batch(texts)
    before = call(params, *ids)
    assert np.isfinite(before).all()
    longer = [np.pad(one, ((0, 0), (0, 3 + number))) for number, one in enumerate(ids)]
    assert_close(call(params, *longer), before, eps=8)
    alone = [np.where(np.arange(4)[:, None] == 1, one, PAD) for one in ids]
    np.testing.assert_allclose(call(params, *alone)[1], before[1], atol=2e-6)
    assert np.abs(before[0] - before[1]).max() > 1e-2


def check_every_text_counts(spec: dict[str, Any], texts: int) -> None:
    """Another first or last word of any text gives other logits; of two texts it matters which is
    which.
    """
    call, params, _ = prepared(spec, texts)
    ids = batch(texts)
    before = call(params, *ids)
    for number, lengths in ((number, (SOURCE, TARGET)[number]) for number in range(texts)):
        for place in (0, lengths[0] - 2):
            changed = [one.copy() for one in ids]
            changed[number][0, place] = (changed[number][0, place] + 3) % (VOCABULARY - 4) + 4
            after = call(params, *changed)
            assert np.abs(after[0] - before[0]).max() > 1e-4
            np.testing.assert_allclose(after[1:], before[1:], atol=2e-6)
    if texts == 2:  # as long as in `check_padding`, so that one program reads them
        same = [np.pad(one, ((0, 0), (0, 9 - one.shape[1]))) for one in ids]
        assert np.abs(call(params, *same[::-1])[0] - before[0]).max() > 1e-3


def check_gradients(spec: dict[str, Any], texts: int) -> None:
    """Finite everywhere, also with rows of nothing but padding, and 0 for the embedding of padding
    alone.
    """
    _, params, system = prepared(spec, texts)
    ids = batch(texts)
    grads = jax.jit(jax.grad(lambda params: (system.apply({"params": params}, *ids) ** 2).sum()))(
        params
    )
    flat = {
        jax.tree_util.keystr(path): np.asarray(grad)
        for path, grad in jax.tree_util.tree_leaves_with_path(grads)
    }
    assert all(np.isfinite(grad).all() for grad in flat.values())
    assert heard(spec, [name for name, grad in flat.items() if not np.abs(grad).max() > 1e-9]) == []
    tables = [grad for name, grad in flat.items() if "embed']['embedding" in name]
    assert len(tables) == 1 or ":" in spec["name"]
    assert all((table[PAD] == 0.0).all() for table in tables)


def check_dropout(spec: dict[str, Any], texts: int) -> None:
    """The rate changes nothing without a random stream, and other keys drop other units."""
    call, params, _ = prepared({**spec, "dropout": 0.0}, texts)
    system, ids = make({**spec, "dropout": 0.5}), batch(texts)
    apply = jax.jit(lambda key: system.apply({"params": params}, *ids, rngs={"dropout": key}))
    np.testing.assert_array_equal(
        jax.jit(system.apply)({"params": params}, *ids), call(params, *ids)
    )
    assert np.abs(apply(jax.random.key(0)) - apply(jax.random.key(1))).max() > 1e-3


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any], texts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle."""
    call, params, _ = prepared(spec, texts)
    ids = batch(texts)
    return np.asarray(call(params, *ids), np.float64), oracle(wide(params), settings, *ids)


CHECKS = {
    "padding": check_padding,
    "every text counts": check_every_text_counts,
    "gradients": check_gradients,
}
