"""Promises are worth something only if broken code breaks them: each fault here must be caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.mechanisms.single import Single
from attnlab.attention.positions.sinusoidal import Sinusoidal
from attnlab.attention.view import View
from attnlab.layers.cells import GRULayer
from attnlab.layers.lstm import LSTMLayer
from attnlab.systems.recurrent import attention_lm, lstmn
from attnlab.systems.recurrent.rnnsearch import RNNsearch
from attnlab.systems.transformers.transformer import Transformer
from tests.systems import checks, language_models
from tests.systems.tiny import seldom

DEFAULT = ("no causal mask", "padding attended, additive", "decoder state not carried")


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    """A program that was compiled from sound code would hide the fault; one compiled from broken
    code would stay.
    """

    def forget() -> None:
        checks.made.cache_clear()
        language_models.forget()
        jax.clear_caches()  # of functions inside the package that are compiled on their own, too

    forget()
    yield
    forget()


def _reads_padding(plain: Any) -> Any:
    def read(self: Any, query: Any, memory: Any, *rest: Any) -> Any:
        everything = jnp.arange(memory.valid.shape[1])[None] < memory.length
        valid = jnp.broadcast_to(everything, memory.valid.shape)
        return plain(self, query, memory.replace(valid=valid), *rest)

    return read


def _runs_over_padding(plain: Any) -> Any:
    def through(self: Any, x: jax.Array, valid: Any = None, *rest: Any, **named: Any) -> Any:
        return plain(self, x, None, *rest, **named)

    return through


def _overwrites_the_cache(plain: Any) -> Any:
    def extend(self: Any, memory: Any, source: jax.Array, valid: Any = None) -> Any:
        shorter = memory.replace(length=jnp.maximum(memory.length - 1, 0))
        return plain(self, shorter, source, valid).replace(length=memory.length + 1)

    return extend


def _position_stuck(plain: Any) -> Any:
    return lambda self, state, memory, tokens: plain(
        self, state.replace(fed=0 * state.fed), memory, tokens
    )


def _shifts_in_the_full_pass(plain: Any) -> Any:
    return lambda self, x, positions: plain(self, x, positions + (x.shape[1] > 1))


def _keeps_the_state(plain: Any) -> Any:
    return lambda self, state, memory, tokens: (plain(self, state, memory, tokens)[0], state)


def _looks_ahead(plain: Any) -> Any:
    return lambda self, memory, target_in: plain(self, memory, jnp.roll(target_in, -1, axis=1))


def _sees_oneself(plain: Any) -> Any:
    def later(self: Any, *arguments: Any, **named: Any) -> Any:
        outputs, last = plain(self, *arguments, **named)
        return jnp.roll(outputs, -1, axis=1), last

    return later


def _forgets_the_window(plain: Any) -> Any:
    return lambda slots, counts, kept: jnp.zeros_like(slots[:, :kept])


def _keeps_padding(plain: Any) -> Any:
    return lambda slots, counts, kept: slots[:, slots.shape[1] - kept :]


def _allows(moved: Callable[[Any, Any], tuple[Any, Any]]) -> tuple[Any, str, Callable[[Any], Any]]:
    """A mask that is asked about other places than those of a query and a key."""
    return View, "allows", lambda plain: lambda self, i, j: plain(self, *moved(i, j))


_UNMASKED = (View, "allows", lambda plain: lambda self, i, j: None)
_OF_SYSTEMS: dict[tuple[str, str], dict[str, tuple[Any, str, Callable[[Any], Any]]]] = {
    ("transformer", "causality"): {
        "no causal mask": _UNMASKED,
        "causal mask one too late": _allows(lambda i, j: (i + 1, j)),
    },
    ("transformer-post-additive", "causality"): {"no causal mask-post-additive": _UNMASKED},
    ("transformer", "cached decoding"): {
        "mask aligned top left in decoding": _allows(lambda i, j: (i - i[..., :1], j)),
        "cache overwritten": (MultiHead, "extend", _overwrites_the_cache),
        "position stuck at zero": (Transformer, "step", _position_stuck),
        "positions shifted in the full pass": (Sinusoidal, "embed", _shifts_in_the_full_pass),
    },
    ("transformer", "padding"): {
        "padding attended, multihead": (MultiHead, "read", _reads_padding),
    },
    ("rnnsearch", "padding"): {
        "padding attended, additive": (Single, "read", _reads_padding),
        "encoder reads padding": (GRULayer, "__call__", _runs_over_padding),
    },
    ("rnnsearch", "cached decoding"): {
        "decoder state not carried": (RNNsearch, "step", _keeps_the_state),
    },
    ("rnnsearch", "causality"): {
        "a recurrent decoder looks ahead": (RNNsearch, "decode", _looks_ahead),
    },
    ("attention_lm", "pieces"): {
        "the window is forgotten": (attention_lm, "latest", _forgets_the_window),
    },
    ("attention_lm", "padding"): {
        "the window keeps padding": (attention_lm, "latest", _keeps_padding),
    },
    ("lstmn_lm", "padding"): {"the span keeps padding": (lstmn, "latest", _keeps_padding)},
    ("lstm_lm", "causality"): {
        "a language model sees the word": (LSTMLayer, "__call__", _sees_oneself),
    },
}
"""Of a system and a promise that tells: what is broken, and what takes its place."""
FAULTS = {
    name: (*promise, *fault)
    for promise, faults in _OF_SYSTEMS.items()
    for name, fault in faults.items()
}


@pytest.mark.parametrize("fault", seldom(FAULTS, *DEFAULT))
def test_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, promise, place, attribute, broken = FAULTS[fault]
    room: Any = checks if name in checks.SPECS else language_models
    spec = room.SPECS[name]
    monkeypatch.setattr(place, attribute, broken(getattr(place, attribute)))
    with pytest.raises(AssertionError):
        room.CHECKS[promise]({**spec, **({"layers": 1} if "layers" in spec else {})})
