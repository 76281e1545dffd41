"""Promises of every classifier of tokens, as functions that raise AssertionError, and tiny ones to
hold to them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.vocabulary import PAD
from attnlab.systems.protocol import TokenClassifier
from tests.rounding import assert_close
from tests.systems import tiny
from tests.systems.checks import check_heard
from tests.systems.tiny import by_rows, check_learnt, drawn, entropy_of, fitted, once, wide

VOCABULARY, OUTPUTS = tiny.SIZES[TokenClassifier]["vocabulary"], 3
LENGTHS = (6, 3, 1, 0)  # of the rows of `batch`; the last one is nothing but padding
_HEADS = {"name": "multihead", "heads": 2, "bias": ("query", "value", "out")}
_NOTHING = {"name": "none"}
_ENCODER = {
    **{"name": "encoder", "attention": _HEADS, "positions": {"name": "learned", "length": 10}},
    **{"width": 8, "layers": 2, "hidden": 12},
}
_WINDOW = {"name": "window", "width": 2}
_TAGGER = {"name": "bilstm_tagger", "embedding": 6, "width": 5}

SPECS: dict[str, dict[str, Any]] = {
    "encoder": _ENCODER,
    "encoder-tied": {
        **{**_ENCODER, "head": "tied", "norm": "post"},
        **{"normalised_embedding": True, "types": 2},
    },
    "bert": {**_ENCODER, "name": "bert"},
    "encoder-concatenated": {
        **{**_ENCODER, "layers": 1, "position_width": 3},
        **{"head": "tied", "types": 2},
    },
    "encoder-by-layer": {
        **{**_ENCODER, "layers": 3},
        "attention": {
            **{"name": "by_layer", "one": _NOTHING, "other": _HEADS},
            "pattern": ("other", "one", "other"),
        },
        "visibility": {
            **{"name": "by_layer", "one": {"name": "full"}, "other": _WINDOW},
            "pattern": ("other", "other", "one"),
        },
    },
    "encoder-parts-taken-out": {
        **{**_ENCODER, "layers": 1, "norm": "post"},
        **dict.fromkeys(("positions", "normalisation", "feed_forward"), _NOTHING),
    },
    "bilstm_tagger": _TAGGER,
    "bilstm_tagger-deep": {**_TAGGER, "layers": 2},
    "encoder-rope-window": {
        **{**_ENCODER, "attention": {**_HEADS, "key_heads": 1, "positions": {"name": "rope"}}},
        **{"positions": _NOTHING, "visibility": _WINDOW, "norm": "sandwich"},
        **{"normalisation": {"name": "rms_norm"}, "feed_forward": {"name": "swiglu"}},
        "scaled_embedding": True,
    },
}
COMPARED: dict[str, dict[str, Any]] = {
    **SPECS,
    **{norm: {**_ENCODER, "norm": norm, "layers": 1} for norm in ("parallel", "res_post", "none")},
    "rezero": {**_ENCODER, "norm": "rezero", "normalisation": _NOTHING, "layers": 1},
}
LARGER: dict[str, dict[str, Any]] = {"encoder": {}}
"""What learns by heart."""


def make(spec: dict[str, Any]) -> TokenClassifier:
    """A tiny system; one whose output is tied to the embedding has as many outputs as ids."""
    return tiny.make(spec, outputs=VOCABULARY if _tied(spec) else OUTPUTS)  # type: ignore[no-any-return]


def _tied(spec: dict[str, Any]) -> bool:
    return spec.get("head", "tied" if spec["name"] == "bert" else "linear") == "tied"


def parameters(system: TokenClassifier, *arguments: Any) -> Any:
    """Of N(0, 1/rows); norms multiply by about 1."""
    scaled = lambda path, noise: by_rows(noise) + path.endswith("/scale")
    return drawn(system, *(arguments or [jnp.ones((1, 2), jnp.int32)]), rule=scaled)


def batch(seed: int = 1) -> np.ndarray:
    """Tokens [4,6], padded at the end."""
    tokens = np.random.default_rng(seed).integers(4, VOCABULARY, (len(LENGTHS), 6))
    return np.where(real(), tokens, PAD).astype(np.int32)


def real() -> np.ndarray:
    """Which tokens of `batch` are no padding."""
    return np.arange(6) < np.array(LENGTHS)[:, None]


def types() -> np.ndarray:
    """Two texts in each row of `batch`, the second from token 2 on."""
    return np.broadcast_to(np.arange(6) >= 2, (len(LENGTHS), 6)).astype(np.int32)


@once
def prepared(spec: dict[str, Any]) -> tuple[Any, Any, TokenClassifier]:
    """`call(params, tokens, types=..., ...)`, compiled; parameters; and the system."""
    system = make(spec)
    params = parameters(system)
    return tiny.compiled(system), params, system


def check_padding(spec: dict[str, Any]) -> None:
    """More padding changes no number of a real token, and neither do the other rows; all numbers
    are finite.
    """
    call, params, _ = prepared(spec)
    ids = batch()
    before = call(params, ids)
    assert np.isfinite(before).all()
    longer = call(params, np.pad(ids, ((0, 0), (0, 3))))
    np.testing.assert_allclose(longer[:, :6][real()], before[real()], atol=5e-6)
    others = ids.copy()
    others[0] = others[0, ::-1]
    np.testing.assert_allclose(call(params, others)[1, :3], before[1, :3], atol=5e-6)


def check_every_token_counts(spec: dict[str, Any]) -> None:
    """Another token gives other numbers there and at a neighbour, and leaves the other rows."""
    call, params, _ = prepared(spec)
    ids = batch()
    before = call(params, ids)
    for place in (0, 2, 5):
        changed = ids.copy()
        changed[0, place] = (changed[0, place] - 3) % (VOCABULARY - 4) + 4
        moved = np.abs(call(params, changed) - before).max(axis=-1)
        assert moved[0, place] > 1e-4
        assert max(moved[0, place - 1] if place else 0, moved[0, min(place + 1, 5)]) > 1e-4
        assert (moved[1:][real()[1:]] < 5e-6).all()


def check_what_it_reads(spec: dict[str, Any]) -> None:
    """Types change numbers where they are declared; some tokens alone are as all; texts packed into a row are read as if each
    stood alone.
    """
    call, params, system = prepared(spec)
    ids = batch()
    if "types" in system.reads and getattr(system, "types", 1):
        assert np.abs(call(params, ids, types=types()) - call(params, ids)).max() > 1e-3
    if "segments" not in system.reads:
        return
    segments = np.array([[1, 1, 2, 2, 2, 2], [1, 2, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6])
    if "at" in system.reads:  # in another order, one of them twice
        places = np.tile([5, 0, 4, 1, 3, 2, 2], (4, 1))
        chosen = np.asarray(call(params, ids, segments=segments, at=places))
        np.testing.assert_array_equal(chosen[:, 5], chosen[:, 6])
        packed = chosen[:, np.argsort(places[0])[[0, 1, 2, 4, 5, 6]]]
    else:
        packed = call(params, ids, segments=segments)
    for row, start, end in ((0, 0, 2), (0, 2, 6), (1, 0, 1), (1, 1, 3)):
        alone = np.pad(ids[row : row + 1, start:end], ((0, 3), (0, 6 - end + start)))
        actual = call(params, alone)[0, : end - start]
        assert_close(packed[row, start:end], actual, eps=16)


def check_gradients(spec: dict[str, Any]) -> None:
    """Finite everywhere, also with rows of nothing but padding, and some for every parameter."""
    _, params, system = prepared(spec)
    beside = {"types": types()} if "types" in system.reads else {}

    def squared(params: Any) -> jax.Array:
        actual: Any = system.apply({"params": params}, batch(), **beside)
        return jnp.where(real()[..., None], actual**2, 0.0).sum()

    check_heard(spec, jax.jit(jax.grad(squared))(params))


def check_learning(spec: dict[str, Any]) -> None:
    """The tokens before and after, which no token tells by itself, can be learnt by heart."""
    system = make({**spec, "dropout": 0.0})
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (8, 6))
    expected = (np.roll(ids, 1, axis=1) + np.roll(ids, -1, axis=1))[:, 1:-1] % system.outputs

    cost = entropy_of(expected)
    losses = fitted(system, (ids,), lambda said: cost(said[:, 1:-1]), steps=200, rate=1e-2)
    check_learnt(losses, system.outputs, last=0.02, below=0.3)


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the system and of the oracle where tokens are real; the oracle gets parameters,
    settings, tokens and, where the system reads them, types.
    """
    call, params, system = prepared(spec)
    beside = {"types": types()} if "types" in system.reads else {}
    result = np.asarray(call(params, batch(), **beside), np.float64)
    return result[real()], oracle(wide(params), settings, batch(), *beside.values())[real()]


CHECKS = {
    "padding": check_padding,
    "every token counts": check_every_token_counts,
    "what it reads": check_what_it_reads,
    "gradients": check_gradients,
}
