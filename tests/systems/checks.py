"""Promises of every sequence-to-sequence system, as functions that raise AssertionError: seeded
faults can be shown to break them, and `--system` puts one of somebody's own through them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.config.registry import build
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.decoding.steps import by_row
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Seq2Seq
from attnlab.training.drawing import first_params
from tests.flags import SAME_ROUNDING
from tests.rounding import assert_close

VOCABULARY = 17
_HEADS = {"name": "multihead", "heads": 2}
_T5_HEADS = {
    **_HEADS,
    "score": "dot",
    "head_width": 3,
    "positions": {"name": "t5", "buckets": 6, "max_distance": 4},
}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 6}}
_SMALL_RNN = {"name": "rnnsearch", "embedding": 6, "encoder": 5, "decoder": 7, "maxout": 4}
_DOT = {"name": "single", "score": {"name": "dot"}}
_SMALL_CONVOLUTIONS = {
    "name": "convs2s",
    "dropout": 0.0,
    "embedding": 6,
    "width": 5,
    "kernel": 3,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
_PLACES = {"name": "learned", "length": 12, "stddev": 0.1}
_SMALL_LSTM = {"embedding": 6, "width": 5, "layers": 2}
_SMALL_GNMT = {
    "name": "gnmt",
    "embedding": 6,
    "width": 5,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "attention": _ADDITIVE,
}
_SMALL_POINTER = {
    "name": "pointer_generator",
    "embedding": 6,
    "encoder": 5,
    "decoder": 7,
    "readout": 4,
}
_SMALL_LSTMN = {
    "name": "lstmn_seq2seq",
    "embedding": 6,
    "width": 5,
    "attention": _ADDITIVE,
    "inter_attention": _ADDITIVE,
}
_SMALL_TRANSFORMER = {
    "name": "transformer",
    "width": 8,
    "layers": 2,
    "hidden": 12,
    "positions": {"name": "sinusoidal"},
    "dropout": 0.0,
}


TIED: set[str] = set()
"""Systems by dotted path that read a table of embeddings for their output too, so that it says nothing of positions."""
SILENT: dict[str, tuple[str, ...]] = {}
"""Of systems by dotted path: ends of the names of parameters that rightly get no gradient."""


def _attentions(one: dict[str, Any]) -> dict[str, Any]:
    return {"encoder_attention": one, "decoder_attention": one, "cross_attention": one}


SPECS: dict[str, dict[str, Any]] = {
    "rnn_encoder_decoder": {
        "name": "rnn_encoder_decoder",
        "embedding": 6,
        "encoder": 5,
        "decoder": 7,
        "maxout": 4,
    },
    "seq2seq": {"name": "seq2seq", **_SMALL_LSTM},
    "luong": {
        "name": "luong",
        **_SMALL_LSTM,
        "attention": {"name": "single", "score": {"name": "general"}},
    },
    "gnmt": _SMALL_GNMT,
    "rnnsearch": {**_SMALL_RNN, "attention": _ADDITIVE},
    "rnnsearch-previous": {**_SMALL_RNN, "attention": _ADDITIVE, "readout": "previous"},
    "rnnsearch-released": {**_SMALL_RNN, "attention": _ADDITIVE, "readout": "released"},
    "rnnsearch-multihead": {**_SMALL_RNN, "attention": _HEADS},
    "cgru": {
        "name": "cgru",
        "embedding": 6,
        "encoder": 5,
        "decoder": 7,
        "readout": 4,
        "attention": _ADDITIVE,
    },
    "pointer_generator": {**_SMALL_POINTER, "attention": _ADDITIVE},
    "pointer_generator-heads": {**_SMALL_POINTER, "attention": _HEADS, "share": "none"},
    "pointer_generator-uncovered": {**_SMALL_POINTER, "attention": _ADDITIVE, "coverage": "none"},
    "rctm": {"name": "rctm", "width": 6, "longest": 4},
    "convs2s": {**_SMALL_CONVOLUTIONS, "attention": _DOT, "positions": _PLACES},
    "convs2s-heads": {
        **_SMALL_CONVOLUTIONS,
        "attention": _HEADS,
        "positions": {"name": "none"},
        "kernel": 1,
    },
    "lstmn_seq2seq": {**_SMALL_LSTMN, "span": 2},
    "transformer": {**_SMALL_TRANSFORMER, **_attentions(_HEADS)},
    "transformer-post-additive": {
        **_SMALL_TRANSFORMER,
        **_attentions(_ADDITIVE),
        "norm": "post",
        "share": "none",
    },
    "transformer-by-layer": {
        **_SMALL_TRANSFORMER,
        "layers": 3,
        "encoder_attention": {"name": "none"},
        "decoder_attention": {"name": "by_layer", "one": {"name": "none"}, "other": _HEADS},
        "cross_attention": {"name": "by_layer", "one": _HEADS, "other": {"name": "none"}},
    },
    "transformer-t5": {
        **_SMALL_TRANSFORMER,
        "normalisation": "rms_norm",
        "feed_forward": {"name": "relu", "bias": False},
        "positions": {"name": "none"},
        "scaled_embedding": False,
        "share_positions": True,
        "encoder_attention": _T5_HEADS,
        "decoder_attention": _T5_HEADS,
        "cross_attention": {**_HEADS, "score": "dot", "head_width": 3},
        "scaled_output": True,
    },
    "transformer-bart": {
        **_SMALL_TRANSFORMER,
        **_attentions({**_HEADS, "bias": True}),
        "norm": "post",
        "feed_forward": "gelu",
        "decoder_layers": 1,
        "positions": {**_PLACES, "unused": 2},
        "own_positions": True,
        "scaled_embedding": False,
        "normalised_embedding": True,
        "output_bias": True,
    },
}


def make(spec: dict[str, Any]) -> Seq2Seq:
    """A tiny system."""
    system: Seq2Seq = build(SYSTEMS, ConfigDict(spec), "system")(
        source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY
    )
    return system


def alone(variables: Any) -> Any:
    """The parameters of what `init` made, which is nothing else: no maps, no losses, no samples."""
    assert set(variables) == {"params"}, "something was sown while parameters were made"
    return variables["params"]


def parameters(system: Seq2Seq, seed: int = 0) -> Any:
    """Parameters with no silent path: N(0, 1/rows) everywhere, also where a paper starts at zero;
    lengths of normalised weights + 1, and a third of that for the strength of a residual, which
    nothing else bounds.
    """
    ids = jnp.ones((1, 2), jnp.int32)
    shapes = alone(jax.eval_shape(system.init, jax.random.key(0), ids, ids))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    rng = np.random.default_rng(seed)
    more = [float(jax.tree_util.keystr(path).endswith("['g']")) for path, _ in leaves]
    drawn = [
        rng.normal(size=s.shape).astype(np.float32)
        / np.sqrt(max((1, *s.shape[:1])))
        / (3 if "strength" in jax.tree_util.keystr(path) else 1)
        for path, s in leaves
    ]
    return jax.tree.unflatten(
        tree, [one + np.float32(by) for one, by in zip(drawn, more, strict=True)]
    )


def batch(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Source [3,6] with padding, ending in EOS, and decoder input [3,5], BOS first."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(4, VOCABULARY, (3, 6)), rng.integers(4, VOCABULARY, (3, 5))
    for row, length in enumerate((6, 3, 1)):
        source[row, length - 1 :] = [EOS] + [PAD] * (6 - length)
    target[:, 0] = BOS
    return source.astype(np.int32), target.astype(np.int32)


@functools.cache
def made(spec: str) -> tuple[Any, Any, Any, Any]:
    """See `prepared`, `passed` and `begun`; one for all checks of a spec, so that each program is
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
        if method == "start":  # its length is no array
            return system.apply({"params": params}, *arguments, method=method)
        return compiled(params, *arguments, method=method, mutable=tuple(mutable))

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def slope(params: Any, source: jax.Array, target: jax.Array, until: int) -> Any:
        logits: Any = system.apply({"params": params}, source, target)
        seen = jnp.arange(target.shape[1])[:, None] < until
        return jnp.where(seen, logits**2, 0.0).sum(), logits

    @jax.jit
    def begin(params: Any, source: jax.Array) -> Any:
        memory = system.apply({"params": params}, source, method="encode")
        start = functools.partial(system.apply, {"params": params}, memory, method="start")
        return memory, start(5), by_row(start(9), len(source))

    return call, system, functools.partial(slope, params), functools.partial(begin, params)


def prepared(spec: dict[str, Any]) -> tuple[Any, Any]:
    """`call(*args, method=..., mutable=...)` of a tiny system with its parameters bound, compiled,
    and the system.
    """
    return made(json.dumps(spec, sort_keys=True))[:2]


def passed(spec: dict[str, Any], target: np.ndarray, until: int = 5) -> tuple[Any, np.ndarray]:
    """Of one program: gradients with respect to all parameters of the squared logits at the first
    `until` words of `target`, and all logits; at the source of `batch`.
    """
    slope = made(json.dumps(spec, sort_keys=True))[2]
    grads, logits = slope(batch()[0], target, until)
    return grads, np.asarray(logits)


def begun(spec: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The memory of the source of `batch`, a state with room for 5 words, whose rows stand at one
    step, and one with room for 9, whose rows stand at steps of their own.
    """
    found: tuple[Any, Any, Any] = made(json.dumps(spec, sort_keys=True))[3](batch()[0])
    return found


def check_causality(spec: dict[str, Any]) -> None:
    """Logits at t do not depend on decoder input after t, by perturbation and by an exactly zero
    gradient.
    """
    _, target = batch()
    before = passed(spec, target)[1]
    for t in range(1, target.shape[1]):
        changed = target.copy()
        changed[:, t:] = (changed[:, t:] + 3) % (VOCABULARY - 4) + 4
        after = passed(spec, changed)[1]
        assert_close(after[:, :t], before[:, :t], eps=8)
        assert np.abs(after[:, t:] - before[:, t:]).max() > 1e-3

    if spec["name"] in TIED:
        return
    tied = spec["name"] in (
        "transformer",
        "pointer_generator",
    )  # the output or the source reads the table too
    untied = {**spec, "share": "none"} if tied else spec
    if ":" in spec["name"] and "embed_target" not in parameters(
        make(untied)
    ):  # of one's own, told by perturbation alone
        return
    by_position = np.broadcast_to(
        np.arange(5, dtype=np.int32), (3, 5)
    )  # position p reads row p: gradients by row are gradients by position
    for t in range(1, 5):
        found = np.asarray(passed(untied, by_position, t)[0]["embed_target"]["embedding"])
        assert (found[t:5] == 0.0).all()
        assert t == 1 or np.abs(found[:t]).max() > 0.0  # row 0 is that of padding


def check_padding(spec: dict[str, Any], slopes: bool = True) -> None:
    """Padding on either side changes no logit of a real position, and other rows change none;
    `slopes`: other checks of this spec ask for its gradients.
    """
    call, _ = prepared(spec)
    source, target = batch()

    def logits(target: np.ndarray) -> np.ndarray:
        return passed(spec, target)[1] if slopes else np.asarray(call(source, target))

    before, ended = logits(target), target.copy()
    ended[:, 3:] = PAD
    np.testing.assert_allclose(logits(ended)[:, :3], before[:, :3], atol=2e-6)
    shorter = np.asarray(call(source[:, :3], target))  # the first is another sentence now
    assert_close(shorter[1:], before[1:], eps=16)
    assert np.abs(shorter[0] - before[0]).max() > 1e-3


def check_cached_decoding(spec: dict[str, Any], slopes: bool = True) -> None:
    """Feeding one token at a time gives the logits of the full pass; `slopes`: other checks of this
    spec ask for its gradients.
    """
    call, _ = prepared(spec)
    source, target = batch()
    full = passed(spec, target)[1] if slopes else call(source, target)
    memory, state, _ = begun(spec)
    for t in range(5):
        logits, state = call(state, memory, target[:, t], method="step")
        assert_close(logits, full[:, t], eps=16)


def check_rows_apart(spec: dict[str, Any]) -> None:
    """Rows that stand at steps of their own decode together, each as it does alone; their cache has
    more room than they take.
    """
    call, _ = prepared(spec)
    _, target = batch()
    full = passed(spec, target)[1]
    memory, _, state = begun(spec)
    states = [state]
    for t in range(3):
        states.append(call(states[-1], memory, target[:, t], method="step")[1])
    at = np.array([2, 0, 3])
    state = jax.tree.map(
        lambda *of_steps: np.stack([of_steps[step][row] for row, step in enumerate(at)]),
        *jax.device_get(states),
    )
    for _ in range(2):
        logits, state = call(state, memory, target[np.arange(3), at], method="step")
        np.testing.assert_allclose(logits, full[np.arange(3), at], atol=5e-6)
        at = at + 1


def check_gradients(spec: dict[str, Any]) -> None:
    """Every parameter gets a gradient, and all are finite."""
    flat = {
        jax.tree_util.keystr(path): grad
        for path, grad in jax.tree_util.tree_leaves_with_path(passed(spec, batch()[1])[0])
    }
    assert all(np.isfinite(grad).all() for grad in flat.values())
    silent = [name for name, grad in flat.items() if not np.abs(grad).max() > 1e-9]
    assert heard(spec, silent) == []


def heard(spec: dict[str, Any], silent: Sequence[str]) -> list[str]:
    """Parameters without a gradient, but for those that rightly have none: a key's bias shifts all
    scores of a row alike.
    """
    rightly = SILENT.get(spec["name"], ())
    plain = [
        name.replace("']['", "/").strip("[']") for name in silent if "w_key']['bias" not in name
    ]
    return [name for name in plain if not name.endswith(tuple(rightly) or ("\0",))]


def check_maps(spec: dict[str, Any], number: int | None = None) -> None:
    """Maps of every look change no logit, are distributions, see no padding, and are the same in
    decoding; there are `number` of them.
    """
    call, system = prepared(spec)
    source, target = batch()

    # To the last bit by the emitters of XLA that round alike whatever else a program hands out
    @functools.partial(jax.jit, compiler_options=SAME_ROUNDING)
    def both(*ids: Any) -> Any:
        return call(*ids, mutable=[MAPS]), call(*ids)

    (mapped, collected), plain = both(source, target)
    np.testing.assert_array_equal(mapped, plain)
    maps = system.maps(jax.device_get(collected)[MAPS])
    assert maps and number in (None, len(maps)), f"{len(maps)} maps: {', '.join(maps)}"
    lengths = {"source": 6, "target": 5, "target_in": 5}
    for name, one in maps.items():
        assert one.weights.shape[2:] == (
            lengths[one.query],
            lengths[one.key],
        ), f"{name} is {one.weights.shape}"
        own_past = one.query == one.key and (
            number is None or spec["name"] == "lstmn_seq2seq"
        )  # may lack a slot before the first word
        if not own_past:
            np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-6)
    if not any((one.query, one.key) == ("target", "source") for one in maps.values()):
        return
    alignment = system.alignment(maps)
    assert (
        np.asarray(alignment)[np.broadcast_to((source == PAD)[:, None], alignment.shape)] == 0.0
    ).all()
    memory, state, _ = begun(spec)
    for t in range(5):
        arguments = (state, memory, target[:, t])
        (_, state), collected = call(*arguments, method="step", mutable=[MAPS])
        looks = system.maps(jax.device_get(collected)[MAPS])
        np.testing.assert_allclose(system.alignment(looks)[:, 0], alignment[:, t], atol=2e-6)


def check_learning(spec: dict[str, Any]) -> None:
    """Eight pairs can be learnt by heart, from about chance."""
    system, rng = make(spec), np.random.default_rng(0)
    source, target = rng.integers(4, VOCABULARY, (8, 4)), rng.integers(4, VOCABULARY, (8, 3))
    target_in = np.pad(target, ((0, 0), (1, 0)), constant_values=1)[:, :-1]
    params = first_params(system.init, jax.random.key(0), source, target_in)["params"]
    optimizer = optax.adam(
        optax.cosine_decay_schedule(2e-2, 120)
    )  # at a constant pace the last loss would be a matter of rounding

    def update(carry: Any, _: None) -> tuple[Any, jax.Array]:
        params, state = carry

        def loss(params: Any) -> jax.Array:
            logits = system.apply({"params": params}, source, target_in)
            return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def losses_of(params: Any) -> jax.Array:
        return jax.lax.scan(update, (params, optimizer.init(params)), length=120)[1]

    losses = losses_of(params)
    chance = np.log(
        VOCABULARY
    )  # about that at first: no target leaks in (tied tables start above it)
    assert -0.3 < float(losses[0]) - chance < 1.5, (
        f"the first loss is {losses[0]:.2f}, chance {chance:.2f}"
    )
    assert losses[-1] < 0.01, f"the loss ends at {losses[-1]:.4f}"


def check_dropout(spec: dict[str, Any]) -> None:
    """The rate changes nothing without a random stream, and other keys drop other units."""
    system, (source, target) = make(spec | {"dropout": 0.5}), batch()
    never = make(spec | {"dropout": 0.0})

    @jax.jit
    def run(params: Any, key: Any) -> Any:
        call = functools.partial(system.apply, {"params": params}, source, target)
        return call(), never.apply({"params": params}, source, target), call(rngs={"dropout": key})

    params = parameters(system)
    # keys of the generator whose programs are small
    (quiet, without, one), (_, _, two) = (
        run(params, jax.random.key(k, impl="rbg")) for k in (0, 1)
    )
    np.testing.assert_array_equal(quiet, without)
    assert np.abs(one - two).max() > 1e-3


def wide(tree: Any) -> Any:
    """Its arrays in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def compared(
    spec: dict[str, Any], oracle: Callable[..., np.ndarray], settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle, for 3 sentences of 6, 3 and 1 tokens."""
    system, (source, target_in) = make(spec), batch()
    params = parameters(system)
    with jax.default_matmul_precision("highest"):
        logits = jax.jit(lambda params: system.apply({"params": params}, source, target_in))(params)
    return np.asarray(logits, np.float64), oracle(wide(params), settings, source, target_in)


def check_equal(found: np.ndarray, expected: np.ndarray) -> None:
    """To 1e-6 of the largest."""
    assert found.shape == expected.shape, (
        f"the oracle gives {list(expected.shape)}, the system {list(found.shape)}"
    )
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= 1e-6, f"they differ by {error:.1e} of the largest logit"


def check_every_parameter_is_read(
    oracle: Callable[[Any], np.ndarray], params: Any, by: float = 1.0
) -> None:
    """An array that an oracle of parameters forgot would be one that the system may get wrong; each
    is moved by N(0, by^2) in turn.
    """
    leaves, tree = jax.tree.flatten(wide(params))
    before, rng = (
        oracle(jax.tree.unflatten(tree, leaves)),
        np.random.default_rng(1),
    )  # 0 would scale each leaf
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for number, leaf in enumerate(leaves):
        changed = [*leaves[:number], leaf + by * rng.normal(size=leaf.shape), *leaves[number + 1 :]]
        assert np.abs(oracle(jax.tree.unflatten(tree, changed)) - before).max() > 1e-5, (
            f"{names[number]} makes no difference to the oracle"
        )


CHECKS = {
    "causality": check_causality,
    "padding": check_padding,
    "cached decoding": check_cached_decoding,
    "rows apart": check_rows_apart,
    "gradients": check_gradients,
}
