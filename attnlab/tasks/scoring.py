"""How likely texts are under a model: log P of every token, given what stands before it.

The one definition of the score of a text, for `score`, `generate --score` and the evaluation harness:

    log P(y | x) = sum over n of log P(y_n | x, y_1 ... y_(n-1))        in nats

y is a text of a language model, whose x is what it reads first (BOS, or the end of a text before
it), or a text that continues another; or the target of a system that writes. The end of y is one of
its tokens, unless it may go on.

A text that is longer than the window of W tokens, which is as far as a model looks, is read in
pieces: of each the last `stride` tokens are scored, each given up to W - stride + 1 ... W tokens
before it. The first piece scores all that it has, and the last one is as long as the others.

Axis letters: N tokens that are scored, T tokens of a row, W of a window.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlab.data.batching import evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Examples, Packed
from attnlab.data.passages import located
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.tasks.language_modelling import LanguageModelling
from attnlab.tasks.protocol import Params
from attnlab.tasks.written import WritingTask
from attnlab.weights import folder as folders

Text = str | tuple[str, str]
"""A text, or what stands before it and the text."""
Scored = tuple[np.ndarray, np.ndarray]
"""log P of each of N tokens, [N] float64, and whether it was the likeliest, [N] bool."""
_LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx")


@dataclasses.dataclass(frozen=True, eq=False)
class TextScore:
    """How likely a text is, token by token.

    Attributes:
      text: what is scored; of a pair the second text.
      tokens: N readable pieces, the end among them where it counts.
      offsets: [N,2], where in `text` the characters of each token begin and end; a token that
        begins before the text begins at 0, and -1 stands for texts that are not read as typed.
      log_probs: [N] float64, nats.
      likeliest: [N] bool, whether no token was likelier there.
      ended: whether the end of the text is the last token.
      unknown: how many tokens stand for what the vocabulary lacks.
    """

    text: str
    tokens: list[str]
    offsets: np.ndarray
    log_probs: np.ndarray
    likeliest: np.ndarray
    ended: bool
    unknown: int

    @property
    def log_prob(self) -> float:
        """Log P of the text, in nats."""
        return float(self.log_probs.sum())

    @property
    def bytes(self) -> int:
        """Of the text in UTF-8; its end, where that counts, is one more."""
        return len(self.text.encode()) + self.ended

    @property
    def perplexity(self) -> float:
        """Per token; infinity beyond what a double holds."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.log_prob / len(self.log_probs)))

    @property
    def bits_per_byte(self) -> float | None:
        """None where tokens are unknown, which cost little whatever they stand for."""
        return None if self.unknown else -self.log_prob / math.log(2) / self.bytes

    def record(self) -> dict[str, Any]:
        """Returns all of it as JSON takes it, without the text."""
        names = ("log_prob", "perplexity", "bits_per_byte", "bytes", "tokens")
        arrays = {"offsets": self.offsets.tolist(), "log_probs": self.log_probs.tolist()}
        return {**{name: getattr(self, name) for name in names}, **arrays}


class Row(NamedTuple):
    """Ids [T] in which the last `scored` are scored."""

    ids: np.ndarray
    scored: int


def scored_texts(
    task: Any,
    params: Params,
    texts: Sequence[Text],
    *,
    window: int | None = None,
    stride: int | None = None,
    end: bool = True,
) -> list[TextScore]:
    """Returns a list with a `TextScore` (log probability of each token) for each text, or pair of a
    context and a text; raises `UserError` if the task or a text cannot be scored.

    Args:
      task: of a language model, or one whose system writes.
      params: of its system.
      texts: for a language model texts, or pairs of a text and what follows it; for a system that
        writes pairs of source and target.
      window: tokens that a language model reads at once, by default `window_of`.
      stride: tokens that each further window scores; as many as it has by default, fewer give each
        more to look back at.
      end: whether the end of a text is scored too.

    Raises:
      UserError: a task that gives texts no probability, a text where a pair is needed, what is no
        text or not UTF-8, a text with no tokens, a window that the model does not have.
    """
    writes = isinstance(task, WritingTask)
    if not writes and not isinstance(task, LanguageModelling):
        raise UserError(
            f"the task {task.config.task!r} gives texts no probability to score; language_modelling"
            " and the tasks whose systems write text do"
        )
    if writes and (window, stride) != (None, None):
        raise UserError("window and stride are for language models; targets are read as a whole")
    pairs = [_pair(number, text, writes) for number, text in enumerate(texts, start=1)]
    if not pairs:
        return []
    vocabulary: Vocabulary = task.written_in if writes else task.data.vocabulary
    full = [text if writes else before + text for before, text in pairs]
    begins = [0 if writes else len(before) for before, _ in pairs]
    places = [*located(vocabulary, full)]
    if writes:
        examples = task.encoded(pairs)
        rows = [Row(x[: len(x) - (not end)], len(x) - (not end)) for x in examples.packed("target")]
        spans = [(n, slice(None), slice(row.scored)) for n, row in enumerate(rows)]
        scored = _scored(task, params, task.in_order(examples), spans, rows)
    else:
        tail = [task.special.eos] * end
        counts = [int((x[:, 1] > n).sum()) for (_, x), n in zip(places, begins, strict=True)]
        if 0 in counts:
            text = pairs[counts.index(0)][1]
            raise UserError(f"the text {text!r} has no tokens to score")
        rows = [
            Row(np.array([task.first_id, *ids, *tail], np.int32), count + end)
            for (ids, _), count in zip(places, counts, strict=True)
        ]
        scored = score_rows(task, params, rows, window, stride)
    parts = zip(pairs, begins, places, rows, scored, strict=True)
    return [
        _text_score(vocabulary, text, place - begin, row, of_row, end)
        for (_, text), begin, (_, place), row, of_row in parts
    ]


def _pair(number: int, text: Any, writes: bool) -> tuple[str, str]:
    """Returns the pair (context, text) of a str or a pair of str, which must be a pair of texts
    that are not blank if the system `writes`; raises `UserError` with its `number` for anything
    else, or if it is not UTF-8.
    """
    parts = ("", text) if isinstance(text, str) else text
    pair = tuple(parts) if isinstance(parts, Iterable) else ()
    if len(pair) != 2 or not all(isinstance(x, str) and (x.strip() or not writes) for x in pair):
        raise UserError(
            f"pair {number}: expected a source and a target, both not empty"
            if isinstance(text, str | tuple | list)
            else f"text {number} is {type(text).__name__}; expected str, or a pair of them"
        )
    try:
        "".join(pair).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"text {number} is not UTF-8: it has half of a surrogate pair") from error
    return pair


def _text_score(
    vocabulary: Vocabulary,
    text: str,
    places: np.ndarray,
    row: Row,
    scored: Scored,
    end: bool,
) -> TextScore:
    """Returns the `TextScore` of a text: its tokens, their character offsets from `places` (all -1
    if these are not as many), log P and hits from `scored`, and how many tokens are unknown; `end`
    says whether the end is a token.

    Args:
      vocabulary: of the tokens.
      text: what is scored.
      places: where in the text each token of it, and of what stands before it, begins and ends.
      row: its ids.
      scored: log P of its tokens, and whether each was the likeliest.
      end: whether its end is one of them.
    """
    ids = row.ids[len(row.ids) - row.scored :]
    selected = np.maximum(places[max(len(places) - row.scored + end, 0) :], 0)
    offsets = np.concatenate([selected, np.full((int(end), 2), len(text))])
    offsets = offsets if len(offsets) == len(ids) else np.full((len(ids), 2), -1)
    unknown = vocabulary.special.unknown(ids)
    return TextScore(text, vocabulary.tokens(ids), offsets, *scored, end, unknown)


def window_of(task: LanguageModelling) -> int | None:
    """Returns how many tokens a language model reads at once, the length in the config of a
    pretrained folder or else the longest row of training, or None for a system that carries its
    state on.
    """
    if task.system.carries:
        return None
    folder = task.config.pretrained.path
    if folder is not None and (folder / folders.CONFIG).is_file():
        content = folders.settings(folder)
        for name in _LENGTHS:
            if type(length := content.get(name)) is int and length > 0:
                return length
    return int(task.config.batch.max_length)


def pieces(
    length: int, scored: int, window: int | None, stride: int | None
) -> Iterator[tuple[int, int, int]]:
    """Yields (begin, end, first) of the windows of at most `window` ids, each moved by `stride`,
    that score the last `scored` of `length` ids: ids begin ... end - 1 are read, and ids first ...
    end are scored.

    Yields:
      begin, end, first: ids begin ... end - 1 are read, and ids first ... end are scored.
    """
    last = length - 1
    scored_to, window = last - scored, window or last
    while scored_to < last:
        end = min(last, max(scored_to + (stride or window), window))
        yield max(0, end - window), end, scored_to + 1
        scored_to = end


def score_rows(
    task: LanguageModelling,
    params: Params,
    rows: Sequence[Row],
    window: int | None = None,
    stride: int | None = None,
) -> list[Scored]:
    """Returns a list with a pair of arrays for each row, the natural log P of its last `scored` ids
    and whether each was the likeliest, by the task's language model, which reads windows of
    `window` tokens that move by `stride`; raises `UserError` for a bad window or stride.

    Raises:
      UserError: a window or a stride that is less than a token, a stride beyond the window, or a
        row that fills more positions than a system has a table of.
    """
    window = window_of(task) if window is None else window
    if any(x is not None and x < 1 for x in (window, stride)) or (
        window and stride and stride > window
    ):
        raise UserError(
            f"window={window}, stride={stride}: expected at least one token, and a stride of at"
            " most a window"
        )
    parts, spans = [], []
    for number, row in enumerate(rows):
        skipped = len(row.ids) - row.scored
        for begin, end, first in pieces(len(row.ids), row.scored, window, stride):
            parts.append((row.ids[begin:end], row.ids[begin + 1 : end + 1]))
            where = slice(first - skipped, end + 1 - skipped)
            spans.append((number, where, slice(first - begin - 1, end - begin)))
    if not parts:
        return _scored(task, params, (), (), rows)
    source, target = (Packed(column, task.special.pad) for column in zip(*parts, strict=True))
    examples, widths = Examples(source=source, target=target), widths_of(source.lengths)
    size = min(task.at_once, len(parts))  # no rows of padding for a few texts
    batches = evaluation_batches(examples, size=size, buckets=widths)
    return _scored(task, params, batches, spans, rows)


def _scored(
    task: Any,
    params: Params,
    batches: Sequence[tuple[np.ndarray, HostBatch]],
    spans: Sequence[tuple[int, slice, slice]],
    rows: Sequence[Row],
) -> list[Scored]:
    """Returns for each row two arrays, the natural log P of its scored ids and whether each was the
    likeliest, computed on batches; `spans` has for each example the number of its row, the slice of
    the row's scores to fill, and the slice of its scores to take.
    """
    results = [(np.zeros(row.scored), np.zeros(row.scored, bool)) for row in rows]
    for numbers, batch in batches:
        nats, hits = jax.device_get(task.token_scores(params, batch))
        for index in np.flatnonzero(numbers >= 0):
            row, where, part = spans[numbers[index]]
            results[row][0][where], results[row][1][where] = -nats[index, part], hits[index, part]
    return results


def widths_of(lengths: np.ndarray) -> list[int]:
    """Returns the widths of batches: powers of two, from 16 on, and the longest length."""
    longest = int(lengths.max(initial=1))
    powers = range(4, longest.bit_length())
    return [*(2**power for power in powers if 2**power < longest), longest]
