"""How a language model goes on from the beginning of a text: it reads the prompt once, then writes
token by token.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.data.vocabulary import BOS, PAD
from attnlab.decoding import Decoder, Functions
from attnlab.decoding.settings import Settings
from attnlab.systems.protocol import LanguageModel


def continuing(system: LanguageModel, settings: Settings) -> Decoder:
    """A decoder whose "source" [B,S] is what is to be continued, what stands before the first token
    included.

    All of it but the last token is read in one pass; that one is fed in the first step, in place of
    the BOS that decoding begins with and never writes.
    """

    def bind(params: Any) -> Functions:
        call = functools.partial(system.apply, {"params": params})

        def encode(source: jax.Array) -> tuple[Any, jax.Array]:
            last = (source != PAD).sum(axis=1, keepdims=True) - 1
            before = jnp.where(jnp.arange(source.shape[1]) < last, source, PAD)
            _, state = call(call(len(source), method="start"), before, method="read")
            return state, jnp.take_along_axis(source, jnp.maximum(last, 0), axis=1)[:, 0]

        def step(
            state: tuple[Any, jax.Array], memory: Any, tokens: jax.Array
        ) -> tuple[jax.Array, Any, None]:
            known, last = state
            logits, known = call(known, jnp.where(tokens == BOS, last, tokens), method="step")
            return logits, (known, last), None

        return Functions(encode, lambda memory, length: memory, step)

    return Decoder(bind, settings)
