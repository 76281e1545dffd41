"""Texts for denoising, masked or corrupted anew in every step.

Masked language modelling: which tokens of a row are to be told from the rest, and what stands in
their place.

    n       = min(most, max(1, round(rate L))) of a row of L tokens, and no more than its candidates,
              all but the beginning and the ends of texts
    chosen  n candidates without replacement, all sets equally likely
    read    of each chosen token: the mask (0.8), any id of the vocabulary (0.1), itself (0.1)

So a row has a fixed number of them, where a draw for each token would have a random one. What is
chosen is a function of a key and of where a token stands: of (seed, step, row) in training, so that
a text is masked anew each time it is read, as in RoBERTa, and no state is kept; of the number of the
row alone in a split that is scored, so that scores are exact and can be compared.

Source: J. Devlin et al., "BERT", NAACL 2019, section 3.1 and the authors' code
(`create_masked_lm_predictions`); Y. Liu et al., "RoBERTa", 2019, section 4.1 (masking anew).

Span corruption (Raffel et al. 2020, section 3.1.4, and the authors' code): spans of a text are
replaced by sentinels, and told.

    text       a b c d e f g h i j          n tokens, of which round(density n) in spans about `span` long are noise
    source     a b c <0> f g <1> EOS        each span of noise is a sentinel <k>, from 0 on
    target     <0> d e <1> h i j EOS        each stretch that is kept is the sentinel of the span after it

A text begins with what is kept and ends with noise, so no sentinel closes the target. How noise and
kept tokens are divided into s spans each is uniform over all ways to divide them. All roundings are
half to even.

Axis letters: b rows, T columns, P tokens to be told, as many as a row of T may have, n tokens of a text.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.data.batching import Batches
from attnlab.data.columns import Batch
from attnlab.data.vocabulary import Special
from attnlab.errors import UserError

_CHOICE, _FATE, _TOKEN = 0, 1, 2  # what a number is drawn for


@dataclasses.dataclass(frozen=True)
class Masking:
    """How rows are masked.

    Attributes:
      special: ids of the vocabulary; the first of its reserved ones is the mask.
      vocabulary: number of ids.
      rate, most, hidden, random: see `attnlab.data.settings.Masking`.
    """

    special: Special
    vocabulary: int
    rate: float = 0.15
    most: int = 0
    hidden: float = 0.8
    random: float = 0.1

    @property
    def mask(self) -> int:
        """Returns the id of the mask token, the vocabulary's first reserved id; raises `UserError`
        if it has none.

        Raises:
          UserError: the vocabulary has none.
        """
        if not self.special.reserved:
            raise UserError(
                "the vocabulary has no id for what is hidden; set config.vocabulary.reserved=1, or"
                " take a tokenizer with a mask ('prepare' shards with --reserved=1)"
            )
        return self.special.reserved[0]

    def __call__(self, tokens: np.ndarray, key: tuple[int, ...], rows: np.ndarray) -> Batch:
        """Replaces random tokens of rows [b,T], drawn by key and row number (`rows` [b]), by the mask,
        a random token or themselves; returns a dict of int32 arrays: "source" [b,T] (the result),
        "places" [b,P] (their positions, ascending) and "target" [b,P] (the originals, padded).

        Args:
          tokens: [b,T].
          key: (seed, step), say.
          rows: [b], the numbers of the rows; a row is masked alike whatever rows are beside it.
        """
        width = tokens.shape[1]
        real = tokens != self.special.pad
        candidate = real & ~np.isin(tokens, (self.special.bos, self.special.eos))
        counts = np.minimum(self._mask_count(real.sum(axis=1)), candidate.sum(axis=1))
        order = np.where(candidate, draws((*key, _CHOICE), rows, width), np.inf)
        rank = order.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        chosen = rank < counts[:, None]
        fate = draws((*key, _FATE), rows, width)
        random_tokens = (draws((*key, _TOKEN), rows, width) * self.vocabulary).astype(np.int32)
        replacement = np.where(fate < self.hidden + self.random, random_tokens, tokens)
        replacement = np.where(fate < self.hidden, self.mask, replacement)
        limit = int(self._mask_count(np.array(width)))
        places = np.argsort(~chosen, axis=1, kind="stable")[:, :limit]
        filled = np.take_along_axis(chosen, places, axis=1)
        targets = np.take_along_axis(tokens, places, axis=1)
        batch = {
            "source": np.where(chosen, replacement, tokens),
            "places": np.where(filled, places, 0),
            "target": np.where(filled, targets, self.special.pad),
        }
        return {name: column.astype(np.int32) for name, column in batch.items()}

    def _mask_count(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the number of tokens to mask in rows of these lengths: `rate` times the length,
        rounded, at least 1 and at most `most` if that is not 0.
        """
        counts = np.maximum(1, np.rint(self.rate * lengths))
        return np.minimum(counts, self.most) if self.most else counts


class Masked(Batches):
    """Batches of whole texts ("target" of `streams.Apart`, `blocks.Blocks` or
    `next_sentence.SentencePairs`, one column short), as masked language modelling reads them: each
    row begins with a BOS, and is masked anew in each step.

    Args:
      batches: of texts.
      masking: how.
      seed: of the choice.
      first: the number of this process's first row in the batch of all processes.

    Attributes:
      shapes, counts, batches_per_epoch, note: see `batching.TrainBatches`.
    """

    def __init__(self, batches: Batches, masking: Masking, seed: int, first: int) -> None:
        """Stores its arguments, and copies the note, counts, epoch length and shapes of the batches,
        the shapes one column wider for BOS.
        """
        self._batches, self._masking, self._seed, self._first = batches, masking, seed, first
        fields: dict[str, Any] = vars(batches)
        self.shapes = tuple((rows, width + 1) for rows, width in fields["shapes"])
        self.counts, self.note = fields["counts"], batches.note
        self.batches_per_epoch: int = fields["batches_per_epoch"]

    def __call__(self, step: int) -> Batch:
        """Returns the batch of `step`: its texts after a BOS, masked anew by (seed, step, row) as
        `Masking` does, with the further columns of `with_bos`.
        """
        texts = with_bos(self._batches(step), self._masking.special)
        rows = self._first + np.arange(len(texts["source"]))
        return texts | self._masking(texts["source"], (self._seed, int(step)), rows)


def with_bos(batch: Batch, special: Special) -> Batch:
    """Prepends BOS to each row of the texts "target" [b,T] of a batch (PAD to a row of padding) and
    returns them as "source" [b,1+T], with "segments" or "types", their first column doubled, and
    "relation" [b], if present.
    """
    texts = batch["target"]
    first = np.where(texts[:, :1] == special.pad, special.pad, special.bos).astype(np.int32)
    columns = {"source": np.concatenate([first, texts], axis=1)}
    for name in ("segments", "types"):
        if name in batch:
            values = batch[name]
            columns[name] = np.concatenate([values[:, :1], values], axis=1)
    return columns | {name: batch[name] for name in ("relation",) if name in batch}


def draws(key: tuple[int, ...], rows: np.ndarray, width: int) -> np.ndarray:
    """Returns pseudorandom numbers in [0, 1), [b,width] float64, each a function of the key, its
    row's number and its column only.

    SplitMix64 (G. Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014),
    with a stream for each row.
    """
    state = np.zeros((len(rows), 1), np.uint64)
    for number in (*key, rows[:, None], np.arange(width)):
        step = np.array(number, np.uint64, ndmin=1) + np.uint64(1)  # arrays overflow in silence
        state = _mix_bits(state + _GOLDEN * step)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix_bits(x: np.ndarray) -> np.ndarray:
    """Returns uint64 numbers mixed by the finalizer of SplitMix64: every bit of x changes about
    half of the result's.
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


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
