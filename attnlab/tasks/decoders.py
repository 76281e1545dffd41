"""What decoding is given of a system: how a translator writes a target, and how a language model goes
on from the beginning of a text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding import Decoder, Functions, validate
from attnlab.decoding.generate import Ended
from attnlab.decoding.settings import Settings
from attnlab.systems.protocol import LanguageModel, Seq2Seq
from attnlab.tasks.models import check_bytes
from attnlab.tasks.protocol import Tree


def ending(settings: Settings, text: Callable[[np.ndarray], str]) -> Ended | None:
    """When the settings stop a hypothesis whose ids mean `text(ids)`; None if none is."""
    return (lambda ids: settings.stopped(text(ids))) if settings.stop else None


def check_room(system: Seq2Seq, config: ConfigDict) -> None:
    """Check that what decoding keeps has room, in the system and on a device: what has an end must
    reach as far as decoding may go.

    Raises:
      UserError: settings of `config.decoding` that the system cannot follow, or too many of them.
    """
    decoding = validate(config.decoding, weights=bool(system.needs))
    decoding.check_room(config.batch.max_length)
    longest = decoding.limit(config.batch.max_length)

    def begun(key: jax.Array, source: jax.Array) -> Tree:
        params = system.init(key, source, source)
        memory = system.apply(params, source, method="encode")
        return system.apply(params, memory, longest, method="start")

    ids = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
    check_bytes(
        jax.eval_shape(begun, jax.random.key(0), ids),
        f"what it keeps for config.decoding, {decoding.rows} rows of {longest:,} tokens,",
        decoding.rows,
    )


def translating(
    system: Seq2Seq,
    settings: Settings,
    *,
    alignment: bool = False,
    special: Special = OURS,
    ended: Ended | None = None,
) -> Decoder:
    """A decoder of a sequence-to-sequence system; `alignment`: with weights, if it attends;
    `ended`: see `Decoder`.
    """
    attends = bool(system.needs)
    alignment = alignment and attends
    watched = [MAPS] if alignment or (settings.coverage and attends) else []

    def bind(params: Any) -> Functions:
        call = functools.partial(system.apply, {"params": params})

        def step(
            state: Any, memory: Any, tokens: jax.Array
        ) -> tuple[jax.Array, Any, jax.Array | None]:
            if not watched:
                return *call(state, memory, tokens, method="step"), None
            (logits, state), collected = call(state, memory, tokens, method="step", mutable=watched)
            return logits, state, system.alignment(system.maps(collected[MAPS]))[:, 0]

        return Functions(
            functools.partial(call, method="encode"), functools.partial(call, method="start"), step
        )

    return Decoder(bind, settings, alignment=alignment, special=special, ended=ended)


def continuing(
    system: LanguageModel,
    settings: Settings,
    special: Special = OURS,
    ended: Ended | None = None,
) -> Decoder:
    """A decoder whose "source" [B,S] is what is to be continued, what stands before the first token
    included.

    All of it but the last token is read first, `settings.prefill` tokens at once; that one is fed
    in the first step, in place of the BOS that decoding begins with and never writes.
    """

    def bind(params: Any) -> Functions:
        call = functools.partial(system.apply, {"params": params})

        def read(call: Any, tokens: jax.Array) -> Any:
            rows, width = tokens.shape
            room = width + settings.limit(width)
            state, piece = call(rows, room, method="start"), settings.prefill
            if width <= piece:
                return call(state, tokens, method="read")[1]
            fill = ((0, 0), (0, -width % piece))
            pieces = jnp.pad(tokens, fill, constant_values=special.pad).reshape(rows, -1, piece)
            return jax.lax.scan(
                lambda state, one: (call(state, one, method="read")[1], None),
                state,
                pieces.swapaxes(0, 1),
            )[0]

        def encode(source: jax.Array) -> tuple[Any, jax.Array]:
            last = (source != special.pad).sum(axis=1, keepdims=True) - 1
            before = jnp.where(jnp.arange(source.shape[1]) < last, source, special.pad)
            state = read(call, before)
            return state, jnp.take_along_axis(source, jnp.maximum(last, 0), axis=1)[:, 0]

        def step(
            state: tuple[Any, jax.Array], memory: Any, tokens: jax.Array
        ) -> tuple[jax.Array, Any, None]:
            known, last = state
            first = tokens == special.bos
            logits, known = call(known, jnp.where(first, last, tokens), method="step")
            return logits, (known, last), None

        return Functions(encode, lambda memory, length: memory, step)

    return Decoder(bind, settings, special=special, continues=True, ended=ended)
