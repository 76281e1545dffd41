"""Promises of every language model, as functions that raise AssertionError: seeded faults can be
shown to break them.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attnlab.data.vocabulary import PAD
from attnlab.systems.protocol import LanguageModel
from tests.rounding import assert_close
from tests.systems import tiny
from tests.systems.checks import TIED, check_heard
from tests.systems.tiny import make, once, wide

VOCABULARY = tiny.SIZES[LanguageModel]["vocabulary"]
ROUNDING = 16  # machine epsilons of the largest number by which two forms of one sum may differ
ROOM = 7  # tokens that a state has room for
LENGTHS = (6, 3, 1, 0)  # of the texts of `batch`; the last one is nothing but padding
_SCORE = {"name": "additive", "hidden": 4}
_SINGLE = {"name": "single", "score": _SCORE}
_HEADS = {"name": "multihead", "heads": 2}
_ROPE = {**_HEADS, "positions": {"name": "rope"}}
_SMALL = {"embedding": 5, "width": 4}
_DANILUK = {"name": "attention_lm", **_SMALL, "layers": 1, "window": 2}
_DECODER = {
    **{"name": "decoder", "width": 8, "layers": 2, "hidden": 12, "share": "output"},
    **{"attention": {**_HEADS, "bias": True}, "positions": {"name": "learned", "length": 9}},
}
_LSTMN = {"name": "lstmn_lm", **_SMALL, "attention": _SINGLE, "layers": 2, "span": 3}
_NOTHING = {"name": "none"}

SPECS: dict[str, dict[str, Any]] = {
    "lstm_lm": {"name": "lstm_lm", **_SMALL, "layers": 2},
    "lstm_lm-gru": {"name": "lstm_lm", **_SMALL, "layers": 2, "cell": "gru"},
    "lstm_lm-tanh": {"name": "lstm_lm", **_SMALL, "cell": "tanh"},
    "lstm_lm-shared": {"name": "lstm_lm", "embedding": 4, "width": 4, "share": "output"},
    "attention_lm": {**_DANILUK, "attention": _SINGLE, "state": 4, "layers": 2},
    **{
        f"attention_lm-{name}": {
            **{**_DANILUK, "attention": {"name": name, "score": _SCORE}},
            **{"state": state, "merge": "none"},
        }
        for name, state in (("key_value", 8), ("key_value_predict", 12))
    },
    "attention_lm-multihead": {**_DANILUK, "attention": _HEADS, "state": 6},
    "ngram_rnn": {"name": "ngram_rnn", "embedding": 5, "width": 3, "order": 4},
    "ngram_rnn-2": {"name": "ngram_rnn", "embedding": 5, "width": 3, "order": 2},
    "decoder": _DECODER,
    "decoder-recurrent": {**_DECODER, "attention": {"name": "recurrent", "cell": "gru"}},
    **{
        f"decoder-{norm}": {**_DECODER, "norm": norm, "layers": 1}
        for norm in ("post", "parallel", "rezero")
    },
    "decoder-res_post": {
        **{**_DECODER, "norm": "res_post", "layers": 1},
        "normalisation": {"name": "scale_norm"},
    },
    "decoder-bare": {
        **{**_DECODER, "norm": "none"},
        **dict.fromkeys(("normalisation", "positions", "feed_forward"), _NOTHING),
    },
    "decoder-concatenated": {**_DECODER, "position_width": 3, "scaled_embedding": True},
    "decoder-by-layer": {
        **{**_DECODER, "layers": 4, "feed_forward": _NOTHING},
        "attention": {
            **{"name": "by_layer", "one": _NOTHING, "pattern": ("other", "other", "one")},
            "other": {"name": "by_layer", "one": _HEADS, "other": {**_ROPE, "heads": 1}},
        },
    },
    "decoder-hybrid": {
        **_DECODER,
        "attention": {"name": "by_layer", "one": {"name": "recurrent"}, "other": _HEADS},
    },
    "decoder-llama": {
        **_DECODER,
        "attention": {
            **{**_HEADS, "key_heads": 1, "head_width": 4},
            "score": {"name": "soft_capped", "cap": 3.0, "score": {"name": "qk_rmsnorm"}},
            "positions": {"name": "rope", "layout": "half"},
        },
        **{"positions": _NOTHING, "norm": "sandwich", "feed_forward": {"name": "swiglu"}},
        "normalisation": {"name": "rms_norm", "epsilon": 1e-5},
        **{"scaled_embedding": True, "share": "none", "logit_cap": 5.0},
        "visibility": {
            **{"name": "by_layer", "one": {"name": "window", "width": 2}},
            "other": {"name": "full"},
        },
    },
    "lstmn_lm": _LSTMN,
    "lstmn_lm-word": {**_LSTMN, "layers": 1, "origin": "none", "question": "word"},
    "lstmn_lm-multihead": {**_LSTMN, "layers": 1, "attention": _ROPE},
}
COMPARED: dict[str, dict[str, Any]] = {
    **{
        name: spec
        for name, spec in SPECS.items()
        if not name.endswith(("multihead", "recurrent", "hybrid"))
    },
    "attention_lm-pieces": {
        **SPECS["attention_lm-key_value"],
        **{"carry": "state", "piece": 2, "window": 3},
    },
    "lstmn_lm-wide": {**_LSTMN, "span": 9},
    "lstmn_lm-none": {**_LSTMN, "origin": "none", "layers": 1},
    "lstmn_lm-word-zeros": {**_LSTMN, "question": "word", "layers": 1},
}
"""Compared with an oracle; `piece` tokens of a text are read at once."""
LARGER: dict[str, dict[str, Any]] = {
    name: {"embedding": 24, "layers": 1, "width": 24} for name in ("ngram_rnn", "lstmn_lm")
}
LARGER["attention_lm"] = {**LARGER["lstmn_lm"], "state": 24}
"""With which eight texts can be learnt by heart."""


def parameters(system: Any, *arguments: Any, seed: int = 0) -> Any:
    """Of N(0, 4/rows), large enough for weights to differ."""
    read = arguments or (jnp.ones((1, 2), jnp.int32),)
    return tiny.drawn(system, *read, seed=seed, rule=lambda _, noise: 2 * tiny.by_rows(noise))


def batch(seed: int = 1) -> np.ndarray:
    """Tokens [4,6], padded at the end."""
    tokens = np.random.default_rng(seed).integers(1, VOCABULARY, (len(LENGTHS), 6))
    return np.where(np.arange(6) < np.array(LENGTHS)[:, None], tokens, PAD).astype(np.int32)


@once
def _made(spec: dict[str, Any]) -> tuple[Any, Any, Any]:
    """See `prepared` and `slopes`."""
    system = make(spec)
    params = parameters(system)

    @jax.jit
    @jax.grad
    def slope(params: Any, tokens: jax.Array, until: int) -> jax.Array:
        logits: Any = system.apply({"params": params}, tokens)
        return jnp.where(jnp.arange(tokens.shape[1])[:, None] < until, logits**2, 0.0).sum()

    return tiny.fetched(tiny.bound(system, params)), system, functools.partial(slope, params)


def prepared(spec: dict[str, Any]) -> tuple[Any, Any]:
    """`call(*args, method=..., mutable=...)` of a tiny system with its parameters bound, compiled,
    and the system.
    """
    return _made(spec)[:2]


def slopes(spec: dict[str, Any], tokens: np.ndarray, until: int) -> Any:
    """Gradients with respect to all parameters of the squared logits at the first `until`
    tokens.
    """
    return _made(spec)[2](tokens, until)


@once
def begun(spec: dict[str, Any], rows: int = len(LENGTHS)) -> Any:
    """The state before anything was read."""
    system = make(spec)
    params = parameters(system)
    start = functools.partial(system.apply, {"params": params}, rows, ROOM, method="start")
    return jax.device_get(jax.jit(start)())


def same_states(found: Any, expected: Any) -> None:
    """Two states hold the same numbers."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(one, other, eps=ROUNDING)


def check_causality(spec: dict[str, Any]) -> None:
    """Logits at t do not depend on tokens after t, by perturbation and by an exactly zero
    gradient.
    """
    call, system = prepared(spec)
    tokens = np.tile(batch()[:1], (4, 1))
    before = call(begun(spec), tokens, method="read")[0]
    for t in (1, 2, 5):
        changed = tokens.copy()
        changed[:, t:] = changed[:, t:] % (VOCABULARY - 1) + 1
        after = call(begun(spec), changed, method="read")[0]
        assert_close(after[:, :t], before[:, :t], eps=ROUNDING)
        assert np.abs(after[:, t:] - before[:, t:]).max() > 1e-3
    # else the output reads the table too
    untied = spec.get("share", "none") == "none" and spec["name"] not in TIED
    if untied and (":" not in spec["name"] or "embed" in parameters(system)):
        by_position = np.tile(np.arange(1, 7, dtype=np.int32), (4, 1))  # position p reads row p + 1
        for t in (1, 2, 5):
            actual = np.asarray(slopes(spec, by_position, t)["embed"]["embedding"])
            assert (actual[t + 1 :] == 0.0).all()
            assert (np.abs(actual[1 : t + 1]).max(axis=1) > 1e-9).all()


def check_pieces(spec: dict[str, Any]) -> None:
    """A text read in pieces, or token by token, gives the logits and the state of one read at
    once, and its logits are those of training.
    """
    call, _ = prepared(spec)
    tokens = batch()
    whole, ended = call(begun(spec), tokens, method="read")
    close_where_real(call(tokens), whole, tokens)
    first, state = call(begun(spec), tokens[:, :3], method="read")
    second, state = call(state, tokens[:, 3:], method="read")
    close_where_real(np.concatenate([first, second], axis=1), whole, tokens)
    same_states(state, ended)
    state, stepped = begun(spec), []
    for t in range(6):
        logits, state = call(state, tokens[:, t], method="step")
        stepped.append(logits)
    close_where_real(np.stack(stepped, axis=1), whole, tokens)
    same_states(state, ended)


def check_padding(spec: dict[str, Any]) -> None:
    """Padding leaves a state as it is, alone or behind a text; all is finite. (Oracles never see
    it, so logits are tested there.)
    """
    call, _ = prepared(spec)
    tokens = batch()
    whole, ended = call(begun(spec), tokens, method="read")
    assert all(np.isfinite(one).all() for one in jax.tree.leaves((whole, ended)))
    short, state = call(begun(spec), tokens[:, :3], method="read")
    close_where_real(whole[:, :3], short, tokens[:, :3])
    # the others had but padding left
    same_states(*(jax.tree.map(lambda one: one[1:], one) for one in (ended, state)))
    same_states(jax.tree.map(lambda one: one[3:], ended), begun(spec, 1))
    same_states(call(ended, np.zeros((4, 6), np.int32), method="read")[1], ended)


def check_rows_apart(spec: dict[str, Any]) -> None:
    """Prompts of any length are read together, padded behind, and go on together, each as in a
    batch of nothing else, where only the end is padded.
    """
    call, _ = prepared(spec)
    tokens = np.zeros((4, 6), np.int32)
    tokens[:, :4] = np.random.default_rng(2).integers(1, VOCABULARY, (4, 4))
    # as wide as the pieces of `check_pieces`: few programs
    read, prompts, more = np.zeros(4, int), np.array([3, 1, 0, 2]), np.array([0, 2, 3, 1])
    state, actual = begun(spec), [[] for _ in range(4)]
    for counts in (prompts, None, more):
        if counts is None:
            logits, state = call(state, tokens[np.arange(4), read], method="step")
            logits, counts = np.asarray(logits)[:, None], np.ones(4, int)
        else:
            piece = np.zeros((4, 3), np.int32)
            for row, count in enumerate(counts):
                piece[row, :count] = tokens[row, read[row] : read[row] + count]
            logits, state = call(state, piece, method="read")
        for row, count in enumerate(counts):
            actual[row].append(np.asarray(logits)[row, :count])
        read = read + counts
    for row in range(4):
        alone, ended = call(begun(spec), np.tile(tokens[row], (4, 1)), method="read")
        assert_close(np.concatenate(actual[row]), alone[0, :4], eps=ROUNDING)
        here = jax.tree.map(lambda one, row=row: one[row : row + 1], state)
        same_states(here, jax.tree.map(lambda one: one[:1], ended))


def close_where_real(found: Any, expected: Any, tokens: np.ndarray) -> None:
    """Logits agree wherever a token was read."""
    real = tokens != PAD
    assert_close(np.asarray(found)[real], np.asarray(expected)[real], eps=ROUNDING)


def check_gradients(spec: dict[str, Any]) -> None:
    """Every parameter gets a gradient, and all are finite."""
    check_heard(spec, slopes(spec, batch(), 6))


def check_learning(spec: dict[str, Any]) -> None:
    """Eight texts can be learnt by heart, from about chance."""
    tokens = np.random.default_rng(0).integers(2, VOCABULARY, (8, 6))
    tokens[:, 0] = np.arange(8) + 2  # no two begin alike
    read = np.pad(tokens, ((0, 0), (1, 0)), constant_values=1)[:, :-1]

    def cost(logits: jax.Array) -> jax.Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens)
        return losses[:, 1:].mean() + 0 * losses.sum()  # the first token is a throw of dice

    tiny.check_learnt(
        tiny.fitted(make(spec), (read,), cost, steps=200), VOCABULARY, last=0.05, above=0.5
    )


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle where tokens are real, for texts of 6, 3, 1 and 0
    tokens; "piece" of `spec` are read at once, if it says so.
    """
    spec, tokens, piece = dict(spec), batch(), spec.get("piece")
    spec.pop("piece", None)
    call, system = prepared(spec)
    logits = call(tokens) if piece is None else _in_pieces(spec, tokens, piece)
    expected = oracle(wide(parameters(system)), settings, tokens)
    return np.asarray(logits, np.float64)[tokens != PAD], expected[tokens != PAD]


def _in_pieces(spec: dict[str, Any], tokens: np.ndarray, piece: int) -> np.ndarray:
    state, pieces = begun(spec), []
    for start in range(0, tokens.shape[1], piece):
        given = tokens[:, start : start + piece]
        logits, state = prepared(spec)[0](state, given, method="read")
        pieces.append(logits)
    return np.concatenate(pieces, axis=1)


CHECKS = {
    "causality": check_causality,
    "pieces": check_pieces,
    "padding": check_padding,
    "rows apart": check_rows_apart,
    "gradients": check_gradients,
}
