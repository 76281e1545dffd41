"""Promises of every language model, as functions that raise AssertionError: seeded faults can be
shown to break them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.data.vocabulary import PAD
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import LanguageModel
from attnlab.training.drawing import first_params
from tests.rounding import assert_close
from tests.systems.checks import TIED, alone, heard, wide

VOCABULARY = 13
ROUNDING = 16  # machine epsilons of the largest number by which two forms of one sum may differ
ROOM = 7  # tokens that a state has room for
LENGTHS = (6, 3, 1, 0)  # of the texts of `batch`; the last one is nothing but padding
_SCORE = {"name": "additive", "hidden": 4}
_SINGLE = {"name": "single", "score": _SCORE}
_HEADS = {"name": "multihead", "heads": 2}
_DANILUK = {"name": "attention_lm", "embedding": 5, "width": 4, "layers": 1, "window": 2}
_DECODER = {
    "name": "decoder",
    "attention": {**_HEADS, "bias": True},
    "positions": {"name": "learned", "length": 9},
    "width": 8,
    "layers": 2,
    "hidden": 12,
    "share": "output",
}
_LSTMN = {
    "name": "lstmn_lm",
    "attention": _SINGLE,
    "embedding": 5,
    "width": 4,
    "layers": 2,
    "span": 3,
}

SPECS: dict[str, dict[str, Any]] = {
    "lstm_lm": {"name": "lstm_lm", "embedding": 5, "width": 4, "layers": 2},
    "lstm_lm-gru": {"name": "lstm_lm", "embedding": 5, "width": 4, "layers": 2, "cell": "gru"},
    "lstm_lm-tanh": {"name": "lstm_lm", "embedding": 5, "width": 4, "cell": "tanh"},
    "lstm_lm-shared": {"name": "lstm_lm", "embedding": 4, "width": 4, "share": "output"},
    "attention_lm": {**_DANILUK, "attention": _SINGLE, "state": 4, "layers": 2},
    "attention_lm-key_value": {
        **_DANILUK,
        "attention": {"name": "key_value", "score": _SCORE},
        "state": 8,
        "merge": "none",
    },
    "attention_lm-key_value_predict": {
        **_DANILUK,
        "attention": {"name": "key_value_predict", "score": _SCORE},
        "state": 12,
        "merge": "none",
    },
    "attention_lm-multihead": {**_DANILUK, "attention": _HEADS, "state": 6},
    "ngram_rnn": {"name": "ngram_rnn", "embedding": 5, "width": 3, "order": 4},
    "ngram_rnn-2": {"name": "ngram_rnn", "embedding": 5, "width": 3, "order": 2},
    "decoder": _DECODER,
    "decoder-recurrent": {**_DECODER, "attention": {"name": "recurrent", "cell": "gru"}},
    **{f"decoder-{norm}": {**_DECODER, "norm": norm} for norm in ("post", "parallel")},
    "decoder-rezero": {**_DECODER, "norm": "rezero", "layers": 1},
    "decoder-res_post": {**_DECODER, "norm": "res_post", "normalisation": {"name": "scale_norm"}},
    "decoder-bare": {
        **_DECODER,
        "norm": "none",
        "normalisation": {"name": "none"},
        "positions": {"name": "none"},
        "feed_forward": {"name": "none"},
    },
    "decoder-concatenated": {**_DECODER, "position_width": 3, "scaled_embedding": True},
    "decoder-by-layer": {
        **_DECODER,
        "layers": 4,
        "attention": {
            "name": "by_layer",
            "one": {"name": "none"},
            "other": {
                "name": "by_layer",
                "one": _HEADS,
                "other": {**_HEADS, "heads": 1, "positions": {"name": "rope"}},
            },
            "pattern": ("other", "other", "one"),
        },
        "feed_forward": {"name": "none"},
    },
    "decoder-hybrid": {
        **_DECODER,
        "attention": {"name": "by_layer", "one": {"name": "recurrent"}, "other": _HEADS},
    },
    "decoder-llama": {
        **_DECODER,
        "attention": {
            **_HEADS,
            "key_heads": 1,
            "head_width": 4,
            "score": {"name": "soft_capped", "cap": 3.0, "score": {"name": "qk_rmsnorm"}},
            "positions": {"name": "rope", "layout": "half"},
        },
        "positions": {"name": "none"},
        "norm": "sandwich",
        "normalisation": {"name": "rms_norm", "epsilon": 1e-5},
        "feed_forward": {"name": "swiglu"},
        "scaled_embedding": True,
        "share": "none",
        "logit_cap": 5.0,
        "visibility": {
            "name": "by_layer",
            "one": {"name": "window", "width": 2},
            "other": {"name": "full"},
        },
    },
    "lstmn_lm": _LSTMN,
    "lstmn_lm-word": {**_LSTMN, "layers": 1, "origin": "none", "question": "word"},
    "lstmn_lm-multihead": {
        **_LSTMN,
        "layers": 1,
        "attention": {**_HEADS, "positions": {"name": "rope"}},
    },
}


def make(spec: dict[str, Any]) -> LanguageModel:
    """A tiny system."""
    system: LanguageModel = build(SYSTEMS, ConfigDict(spec), "system")(vocabulary=VOCABULARY)
    return system


def parameters(system: Any, *arguments: Any, seed: int = 0) -> Any:
    """Parameters with no silent path: N(0, 4/rows) everywhere, also where a paper starts at
    zero.
    """
    shapes = alone(
        jax.eval_shape(
            system.init, jax.random.key(0), *(arguments or (jnp.ones((1, 2), jnp.int32),))
        )
    )
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        tree,
        [
            rng.normal(size=s.shape).astype(np.float32) * 2 / np.sqrt(max((1, *s.shape[:1])))
            for s in leaves
        ],
    )


def batch(seed: int = 1) -> np.ndarray:
    """Tokens [4,6], padded at the end."""
    tokens = np.random.default_rng(seed).integers(1, VOCABULARY, (len(LENGTHS), 6))
    return np.where(np.arange(6) < np.array(LENGTHS)[:, None], tokens, PAD).astype(np.int32)


@functools.cache
def _made(spec: str) -> tuple[Any, Any, Any]:
    """See `prepared` and `slopes`; one for all checks of a spec, so that each program is
    compiled once.
    """
    system = make(json.loads(spec))
    params = parameters(system)

    @functools.partial(jax.jit, static_argnames=("method", "mutable"))
    def compiled(params: Any, *arguments: Any, method: str, mutable: tuple[str, ...]) -> Any:
        return system.apply(
            {"params": params}, *arguments, method=method, mutable=list(mutable) or False
        )

    def call(*arguments: Any, method: str = "__call__", mutable: Sequence[str] = ()) -> Any:
        found = compiled(params, *arguments, method=method, mutable=tuple(mutable))
        return jax.device_get(found)  # what a test takes of it needs no program

    @jax.jit
    @jax.grad
    def slope(params: Any, tokens: jax.Array, until: int) -> jax.Array:
        logits: Any = system.apply({"params": params}, tokens)
        return jnp.where(jnp.arange(tokens.shape[1])[:, None] < until, logits**2, 0.0).sum()

    return call, system, functools.partial(slope, params)


def prepared(spec: dict[str, Any]) -> tuple[Any, Any]:
    """`call(*args, method=..., mutable=...)` of a tiny system with its parameters bound, compiled,
    and the system.
    """
    return _made(json.dumps(spec, sort_keys=True))[:2]


def slopes(spec: dict[str, Any], tokens: np.ndarray, until: int) -> Any:
    """Gradients with respect to all parameters of the squared logits at the first `until`
    tokens.
    """
    return _made(json.dumps(spec, sort_keys=True))[2](tokens, until)


def forget() -> None:
    """A program that was compiled from sound code would hide a fault that comes later."""
    _made.cache_clear()
    _begun.cache_clear()


def begun(spec: dict[str, Any], rows: int = len(LENGTHS)) -> Any:
    """The state before anything was read."""
    return _begun(json.dumps(spec, sort_keys=True), rows)


@functools.cache
def _begun(spec: str, rows: int) -> Any:
    system = make(json.loads(spec))
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
    untied = (
        spec.get("share", "none") == "none" and spec["name"] not in TIED
    )  # else the output reads the table too
    if untied and (":" not in spec["name"] or "embed" in parameters(system)):
        by_position = np.tile(np.arange(1, 7, dtype=np.int32), (4, 1))  # position p reads row p + 1
        for t in (1, 2, 5):
            found = np.asarray(slopes(spec, by_position, t)["embed"]["embedding"])
            assert (found[t + 1 :] == 0.0).all() and (
                np.abs(found[1 : t + 1]).max(axis=1) > 1e-9
            ).all()


def check_pieces(spec: dict[str, Any]) -> None:
    """A text read in pieces, or token by token, gives the logits and the state of one read at
    once.
    """
    call, _ = prepared(spec)
    tokens = batch()
    whole, ended = call(begun(spec), tokens, method="read")
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
    same_states(
        *(jax.tree.map(lambda one: one[1:], one) for one in (ended, state))
    )  # the others had but padding left
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
    state, found = begun(spec), [[] for _ in range(4)]
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
            found[row].append(np.asarray(logits)[row, :count])
        read = read + counts
    for row in range(4):
        alone, ended = call(begun(spec), np.tile(tokens[row], (4, 1)), method="read")
        assert_close(np.concatenate(found[row]), alone[0, :4], eps=ROUNDING)
        same_states(jax.tree.map(lambda one, row=row: one[row : row + 1], state),
                    jax.tree.map(lambda one: one[:1], ended))  # fmt: skip


def close_where_real(found: Any, expected: Any, tokens: np.ndarray) -> None:
    """Logits agree wherever a token was read."""
    real = tokens != PAD
    assert_close(np.asarray(found)[real], np.asarray(expected)[real], eps=ROUNDING)


def check_gradients(spec: dict[str, Any]) -> None:
    """Every parameter gets a gradient, and all are finite."""
    flat = {
        jax.tree_util.keystr(path): grad
        for path, grad in jax.tree_util.tree_leaves_with_path(slopes(spec, batch(), 6))
    }
    assert all(np.isfinite(grad).all() for grad in flat.values())
    assert heard(spec, [name for name, grad in flat.items() if not np.abs(grad).max() > 1e-9]) == []


def check_learning(spec: dict[str, Any]) -> None:
    """Eight texts can be learnt by heart, from about chance."""
    system, rng = make(spec), np.random.default_rng(0)
    tokens = rng.integers(2, VOCABULARY, (8, 6))
    tokens[:, 0] = np.arange(8) + 2  # no two begin alike
    read, target = np.pad(tokens, ((0, 0), (1, 0)), constant_values=1)[:, :-1], tokens
    params = first_params(system.init, jax.random.key(0), read)["params"]
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, 200))

    def update(carry: Any, _: None) -> tuple[Any, jax.Array]:
        params, state = carry

        def loss(params: Any) -> jax.Array:
            logits: Any = system.apply({"params": params}, read)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
            return losses[:, 1:].mean() + 0 * losses.sum()  # the first token is a throw of dice

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def losses_of(params: Any) -> jax.Array:
        return jax.lax.scan(update, (params, optimizer.init(params)), length=200)[1]

    losses = losses_of(params)
    chance = np.log(VOCABULARY)  # about that at first: no target leaks in
    assert abs(float(losses[0]) - chance) < 0.5, (
        f"the first loss is {losses[0]:.2f}, chance {chance:.2f}"
    )
    assert losses[-1] < 0.05, f"the loss ends at {losses[-1]:.4f}"


def check_dropout(spec: dict[str, Any]) -> None:
    """The rate changes nothing without a random stream, and other keys drop other units."""
    system, tokens = make({**spec, "dropout": 0.5}), batch()
    variables = {"params": parameters(system)}
    run = jax.jit(system.apply)
    np.testing.assert_array_equal(
        run(variables, tokens), jax.jit(make({**spec, "dropout": 0.0}).apply)(variables, tokens)
    )
    one, two = (run(variables, tokens, rngs={"dropout": jax.random.key(k)}) for k in (0, 1))
    assert np.abs(np.asarray(one) - np.asarray(two)).max() > 1e-3


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any], piece: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle where tokens are real, for texts of 6, 3, 1 and 0
    tokens; `piece` are read at once.
    """
    tokens, (call, system) = batch(), prepared(spec)
    state, found = begun(spec), []
    for start in range(0, 6, piece):
        logits, state = call(state, tokens[:, start : start + piece], method="read")
        found.append(np.asarray(logits, np.float64))
    real = tokens != PAD
    return (
        np.concatenate(found, axis=1)[real],
        oracle(wide(parameters(system)), settings, tokens)[real],
    )


CHECKS = {
    "causality": check_causality,
    "pieces": check_pieces,
    "padding": check_padding,
    "rows apart": check_rows_apart,
    "gradients": check_gradients,
}
