"""Promises of every sequence-to-sequence system, as functions that raise AssertionError: seeded
faults can be shown to break them, and `--system` puts one of somebody's own through them.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.decoding.steps import by_row
from attnlab.systems.protocol import Seq2Seq
from tests.flags import SAME_ROUNDING
from tests.rounding import assert_close
from tests.systems import tiny
from tests.systems.tiny import make, once, wide

VOCABULARY = tiny.SIZES[Seq2Seq]["target_vocabulary"]
_HEADS = {"name": "multihead", "heads": 2}
_LOOKS = {**_HEADS, "score": "dot", "head_width": 3}  # of T5
_T5_HEADS = {**_LOOKS, "positions": {"name": "t5", "buckets": 6, "max_distance": 4}}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 6}}
_DOT = {"name": "single", "score": {"name": "dot"}}
_PLACES = {"name": "learned", "length": 12, "stddev": 0.1}
_GRUS = {"embedding": 6, "encoder": 5, "decoder": 7}
_LSTMS = {"embedding": 6, "width": 5}
_CONVOLUTIONS = {
    **{"name": "convs2s", **_LSTMS, "dropout": 0.0, "attention": _DOT, "positions": _PLACES},
    **{"kernel": 3, "encoder_layers": 2, "decoder_layers": 2},
}


TIED: set[str] = set()
"""Systems by dotted path that read a table of embeddings for their output too, so that it says nothing of positions."""
SILENT: dict[str, tuple[str, ...]] = {}
"""Of systems by dotted path: ends of the names of parameters that rightly get no gradient."""


def _attentions(one: dict[str, Any]) -> dict[str, Any]:
    return {"encoder_attention": one, "decoder_attention": one, "cross_attention": one}


_SEARCH = {"name": "rnnsearch", **_GRUS, "maxout": 4, "attention": _ADDITIVE}
_POINTER = {"name": "pointer_generator", **_GRUS, "readout": 4, "attention": _ADDITIVE}
_LUONG = {"name": "luong", **_LSTMS, "layers": 2}
_LSTMN = {
    **{"name": "lstmn_seq2seq", **_LSTMS, "span": 2},
    **{"attention": _ADDITIVE, "inter_attention": _ADDITIVE},
}
_TRANSFORMER = {
    **{"name": "transformer", "width": 8, "layers": 2, "hidden": 12, "dropout": 0.0},
    **{"positions": {"name": "sinusoidal"}, **_attentions(_HEADS)},
}
_ONE_LAYER = {**_TRANSFORMER, "layers": 1}

SPECS: dict[str, dict[str, Any]] = {
    "rnn_encoder_decoder": {"name": "rnn_encoder_decoder", **_GRUS, "maxout": 4},
    "seq2seq": {"name": "seq2seq", **_LSTMS, "layers": 2},
    "luong": {**_LUONG, "attention": {"name": "single", "score": {"name": "general"}}},
    "gnmt": {
        **{"name": "gnmt", **_LSTMS, "attention": _ADDITIVE},
        **{"encoder_layers": 3, "decoder_layers": 2},
    },
    "rnnsearch": _SEARCH,
    "rnnsearch-previous": {**_SEARCH, "readout": "previous"},
    "rnnsearch-released": {**_SEARCH, "readout": "released"},
    "rnnsearch-multihead": {**_SEARCH, "attention": _HEADS},
    "cgru": {"name": "cgru", **_GRUS, "readout": 4, "attention": _ADDITIVE},
    "pointer_generator": _POINTER,
    "pointer_generator-heads": {**_POINTER, "attention": _HEADS, "share": "none"},
    "pointer_generator-uncovered": {**_POINTER, "coverage": "none", "share": "none"},
    "rctm": {"name": "rctm", "width": 6, "longest": 4},
    "convs2s": _CONVOLUTIONS,
    "convs2s-heads": {
        **{**_CONVOLUTIONS, "attention": _HEADS},
        **{"positions": {"name": "none"}, "kernel": 1},
    },
    "lstmn_seq2seq": _LSTMN,
    "transformer": _TRANSFORMER,
    "transformer-post-additive": {
        **{**_TRANSFORMER, **_attentions(_ADDITIVE)},
        **{"norm": "post", "share": "none"},
    },
    "transformer-by-layer": {
        **{**_TRANSFORMER, "layers": 3, "encoder_attention": {"name": "none"}},
        "decoder_attention": {"name": "by_layer", "one": {"name": "none"}, "other": _HEADS},
        "cross_attention": {"name": "by_layer", "one": _HEADS, "other": {"name": "none"}},
    },
    "transformer-t5": {
        **{**_TRANSFORMER, **_attentions(_T5_HEADS), "cross_attention": _LOOKS},
        **{"normalisation": "rms_norm", "feed_forward": {"name": "relu", "bias": False}},
        **{"positions": {"name": "none"}, "share_positions": True},
        **{"scaled_embedding": False, "scaled_output": True},
    },
    "transformer-bart": {
        **{**_TRANSFORMER, **_attentions({**_HEADS, "bias": True}), "decoder_layers": 1},
        **{"norm": "post", "feed_forward": "gelu", "output_bias": True},
        **{"positions": {**_PLACES, "unused": 2}, "own_positions": True},
        **{"scaled_embedding": False, "normalised_embedding": True},
    },
}


def _luong(score: dict[str, Any], alignment: Any = None, **fields: Any) -> dict[str, Any]:
    alignment = alignment or {"name": "softmax"}
    attention = {"name": "single", "score": score, "alignment": alignment}
    return {**_LUONG, "attention": attention, **fields}


_GENERAL = {"name": "general"}
COMPARED: dict[str, dict[str, Any]] = {
    **{
        name: spec
        for name, spec in SPECS.items()
        if name != "transformer" and not name.endswith(("multihead", "heads"))
    },
    "seq2seq-plain": {**SPECS["seq2seq"], "order": "plain"},
    "luong-dot-plain": _luong({"name": "dot"}, order="plain"),
    "luong-concat-local_m": _luong(
        {"name": "concat", "hidden": 6}, {"name": "local_m", "reach": 1}
    ),
    "luong-location-unfed": _luong({"name": "location", "limit": 6}, feeding="none"),
    "luong-general-local_p": _luong(_GENERAL, {"name": "local_p", "reach": 2}),
    "seq2seq-gru-both-ways": {**SPECS["seq2seq"], "width": 6, "cell": "gru", "directions": 2},
    "luong-tanh-both-ways": _luong({"name": "dot"}, width=6, cell="tanh", directions=2),
    "luong-gru-unfed": _luong(_GENERAL, cell="gru", feeding="none"),
    "gnmt-gru-one-way-unsummed": {
        **SPECS["gnmt"],
        **{"cell": "gru", "directions": 1, "residual": False, "decoder_layers": 3},
    },
    "gnmt-one-layer-a-side": {**SPECS["gnmt"], "encoder_layers": 1, "decoder_layers": 1},
    "gnmt-current": {**SPECS["gnmt"], "query": "current", "first": "encoder", "decoder_layers": 3},
    "rnnsearch-lstm-one-way": {**_SEARCH, "cell": "lstm", "directions": 1},
    "rnnsearch-tanh": {**_SEARCH, "cell": "tanh", "readout": "released"},
    "rctm-longer-than-laid-out": {**SPECS["rctm"], "longest": 2},
    **{
        f"convs2s-looking-{where}": {**_CONVOLUTIONS, "attend": where}
        for where in ("last", "first", "none")
    },
    "convs2s-one-layer-without-neighbours": {
        **_CONVOLUTIONS,
        **{"kernel": 1, "encoder_layers": 1, "decoder_layers": 1},
    },
    "convs2s-wide-window-without-positions": {
        **_CONVOLUTIONS,
        **{"kernel": 5, "positions": {"name": "none"}},
    },
    "lstmn_seq2seq-zeros": {**_LSTMN, "origin": "zeros", "span": 3},
    "lstmn_seq2seq-shallow": {
        **{**_LSTMN, "span": 6},
        **{"fusion": "shallow", "origin": "none", "question": "word"},
    },
    **{
        f"transformer-{norm}-{share}": {
            **_TRANSFORMER,
            **{"norm": norm, "share": share, "layers": 2 if share == "all" else 1},
        }
        for norm, share in itertools.product(("pre", "post"), ("all", "output", "none"))
    },
    **{
        f"transformer-{norm}-{normalisation}-{forward}": {
            **_ONE_LAYER,
            **{"norm": norm, "normalisation": normalisation, "feed_forward": forward},
        }
        for norm, normalisation, forward in (
            ("sandwich", "rms_norm", "geglu_tanh"),
            ("res_post", "rms_norm_plus_one", "swiglu"),
            ("parallel", "layer_norm", "gelu_tanh"),
            ("rezero", "none", "squared_relu"),
            ("none", "scale_norm", "relu"),
            ("pre", "dynamic_tanh", "none"),
            ("post", "none", "none"),
        )
    },
    "transformer-concatenated": {**_ONE_LAYER, "position_width": 4},
    "transformer-leaking": {**_ONE_LAYER, "leaking": True},
    "transformer-t5-1.1": {  # an untied head, and layers of two numbers
        **{**SPECS["transformer-t5"], "feed_forward": "geglu_tanh", "decoder_layers": 3},
        **{"scaled_output": False, "share": "input"},
    },
    "transformer-bart-untied": {
        **SPECS["transformer-bart"],
        **{"share": "none", "layers": 1, "decoder_layers": 0},
    },
}
"""Compared with an oracle; what is of other mechanisms is held to promises alone."""
LARGER: dict[str, dict[str, Any]] = {
    "seq2seq": {"embedding": 24, "width": 48, "layers": 1},
    "luong": {"embedding": 24, "width": 24, "layers": 1},
    "gnmt": {"embedding": 24, "width": 48, "encoder_layers": 1},
    "rnn_encoder_decoder": {"embedding": 24, "encoder": 24, "decoder": 24},
    "rnnsearch": {"embedding": 24, "encoder": 24, "decoder": 24},
    "cgru": {"embedding": 24, "encoder": 24, "decoder": 24, "readout": 24},
    "pointer_generator": {"embedding": 24, "encoder": 24, "decoder": 48, "readout": 24},
    "rctm": {"width": 64},
    "convs2s": {"embedding": 24, "width": 24},
    "lstmn_seq2seq": {"embedding": 24, "width": 24},
    "transformer": {"width": 32, "hidden": 64, "layers": 1},
}
"""With which eight pairs can be learnt by heart."""


def parameters(system: Any, *arguments: Any, seed: int = 0) -> Any:
    """Of N(0, 1/rows); lengths of normalised weights + 1, and a third of that for the strength of a
    residual, which nothing else bounds.
    """

    def rule(path: str, noise: np.ndarray) -> np.ndarray:
        scaled = tiny.by_rows(noise) + path.endswith("/g")
        return scaled / 3 if "strength" in path else scaled

    read = arguments or [jnp.ones((1, 2), jnp.int32)] * 2
    return tiny.drawn(system, *read, seed=seed, rule=rule)


def batch(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Source [3,6] with padding, ending in EOS, and decoder input [3,5], BOS first."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(4, VOCABULARY, (3, 6)), rng.integers(4, VOCABULARY, (3, 5))
    for row, length in enumerate((6, 3, 1)):
        source[row, length - 1 :] = [EOS] + [PAD] * (6 - length)
    target[:, 0] = BOS
    return source.astype(np.int32), target.astype(np.int32)


@once
def made(spec: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """See `prepared`, `passed` and `begun`."""
    system = make(spec)
    params = parameters(system)

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

    call = tiny.bound(system, params)
    return call, system, functools.partial(slope, params), functools.partial(begin, params)


def prepared(spec: dict[str, Any]) -> tuple[Any, Any]:
    """`call(*args, method=..., mutable=...)` of a tiny system with its parameters bound, compiled,
    and the system.
    """
    return made(spec)[:2]


def passed(
    spec: dict[str, Any], target: np.ndarray, until: int = 5, source: np.ndarray | None = None
) -> tuple[Any, np.ndarray]:
    """Of one program: gradients with respect to all parameters of the squared logits at the first
    `until` words of `target`, and all logits; at `source`, or that of `batch`.
    """
    slope = made(spec)[2]
    grads, logits = slope(batch()[0] if source is None else source, target, until)
    return grads, np.asarray(logits)


def begun(spec: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The memory of the source of `batch`, a state with room for 5 words, whose rows stand at one
    step, and one with room for 9, whose rows stand at steps of their own.
    """
    return made(spec)[3](batch()[0])


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
    tied = spec["name"] in ("transformer", "pointer_generator")  # output or source read the table
    untied = {**spec, "share": "none"} if tied else spec
    if ":" in spec["name"] and "embed_target" not in parameters(make(untied)):
        return  # of one's own, told by perturbation alone
    # position p reads row p: gradients by row are gradients by position
    by_position = np.broadcast_to(np.arange(5, dtype=np.int32), (3, 5))
    for t in range(1, 5):
        slope = np.asarray(passed(untied, by_position, t)[0]["embed_target"]["embedding"])
        assert (slope[t:5] == 0.0).all()
        assert t == 1 or np.abs(slope[:t]).max() > 0.0  # row 0 is that of padding


def check_padding(spec: dict[str, Any]) -> None:
    """Padding on either side changes no logit of a real position, other rows change none, and a
    source of one word is read as beside longer ones.
    """
    call, _ = prepared(spec)
    source, target = batch()
    before, ended = call(source, target), target.copy()
    ended[:, 3:] = PAD
    np.testing.assert_allclose(call(source, ended)[:, :3], before[:, :3], atol=2e-6)
    for words, same in ((3, 1), (1, 2)):
        shorter = np.asarray(call(source[:, :words], target))  # the first is another sentence now
        assert_close(shorter[same:], before[same:], eps=16)
        assert np.abs(shorter[0] - before[0]).max() > 1e-3


def check_cached_decoding(spec: dict[str, Any]) -> None:
    """Feeding one token at a time gives the logits of the full pass."""
    call, _ = prepared(spec)
    source, target = batch()
    full = call(source, target)
    memory, state, _ = begun(spec)
    for t in range(5):
        logits, state = call(state, memory, target[:, t], method="step")
        assert_close(logits, full[:, t], eps=16)


def apart(call: Any, state: Any, memory: Any, target: np.ndarray) -> tuple[Any, np.ndarray]:
    """A state whose three rows stand at steps of their own, from one before any step, and which."""
    states, at = [state], np.array([2, 0, 3])
    for t in range(3):
        states.append(call(states[-1], memory, target[:, t], method="step")[1])
    mixed = jax.tree.map(
        lambda *of_steps: np.stack([of_steps[step][row] for row, step in enumerate(at)]),
        *jax.device_get(states),
    )
    return mixed, at


def check_rows_apart(spec: dict[str, Any]) -> None:
    """Rows that stand at steps of their own decode together, each as it does alone; their cache has
    more room than they take.
    """
    call, _ = prepared(spec)
    source, target = batch()
    full = np.asarray(call(source, target))
    memory, _, state = begun(spec)
    state, at = apart(call, state, memory, target)
    for _ in range(2):
        logits, state = call(state, memory, target[np.arange(3), at], method="step")
        np.testing.assert_allclose(logits, full[np.arange(3), at], atol=5e-6)
        at = at + 1


def check_heard(spec: dict[str, Any], *gradients: Any, least: float = 1e-9) -> None:
    """All gradients are finite, and every parameter gets one, of one of several draws at least, but
    for those that rightly get none: a key's bias shifts all scores of a row alike.
    """
    rightly = ("w_key/bias", *SILENT.get(spec["name"], ()))
    draws = [tiny.named(gradient) for gradient in gradients]
    assert all(np.isfinite(array).all() for draw in draws for array in draw.values())
    silent = [
        path
        for path in draws[0]
        if not max(np.abs(draw[path]).max() for draw in draws) > least
        and not path.endswith(rightly)
    ]
    assert not silent, f"no gradient for {', '.join(silent)}"


def check_gradients(spec: dict[str, Any]) -> None:
    """Every parameter gets a gradient, and all are finite."""
    check_heard(spec, passed(spec, batch()[1])[0])


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
        expected = lengths[one.rows], lengths[one.columns]
        assert one.weights.shape[2:] == expected, f"{name} is {one.weights.shape}"
        # what looks at its own past may lack a slot before the first word
        if one.rows != one.columns or (number and spec["name"] != "lstmn_seq2seq"):
            np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-6)
    if not any((one.rows, one.columns) == ("target", "source") for one in maps.values()):
        return
    alignment = system.alignment(maps)
    assert not np.asarray(alignment)[
        np.broadcast_to((source == PAD)[:, None], alignment.shape)
    ].any()
    memory, state, _ = begun(spec)
    for t in range(5):
        arguments = (state, memory, target[:, t])
        (_, state), collected = call(*arguments, method="step", mutable=[MAPS])
        looks = system.maps(jax.device_get(collected)[MAPS])
        np.testing.assert_allclose(system.alignment(looks)[:, 0], alignment[:, t], atol=2e-6)


def check_learning(spec: dict[str, Any]) -> None:
    """Eight pairs can be learnt by heart, from about chance."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(4, VOCABULARY, (8, 4)), rng.integers(4, VOCABULARY, (8, 3))
    target_in = np.pad(target, ((0, 0), (1, 0)), constant_values=1)[:, :-1]

    losses = tiny.fitted(make(spec), (source, target_in), tiny.entropy_of(target))
    tiny.check_learnt(losses, VOCABULARY, last=0.01, below=0.3)


def compared(
    spec: dict[str, Any], oracle: Callable[..., np.ndarray], settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle, for 3 sentences of 6, 3 and 1 tokens."""
    call, system = prepared(spec)
    logits = np.asarray(call(*batch()), np.float64)
    return logits, oracle(wide(parameters(system)), settings, *batch())


CHECKS = {
    "causality": check_causality,
    "padding": check_padding,
    "cached decoding": check_cached_decoding,
    "rows apart": check_rows_apart,
    "gradients": check_gradients,
}
