"""What decoding is given of a system: how a translator writes a target, and how a language model goes
on from the beginning of a text.

In steps, each with what the system keeps of those before (`start`, `step`); or, with
`decoding.full_passes`, each with the whole text so far, which is read as in training (`decode`,
`__call__`). The text lies in a row that has room for all of it from the beginning, so that there is
one compiled program. Behind it is padding, which no token of the text sees.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.generate import Decoder, Ended, Functions
from attnlab.decoding.settings import Decoding, validate
from attnlab.systems.protocol import LanguageModel, Writer
from attnlab.tasks import schemas
from attnlab.tasks.models import check_bytes
from attnlab.tasks.protocol import Tree


def ending(settings: Decoding, text: Callable[[np.ndarray], str]) -> Ended | None:
    """When the settings stop a hypothesis whose ids mean `text(ids)`; None if none is."""
    return (lambda ids: settings.stopped(text(ids))) if settings.stop else None


Call = Callable[..., Any]
"""`call(..., method=...)`: a method of a system with its parameters."""


class Written(NamedTuple):
    """What full passes keep: the ids of each row [N,L], padding behind them, and how many there
    are, [N].
    """

    ids: jax.Array
    length: jax.Array

    def append(self, tokens: jax.Array) -> "Written":
        """With one more token [N] in each row; one that has no room is left out."""
        place = jnp.arange(self.ids.shape[1]) == self.length[:, None]
        return Written(jnp.where(place, tokens[:, None], self.ids), self.length + 1)

    def last(self, values: jax.Array) -> jax.Array:
        """Of something of every token, [N,L,...], that of the last token of each row, [N,...]."""
        positions = jnp.minimum(self.length, values.shape[1]) - 1
        return jax.vmap(lambda row, place: row[place])(values, positions)


def check_room(
    system: Writer,
    config: schemas.WritingSettings,
    shape: jax.ShapeDtypeStruct | None = None,
    places: int | None = None,
) -> None:
    """Raises `UserError` unless the system can decode as `config.decoding` says, the longest text
    that it may write, from an input of `shape` with `places` positions (by default the longest
    text), fits its positions, and the decoding state fits the memory of a device.

    Args:
      system: without parameters.
      config: the whole.
      shape: what it reads of one example; None for the longest text.
      places: how many can be looked at in that; None for those of the longest text.

    Raises:
      UserError: settings of `config.decoding` that the system cannot follow, or too many of them.
    """
    decoding = validate(config.decoding, weights=bool(system.needs))
    places = config.batch.max_length if places is None else places
    decoding.check_room(places)
    longest = decoding.limit(places)

    def first_state(key: jax.Array, source: jax.Array) -> Tree:
        """Returns the state of decoding, or the output of a full pass, for one text of the longest
        length.
        """
        params = system.init(key, source, jnp.ones((1, 2), jnp.int32))
        memory = system.apply(params, source, method="encode")
        if decoding.full_passes:
            return system.apply(params, memory, jnp.ones((1, longest), int), method="decode")
        return system.apply(params, memory, longest, method="start")

    ids = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
    check_bytes(
        jax.eval_shape(first_state, jax.random.key(0), ids if shape is None else shape),
        f"what it keeps for config.decoding, {decoding.rows} rows of {longest:,} tokens,",
        decoding.rows,
    )


def translating(
    system: Writer,
    settings: Decoding,
    *,
    alignment: bool = False,
    special: Special = OURS,
    ended: Ended | None = None,
    prepared: Callable[[jax.Array], jax.Array] = lambda source: source,
    real: Callable[[Any], Any] | None = None,
) -> Decoder:
    """Returns a decoder that encodes a source, after `prepared`, and writes its target with
    `system`, in steps or by full passes as the settings say; `alignment` also gives attention
    weights, `real` marks source positions, `ended` stops a text early.

    Args:
      system: without parameters.
      settings: of decoding.
      alignment: whether it gives weights too, if the system attends.
      special, real, ended: see `Decoder`.
      prepared: what a batch has of the source, to what the system reads.
    """
    attends = bool(system.needs)
    alignment = alignment and attends
    watched = [MAPS] if alignment or (settings.coverage and attends) else []

    def bind(params: Any) -> Functions:
        """Returns encode, start and step of the system with these parameters, for `Decoder`."""
        call = functools.partial(system.apply, {"params": params})

        def call_watched(*arguments: Any, method: str) -> tuple[Any, jax.Array | None]:
            """What a method gives, and the weights of its looks at the source, [N,T,S]."""
            if not watched:
                return call(*arguments, method=method), None
            output, collected = call(*arguments, method=method, mutable=watched)
            return output, system.alignment(system.maps(collected[MAPS]))

        def step(state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any, Any]:
            (logits, state), weights = call_watched(state, memory, tokens, method="step")
            return logits, state, None if weights is None else weights[:, 0]

        def rerun(state: Written, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Written, Any]:
            state = state.append(tokens)
            logits, weights = call_watched(memory, state.ids, method="decode")
            return state.last(logits), state, None if weights is None else state.last(weights)

        def encode(source: jax.Array) -> Any:
            return call(prepared(source), method="encode")

        if settings.full_passes:
            return Functions(encode, functools.partial(_blank, special), rerun)
        return Functions(encode, functools.partial(call, method="start"), step)

    return Decoder(bind, settings, alignment=alignment, special=special, real=real, ended=ended)


def continuing(
    system: LanguageModel, settings: Decoding, special: Special = OURS, ended: Ended | None = None
) -> Decoder:
    """Returns a decoder that continues texts with a language model; its "source" [B,S] is the
    beginning to be continued, with what precedes the first token.

    All of it but the last token is read first, `settings.prefill` tokens at once, or only written
    down for full passes; that one is fed in the first step, in place of the BOS that decoding
    begins with and never writes.
    """

    def bind(params: Any) -> Functions:
        """Returns encode, start and step of the language model with these parameters, for
        `Decoder`; encode reads the beginning but its last token.
        """
        call = functools.partial(system.apply, {"params": params})
        begin: Call
        following: Call
        if settings.full_passes:
            begin = functools.partial(_with_room, settings, special)
            following = functools.partial(_step_by_full_pass, system, call)
        else:
            begin = functools.partial(_state_after, call, settings, special)
            following = functools.partial(call, method="step")

        def encode(source: jax.Array) -> tuple[Any, jax.Array]:
            last = (source != special.pad).sum(axis=1, keepdims=True) - 1
            beginning = jnp.where(jnp.arange(source.shape[1]) < last, source, special.pad)
            state = begin(beginning)
            return state, jnp.take_along_axis(source, jnp.maximum(last, 0), axis=1)[:, 0]

        def step(
            state: tuple[Any, jax.Array], memory: Any, tokens: jax.Array
        ) -> tuple[jax.Array, Any, None]:
            inner, last = state
            first = tokens == special.bos
            logits, inner = following(inner, jnp.where(first, last, tokens))
            return logits, (inner, last), None

        return Functions(encode, lambda memory, length: memory, step)

    return Decoder(bind, settings, special=special, continues=True, ended=ended)


def _state_after(call: Call, settings: Decoding, special: Special, tokens: jax.Array) -> Tree:
    """Reads beginnings, ids [B,S], by a language model's methods (`call`), in pieces of
    `settings.prefill` tokens, and returns the state, with capacity for what follows.
    """
    rows, width = tokens.shape
    room = width + settings.limit(width)
    state, piece = call(rows, room, method="start"), settings.prefill
    if width <= piece:
        return call(state, tokens, method="read")[1]
    fill = ((0, 0), (0, -width % piece))
    pieces = jnp.pad(tokens, fill, constant_values=special.pad).reshape(rows, -1, piece)
    return jax.lax.scan(
        lambda state, ids: (call(state, ids, method="read")[1], None), state, pieces.swapaxes(0, 1)
    )[0]


def _with_room(settings: Decoding, special: Special, tokens: jax.Array) -> Written:
    """Beginnings [B,S], with room for what follows."""
    fill = ((0, 0), (0, settings.limit(tokens.shape[1])))
    ids = jnp.pad(tokens, fill, constant_values=special.pad)
    return Written(ids, (tokens != special.pad).sum(axis=1, dtype=jnp.int32))


def _blank(special: Special, memory: Any, length: int) -> Written:
    """Returns the state of full passes before the first token of the targets of a memory: no ids,
    with room for `length` tokens.
    """
    rows = next(len(leaf) for leaf in jax.tree.leaves(memory) if jnp.ndim(leaf))
    ids = jnp.full((rows, length), special.pad, jnp.int32)
    return Written(ids, jnp.zeros(rows, jnp.int32))


def _step_by_full_pass(
    system: LanguageModel, call: Call, state: Written, tokens: jax.Array
) -> tuple[jax.Array, Written]:
    """Appends a token [N] to each text of the state and returns the next logits [N,V], from a pass
    of `system` over the whole texts, and the new state; `call` runs its methods with parameters.
    Other logits are left out where a system can do so.
    """
    state = state.append(tokens)
    if not system.in_two:
        return state.last(call(state.ids)), state
    x = state.last(call(state.ids, method="hidden_states"))
    return call(x[:, None], method="logits")[:, 0], state
