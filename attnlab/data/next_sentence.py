"""Pairs of segments for next sentence prediction: does the second follow the first?

    texts      lines of a text are its sentences, in their order; a blank one ends a document
    chunk      consecutive sentences of one document, as many as fill a row
    row        BOS A EOS B EOS;  types 0 for BOS A EOS, 1 for B EOS
    A          the first k sentences of a chunk, k drawn
    B          the rest of the chunk, so that it follows A (relation 0); or, with probability 1/2 and in
               chunks of one sentence, sentences from elsewhere (relation 1): from another document if
               there is one, else from outside the chunk

What is too long for a row is cut from the longer segment, at its front and its end. All is a function
of a key and the number of the row: of (seed, step, row) in training, of the number of the chunk alone
in a split that is scored. Every chunk is the first segment's once in an epoch.

Source: J. Devlin et al., "BERT", NAACL 2019, section 3.1, and the authors' code
(`create_training_data.py`), which differs: there sentences that a row leaves out begin another one, a
tenth of the rows are shorter on purpose, and rows are made once, not anew in each epoch.

Axis letters: b rows, T columns, C chunks.
"""

from typing import Any

import numpy as np

from attnlab.data.blocks import ProcessBatches, permuted
from attnlab.data.columns import Batch, Packed
from attnlab.data.denoising import draws
from attnlab.errors import UserError

_PAIR = 3  # what numbers are drawn for, beside those of `denoising`


class SentencePairs(ProcessBatches):
    """Batches of pairs by random access: `batches(step)` depends on the arguments below and `step`,
    on nothing else.

    Args:
      ids: the sentences, an EOS at the end of each; a document ends with one of nothing but that.
      length: T, without the BOS that stands before a row.
      seed: of the order of the chunks, which is another one in every epoch, and of what is drawn;
        None for the order of the texts, with draws by the number of the chunk alone.
      size, process_index, process_count, multiple, special: see `streams.Lanes`.

    Attributes:
      batches_per_epoch, shapes, counts, note: see `streams.Lanes`.

    Raises:
      UserError: rows that are too short, not divisible by `multiple` or the processes, or texts of
        which none is outside a chunk.
    """

    def __init__(
        self,
        ids: Packed,
        *,
        size: int,
        length: int,
        seed: int | None = None,
        **shared: Any,
    ) -> None:
        """Divides the sentences into documents and chunks that fill a row, and computes the steps
        of an epoch and the `note`; raises `UserError` for rows too short or too few sentences.
        """
        super().__init__(ids, size=size, length=length, **shared)
        if length < 4:
            raise UserError(
                f"config.batch.max_length={length + 1}: a pair takes at least 5 tokens, three of"
                " which are no text"
            )
        self._seed, self._room = seed, length - 2
        lengths = np.asarray(ids.lengths) - 1
        self._text = np.flatnonzero(lengths > 0)  # sentences, by their numbers among the texts
        self._long = lengths[self._text]
        self._document = np.cumsum(np.diff(self._text, prepend=self._text[:1]) > 1)
        self._begin, self._end = self._chunks()
        count, sentences = len(self._begin), len(self._long)
        documents = len(set(self._document.tolist()))
        longest = int((self._end - self._begin).max(initial=0))
        if documents < 2 and sentences < longest + 2:
            raise UserError(
                f"config.batch.texts=pairs: {sentences} sentences of one document are too few, for a"
                f" row takes up to {longest} of them, and one that does not follow is none of these;"
                " take more texts, a sentence a line, or a smaller config.batch.max_length"
            )
        self._set_epoch(-(-count // size))
        self.note = (
            f"{count:,} pairs of at most {length + 1} tokens from {documents:,}"
            f" document{'s' if documents > 1 else ''}, {size} a step,"
            f" {self.batches_per_epoch:,} steps an epoch"
        )

    def __call__(self, step: int) -> Batch:
        """Returns this process's pairs of segments of the batch of `step` (from 0): "target" [b,T]
        (both, EOS after each), "types" [b,T] (0 first, 1 second), and "relation" [b] (0 if the
        second segment follows the first, else 1), int32.
        """
        epoch, number = divmod(int(step), self.batches_per_epoch)
        chunk = number * self._size + self._rows
        real = chunk < len(self._begin)
        if self._seed is None:
            numbers = draws((_PAIR,), chunk, 5)
        else:
            chunk[real] = permuted(chunk[real], len(self._begin), (self._seed, epoch))
            numbers = draws((self._seed, int(step), _PAIR), self._rows, 5)
        target = np.full((len(chunk), self._length), self._special.pad, np.int32)
        types, relation = np.zeros_like(target), np.zeros(len(chunk), np.int32)
        for row in np.flatnonzero(real):
            left, right, relation[row] = self._pair(int(chunk[row]), numbers[row])
            pair = [*left, self._special.eos, *right, self._special.eos]
            target[row, : len(pair)] = pair
            types[row, len(left) + 1 : len(pair)] = 1
        return {"target": target, "types": types, "relation": relation}

    def _chunks(self) -> tuple[np.ndarray, np.ndarray]:
        """Divides the sentences into C chunks that end when they fill a row or at the end of a
        document, and returns the number of the first sentence of each, [C], and the number after
        its last, [C].
        """
        begins: list[int] = []
        ends: list[int] = []
        held = 0
        for number, (document, length) in enumerate(zip(self._document, self._long, strict=True)):
            if not held:
                begins.append(number)
            held += int(length)
            last = number + 1 == len(self._long) or self._document[number + 1] != document
            if last or held >= self._room:
                ends.append(number + 1)
                held = 0
        return np.array(begins, np.int64), np.array(ends, np.int64)

    def _pair(self, chunk: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Returns two runs of ids, cut to fit a row, and their relation: the first sentences of a
        chunk, and either the rest of it (0) or text from elsewhere (1), chosen by five random
        `numbers` in [0, 1); a chunk of one sentence gives 1.
        """
        begin, end = int(self._begin[chunk]), int(self._end[chunk])
        cut = begin + 1 + int(numbers[0] * (end - begin - 1))
        left = self._joined(begin, cut)
        if end - begin > 1 and numbers[1] < 0.5:
            right, relation = self._joined(cut, end), 0
        else:
            start = self._elsewhere(begin, end, numbers[2])
            right, relation = self._joined(start, self._filling(start, self._room - len(left))), 1
        room, half = self._room, self._room // 2
        first = min(len(left), max(room - len(right), room - half))
        second = min(len(right), max(room - len(left), half))
        return _stretch(left, first, numbers[3]), _stretch(right, second, numbers[4]), relation

    def _elsewhere(self, begin: int, end: int, fraction: float) -> int:
        """Selects a sentence outside of the chunk of sentences `begin` ... `end` - 1 by `fraction`
        in [0, 1) and returns its number: from the other documents, or, if there is none, neither in
        the chunk nor right behind it.
        """
        document = self._document[begin]
        low = int(np.searchsorted(self._document, document, "left"))
        high = int(np.searchsorted(self._document, document, "right"))
        if high - low == len(self._long):  # no other document; what follows the chunk is no answer
            low, high = begin, min(end + 1, len(self._long))
        number = int(fraction * (len(self._long) - (high - low)))
        return number if number < low else number + high - low

    def _filling(self, start: int, count: int) -> int:
        """Returns the end (exclusive) of the shortest run of sentences from `start` on that has at
        least `count` tokens or ends with its document.
        """
        stop = int(np.searchsorted(self._document, self._document[start], "right"))
        totals = np.cumsum(self._long[start : min(stop, start + max(count, 1))])
        return start + min(len(totals), int(np.searchsorted(totals, count)) + 1)

    def _joined(self, begin: int, end: int) -> np.ndarray:
        """The tokens of sentences, without their ends."""
        return np.concatenate([self._ids[int(text)][:-1] for text in self._text[begin:end]])


def _stretch(tokens: np.ndarray, length: int, fraction: float) -> np.ndarray:
    """Returns `length` consecutive ones of the tokens; `fraction` in [0, 1) decides how many of the
    others are cut off at the front.
    """
    front = int(fraction * (len(tokens) - length + 1))
    return tokens[front : front + length]
