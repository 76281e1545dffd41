"""Span corruption (Raffel et al. 2020, section 3.1.4, and the authors' code): spans of a text are
replaced by sentinels, and told.

    text       a b c d e f g h i j          n tokens, of which round(density n) in spans about `span` long are noise
    source     a b c <0> f g <1> EOS        each span of noise is a sentinel <k>, from 0 on
    target     <0> d e <1> h i j EOS        each stretch that is kept is the sentinel of the span after it

A text begins with what is kept and ends with noise, so no sentinel closes the target. How noise and
kept tokens are divided into s spans each is uniform over all ways to divide them. All roundings are
half to even.

Axis letters: b rows of a batch, n tokens of a text.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.data.batching import Batches
from attnlab.data.columns import Batch
from attnlab.data.vocabulary import Special
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class Spans:
    """How a text is corrupted.

    Attributes:
      special: of the vocabulary; its last reserved id is sentinel 0, the one before it sentinel 1.
      density: the share of tokens that are noise.
      span: the mean length of a span of noise.
    """

    special: Special
    density: float = 0.15
    span: float = 3.0

    def noise(self, length: int) -> tuple[int, int]:
        """Returns the number of noise tokens in a text of `length` tokens, at least 2, and the
        number of spans that they form.
        """
        noise = min(max(round(length * self.density), 1), length - 1)
        return noise, min(max(round(noise / self.span), 1), noise, length - noise)

    def lengths(self, length: int) -> tuple[int, int]:
        """Returns the numbers of tokens, EOS included, of the source and the target of a text of
        `length` tokens.
        """
        noise, spans = self.noise(length)
        return length - noise + spans + 1, noise + spans + 1

    def raw(self, source_length: int) -> int:
        """Returns the number of tokens of the longest text whose corrupted source has at most
        `source_length` tokens; raises `UserError` if that is too few for any text.

        Raises:
          UserError: there is none, since even that of two tokens is longer.
        """
        if self.lengths(2)[0] > source_length:
            raise UserError(
                f"config.batch.max_length={source_length}: a source has at least 3 tokens, one that is"
                " kept, a sentinel and an end"
            )
        length = 2
        while self.lengths(length + 1)[0] <= source_length:
            length += 1
        return length

    def check(self, length: int) -> None:
        """Raises `UserError` if the vocabulary has fewer sentinels than a text of `length` tokens
        has spans of noise.
        """
        _, needed = self.noise(length)
        if len(self.special.reserved) < needed:
            raise UserError(
                f"the vocabulary has {len(self.special.reserved)} sentinels, and a text of"
                f" {length} tokens has {needed} spans; set config.vocabulary.reserved={needed}, or"
                " take a tokenizer that has them (T5's), or a shorter batch.max_length"
            )

    def marks(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Draws which tokens of a text of n = `length` tokens are noise, [n] bool."""
        noise, spans = self.noise(length)
        clean = _draw_parts(length - noise, spans, rng)
        lengths = np.stack([clean, _draw_parts(noise, spans, rng)], axis=1).reshape(-1)
        return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Corrupts a text, the ids [n] of at least 2 tokens, at random and returns its source and
        its target, int32.
        """
        noise = self.marks(len(ids), rng)
        return self._replace_runs(ids, noise), self._replace_runs(ids, ~noise)

    def _replace_runs(self, ids: np.ndarray, removed: np.ndarray) -> np.ndarray:
        """Returns the ids [n], as int32, with each run where `removed` [n] is True replaced by a
        single sentinel id (the first run by the last id in `special.reserved`, the next by the one
        before it), and with EOS at the end.
        """
        first = removed & ~np.concatenate([[False], removed[:-1]])
        number = np.cumsum(first) - 1
        sentinels = np.array(self.special.reserved[::-1], np.int32)
        shortened = np.where(first, sentinels[np.maximum(number, 0)], ids)
        return np.append(shortened[first | ~removed], self.special.eos).astype(np.int32)

    def columns(self, texts: np.ndarray, keys: Sequence[tuple[int, ...]], raw: int) -> Batch:
        """Corrupts each row of ids in `texts` [b,n], with noise drawn from the key of the row, and
        returns a dict of "source" and "target", int32, each [b, its width for a text of `raw`
        tokens] and padded; a row of fewer than 2 tokens is all padding.

        Ends of texts are left out, padding too; a row with fewer than 2 tokens is padding. `keys`:
        what the noise of each row depends on.
        """
        widths, special = self.lengths(raw), self.special
        padded = [np.full((len(texts), width), special.pad, np.int32) for width in widths]
        for row, (text, key) in enumerate(zip(texts, keys, strict=True)):
            ids = text[(text != special.eos) & (text != special.pad)]
            if len(ids) > 1:
                for column, side in zip(padded, self(ids, np.random.default_rng(key)), strict=True):
                    column[row, : len(side)] = side
        return dict(zip(("source", "target"), padded, strict=True))


class Corrupted(Batches):
    """Batches of `blocks.Blocks`, corrupted anew in every step.

    Args:
      blocks: of the raw length.
      spans: how.
      raw: that length.
      seed: of the noise.
      first: the number of this process's first row in the batch of all processes.

    Attributes:
      shapes, counts, batches_per_epoch, note: see `batching.TrainBatches`.
    """

    def __init__(self, blocks: Batches, spans: Spans, raw: int, seed: int, first: int) -> None:
        """Stores the batches of blocks, the corruption `spans` and the settings, and copies the
        shapes, counts, note and epoch length of the batches.
        """
        self._blocks, self._spans, self._raw = blocks, spans, raw
        self._seed, self._first = seed, first
        fields: dict[str, Any] = vars(blocks)
        self.shapes, self.counts = fields["shapes"], fields["counts"]
        self.note, self.batches_per_epoch = blocks.note, fields["batches_per_epoch"]

    def __call__(self, step: int) -> Batch:
        """Returns the batch of `step` (from 0), "source" and "target", with noise drawn from (seed,
        step, row).
        """
        texts = self._blocks(step)["target"]
        keys = [(self._seed, int(step), self._first + row) for row in range(len(texts))]
        return self._spans.columns(texts, keys, self._raw)


def _draw_parts(count: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Draws the lengths of `parts` parts, none empty, that add up to `count`, [parts]; all
    divisions are equally likely.
    """
    ends = np.sort(rng.permutation(count - 1)[: parts - 1]) + 1
    return np.diff(np.concatenate([[0], ends, [count]])).astype(np.int64)
