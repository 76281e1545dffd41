"""The promises of `checks.py` are worth something only if broken code breaks them: each fault here
must be caught.
"""

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
from attnlab.systems.recurrent.rnnsearch import RNNsearch
from attnlab.systems.transformers.transformer import Transformer
from tests.systems.checks import CHECKS, SPECS, made

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    """A program that was compiled from sound code would hide the fault; one compiled from broken
    code would stay.
    """
    made.cache_clear()
    jax.clear_caches()  # of functions inside the package that are compiled on their own, too
    yield
    made.cache_clear()
    jax.clear_caches()


def _forget_causality(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "allows", lambda self, i, j: None)


def _mask_one_too_late(patch: pytest.MonkeyPatch) -> None:
    plain = View.allows
    patch.setattr(View, "allows", lambda self, i, j: plain(self, i + 1, j))


def _align_top_left(patch: pytest.MonkeyPatch) -> None:
    plain = View.allows
    patch.setattr(View, "allows", lambda self, i, j: plain(self, i - i[..., :1], j))


def _ignore_padding(mechanism: Any) -> Patch:
    def act(patch: pytest.MonkeyPatch) -> None:
        plain = mechanism.read

        def read(self: Any, query: Any, memory: Any, *rest: Any) -> Any:
            everything = jnp.arange(memory.valid.shape[1])[None] < memory.length
            return plain(
                self,
                query,
                memory.replace(valid=jnp.broadcast_to(everything, memory.valid.shape)),
                *rest,
            )

        patch.setattr(mechanism, "read", read)

    return act


def _run_over_padding(patch: pytest.MonkeyPatch) -> None:
    plain = GRULayer.__call__

    def through(self: Any, x: jax.Array, valid: Any = None, *rest: Any, **how: Any) -> Any:
        return plain(self, x, None, *rest, **how)

    patch.setattr(GRULayer, "__call__", through)


def _overwrite_the_cache(patch: pytest.MonkeyPatch) -> None:
    plain = MultiHead.extend

    def extend(self: Any, memory: Any, source: jax.Array, valid: Any = None) -> Any:
        return plain(
            self, memory.replace(length=jnp.maximum(memory.length - 1, 0)), source, valid
        ).replace(length=memory.length + 1)

    patch.setattr(MultiHead, "extend", extend)


def _forget_the_position(patch: pytest.MonkeyPatch) -> None:
    plain = Transformer.step
    patch.setattr(
        Transformer,
        "step",
        lambda self, state, memory, tokens: plain(
            self, state.replace(fed=0 * state.fed), memory, tokens
        ),
    )


def _positions_from_one_in_full_pass(patch: pytest.MonkeyPatch) -> None:
    plain = Sinusoidal.embed
    patch.setattr(
        Sinusoidal, "embed", lambda self, x, positions: plain(self, x, positions + (x.shape[1] > 1))
    )


def _keep_the_first_state(patch: pytest.MonkeyPatch) -> None:
    plain = RNNsearch.step
    patch.setattr(
        RNNsearch,
        "step",
        lambda self, state, memory, tokens: (plain(self, state, memory, tokens)[0], state),
    )


FAULTS: dict[str, tuple[str, str, Patch]] = {
    "no causal mask": ("transformer", "causality", _forget_causality),
    "causal mask one too late": ("transformer", "causality", _mask_one_too_late),
    "no causal mask, additive": ("transformer-post-additive", "causality", _forget_causality),
    "mask aligned top left in decoding": ("transformer", "cached decoding", _align_top_left),
    "cache overwritten": ("transformer", "cached decoding", _overwrite_the_cache),
    "position stuck at zero": ("transformer", "cached decoding", _forget_the_position),
    "positions shifted in the full pass": (
        "transformer",
        "cached decoding",
        _positions_from_one_in_full_pass,
    ),
    "padding attended, multihead": ("transformer", "padding", _ignore_padding(MultiHead)),
    "padding attended, additive": ("rnnsearch", "padding", _ignore_padding(Single)),
    "encoder reads padding": ("rnnsearch", "padding", _run_over_padding),
    "decoder state not carried": ("rnnsearch", "cached decoding", _keep_the_first_state),
}


@pytest.mark.parametrize(("spec", "check", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_fault_is_caught(
    spec: str, check: str, fault: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    small = {"layers": 1} if spec.startswith("transformer") else {}
    how = {} if check == "causality" else {"slopes": False}
    with pytest.raises(AssertionError):
        CHECKS[check]({**SPECS[spec], **small}, **how)


def test_recurrent_decoder_that_looks_ahead_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RNNsearch.decode
    monkeypatch.setattr(
        RNNsearch,
        "decode",
        lambda self, memory, target_in: plain(self, memory, jnp.roll(target_in, -1, axis=1)),
    )
    with pytest.raises(AssertionError):
        CHECKS["causality"](SPECS["rnnsearch"])
