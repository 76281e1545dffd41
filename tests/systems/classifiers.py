"""Promises of every classifier, as functions that raise AssertionError, and tiny classifiers to
hold to them.
"""

from typing import Any

import jax
import numpy as np

from attnlab.data.vocabulary import EOS, PAD
from attnlab.systems.protocol import Classifier
from tests.rounding import assert_close
from tests.systems import tiny
from tests.systems.checks import check_heard
from tests.systems.tiny import by_rows, drawn, make, named, once, wide

VOCABULARY, CLASSES = tiny.SIZES[Classifier].values()
SOURCE, TARGET = (6, 3, 1, 0), (5, 2, 4, 1)  # real tokens of the rows of `batch`
_SMALL = {"embedding": 5, "width": 4, "hidden": 6}
_HEADS = {"name": "multihead", "heads": 2}
_HOPS = {"name": "hops", "hops": 3, "hidden": 5, "output": "side_by_side"}
_ENCODER = {
    **{"name": "encoder_classifier", "width": 8, "layers": 2, "hidden": 12},
    "attention": {**_HEADS, "bias": ("query", "value", "out")},
    "positions": {"name": "learned", "length": 19},
}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 5}}
_POOLED = {"name": "bilstm_pooling", **_SMALL}
_LSTMN = {"name": "lstmn_classifier", "attention": _ADDITIVE, "embedding": 5, "width": 8}
_PAIR = {**_LSTMN, "name": "lstmn_pair", "inter_attention": _ADDITIVE}
_SHALLOW = {**_PAIR, "fusion": "shallow"}

SPECS: dict[str, dict[str, Any]] = {
    **{f"bilstm_pooling-{by}": {**_POOLED, "pooling": by} for by in ("mean", "max", "last")},
    "bilstm_pooling-gru": {**_POOLED, "cell": "gru"},
    "bilstm_pooling-tanh-one-way": {**_POOLED, "pooling": "last", "cell": "tanh", "directions": 1},
    "attention_pooling": {"name": "attention_pooling", **_SMALL, "attention": _ADDITIVE},
    "attention_pooling-multihead": {"name": "attention_pooling", **_SMALL, "attention": _HEADS},
    "self_attentive": {"name": "self_attentive", **_SMALL, "gated": 3, "attention": _HOPS},
    **{
        f"encoder_classifier-{by}": {**_ENCODER, "pooling": by, "layers": layers}
        for by, layers in (("mean", 2), ("max", 1), ("first", 1))
    },
    "bert_classifier": {**_ENCODER, "name": "bert_classifier"},
    "lstmn_classifier": {**_LSTMN, "layers": 2},
    "lstmn_classifier-last": {**_LSTMN, "layers": 2, "pooling": "last"},
    "lstmn_classifier-span": {**_LSTMN, "span": 2, "origin": "none", "question": "word"},
    "lstmn_pair-deep": _PAIR,
    "lstmn_pair-shallow": _SHALLOW,
    "lstmn_pair-deep-span": {**_PAIR, "span": 2, "question": "word", "origin": "zeros"},
    "lstmn_pair-shallow-none": {**_SHALLOW, "origin": "none"},
}
TEXTS: dict[str, tuple[int, ...]] = {
    **{name: (2,) if "pair" in name else (1,) for name in SPECS},
    **dict.fromkeys(("bilstm_pooling-mean", "attention_pooling", "self_attentive"), (1, 2)),
    **dict.fromkeys(("encoder_classifier-mean", "bert_classifier"), (1, 2)),
}
"""How many texts each is tested with."""
COMPARED = {name: spec for name, spec in SPECS.items() if "multihead" not in name}


def parameters(system: Classifier, *texts: np.ndarray) -> Any:
    """Of N(0, 4/rows), large enough for weights to differ. Norms multiply by about 1, or else their
    biases are all that is left.
    """
    scaled = lambda path, noise: 2 * by_rows(noise) + path.endswith("/scale")
    return drawn(system, *texts, rule=scaled)


def batch(texts: int, seed: int = 1) -> list[np.ndarray]:
    """[4,6], and [4,5]: rows of several lengths, EOS at their ends; one of the first text has no
    token at all.
    """
    rng = np.random.default_rng(seed)
    result = []
    for lengths, width in ((SOURCE, 6), (TARGET, 5))[:texts]:
        ids = rng.integers(4, VOCABULARY, (4, width))
        for row, length in enumerate(lengths):
            ids[row, max(length - 1, 0) :] = PAD
            ids[row, length - 1 : length] = EOS
        result.append(ids.astype(np.int32))
    return result


@once
def prepared(spec: dict[str, Any], texts: int) -> tuple[Any, Any, Classifier]:
    """`call(params, *ids)`, compiled; parameters; and the system."""
    system = make(spec)
    params = parameters(system, *batch(texts))
    return tiny.compiled(system), params, system


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
    check_heard(spec, grads)
    tables = [grad for path, grad in named(grads).items() if path.endswith("embed/embedding")]
    assert len(tables) == 1 or ":" in spec["name"]
    assert all((table[PAD] == 0.0).all() for table in tables)


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
