"""From batches of source sentences to hypotheses in the order of the sentences: the driver of
evaluation and generation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.beam import beam_search
from attnlab.decoding.greedy import greedy
from attnlab.decoding.hypotheses import Hypotheses, StepFn
from attnlab.decoding.sampling import sample
from attnlab.decoding.settings import Settings


class Functions(NamedTuple):
    """A model with its parameters, as decoding needs it.

    Attributes:
      encode: `encode(source [B,S]) -> memory`, arrays with leading axis B.
      start: `start(memory, length) -> state` with room for `length` steps; arrays with leading axis
        B, scalars allowed.
      step: see `StepFn`.
    """

    encode: Callable[[jax.Array], Any]
    start: Callable[[Any, int], Any]
    step: StepFn


Bind = Callable[[Any], Functions]
"""`bind(params) -> Functions`, called while tracing: params stay an argument of the program and are not baked into it."""


@dataclasses.dataclass(frozen=True)
class Decoded:
    """One hypothesis: tokens [l] int32 (EOS kept), score, log P(Y|X), and attention weights [l,
    source length] or None.
    """

    tokens: np.ndarray
    score: float
    log_prob: float
    alignment: np.ndarray | None = None


class Decoder:
    """Decodes batches by one compiled program for each batch shape; keep the object to keep the
    programs.

    Args:
      bind: the model.
      settings: from `settings.validate`.
      alignment: also return attention weights, where the model has them.
      special: ids of the target's vocabulary; sources are padded with the same id.
    """

    def __init__(
        self, bind: Bind, settings: Settings, *, alignment: bool = False, special: Special = OURS
    ) -> None:
        self.settings, self.special = settings, special
        self._search = jax.jit(
            lambda params, source, limits, indices: _search(
                bind(params), settings, alignment, special, source, limits, indices
            )
        )

    def __call__(
        self, params: Any, batches: Iterable[tuple[Any, Mapping[str, Any]]]
    ) -> list[list[Decoded]]:
        """The hypotheses of every sentence, best first, in the order of the sentences.

        Args:
          params: what `bind` takes.
          batches: pairs of indices [B] (-1 for rows that only fill the batch up) and a batch with
            'source' [B,S], right-padded.

        Returns:
          Item i is the list of hypotheses of the sentence with index i; it holds at least one.

        Raises:
          ValueError: the indices are not 0 ... n-1, each once.
        """
        found: dict[int, list[Decoded]] = {}
        count = 0
        for indices, batch in batches:
            indices, source = np.asarray(indices, np.int32), np.asarray(batch["source"])
            lengths = (source != self.special.pad).sum(axis=1)
            # A row that fills up is done after one token, so that it never keeps the others
            # waiting.
            limits = np.array(
                [
                    self.settings.limit(n) if i >= 0 else 1
                    for i, n in zip(indices, lengths, strict=True)
                ],
                np.int32,
            )
            result = jax.device_get(self._search(params, source, limits, indices))
            for row in np.flatnonzero(indices >= 0).tolist():
                found[int(indices[row])] = _unpack(result, row, int(lengths[row]))
                count += 1
        if count != len(found) or set(found) != set(range(count)):
            raise ValueError(
                f"decoding: {count} rows with {len(found)} distinct indices do not number the"
                " sentences 0 ... n-1"
            )
        return [found[index] for index in range(count)]


def decode(
    bind: Bind,
    params: Any,
    batches: Iterable[tuple[Any, Mapping[str, Any]]],
    settings: Settings,
    *,
    alignment: bool = False,
) -> list[list[Decoded]]:
    """`Decoder(bind, settings)(params, batches)`, for decoding once."""
    return Decoder(bind, settings, alignment=alignment)(params, batches)


def _search(
    model: Functions,
    settings: Settings,
    alignment: bool,
    special: Special,
    source: jax.Array,
    limits: jax.Array,
    indices: jax.Array,
) -> Hypotheses:
    """The program: encode [B,S], then the method of `settings`, with room for the longest target
    that S allows.
    """
    rows, width = source.shape
    max_length = settings.limit(width)
    memory = model.encode(source)
    state = model.start(memory, max_length)
    shared: dict[str, Any] = {
        "rows": rows,
        "max_length": max_length,
        "limits": limits,
        "alignment": alignment,
        "special": special,
    }
    if settings.method == "greedy":
        return greedy(model.step, state, memory, **shared)
    if settings.method == "sample":
        seeded = jax.random.key(
            settings.seed
        )  # a key of its own for each sentence: batching does not change the draws
        keys = jax.vmap(lambda index: jax.random.fold_in(seeded, index))(jnp.maximum(indices, 0))
        return sample(
            model.step,
            state,
            memory,
            key=keys,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            n=settings.n_best,
            **shared,
        )
    return beam_search(
        model.step,
        state,
        memory,
        beam=settings.beam,
        length_penalty=settings.length_penalty,
        coverage=settings.coverage,
        source_mask=source != special.pad,
        n_best=settings.n_best,
        **shared,
    )


def _unpack(result: Hypotheses, row: int, source_length: int) -> list[Decoded]:
    """The hypotheses of one sentence; free slots are dropped, but the first is always there."""
    lengths = np.asarray(result.lengths[row])
    maps = result.alignment
    return [
        Decoded(
            tokens=np.array(result.tokens[row, k, :length], np.int32),
            score=float(result.scores[row, k]),
            log_prob=float(result.log_probs[row, k]),
            alignment=(
                None
                if maps is None
                else np.array(maps[row, k, :length, :source_length], np.float32)
            ),
        )
        for k, length in enumerate(lengths)
        if length or k == 0
    ]
