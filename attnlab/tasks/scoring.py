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

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
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
_LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx")
_LOGITS = 2**26  # numbers of logits that are there at a time: 256 MiB


@dataclasses.dataclass(frozen=True, eq=False)
class TextScore:
    """How likely a text is, token by token.

    Attributes:
      text: what is scored; of a pair the second text.
      tokens: N readable pieces, the end among them where it counts.
      offsets: [N,2], where in `text` the characters of each token begin and end; a token that
        begins before the text begins at 0.
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
        """Per token."""
        return perplexity(self.log_prob, len(self.log_probs))

    @property
    def bits_per_byte(self) -> float | None:
        """None where tokens are unknown, which cost little whatever they stand for."""
        return None if self.unknown else -self.log_prob / math.log(2) / self.bytes


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """How likely each of some candidates is.

    Attributes:
      log_probs: of each, in nats.
      per_byte: the same divided by the bytes of each.
    """

    log_probs: list[float]
    per_byte: list[float]

    @property
    def likeliest(self) -> int:
        """Which one is likeliest, from 0."""
        return int(np.argmax(self.log_probs))

    @property
    def likeliest_per_byte(self) -> int:
        """Which one is likeliest for its length."""
        return int(np.argmax(self.per_byte))


class Row(NamedTuple):
    """Ids [T] in which the last `scored` are scored."""

    ids: np.ndarray
    scored: int


def perplexity(log_prob: float, tokens: int) -> float:
    """e^(-log P / tokens), infinity beyond what a double holds."""
    nats = -log_prob / tokens
    return math.exp(nats) if nats < 709 else math.inf


def scored_texts(
    task: Any,
    params: Params,
    texts: Sequence[Text],
    *,
    window: int | None = None,
    stride: int | None = None,
    end: bool = True,
) -> list[TextScore]:
    """The score of each text.

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
      UserError: a task that gives texts no probability, a text where a pair is needed, a text with
        no tokens, a window that the model does not have.
    """
    writes = isinstance(task, WritingTask)
    if not writes and not isinstance(task, LanguageModelling):
        raise UserError(
            f"the task {task.config.task!r} gives texts no probability to score; language_modelling"
            " and the tasks whose systems write text do"
        )
    if writes and (window or stride):
        raise UserError("window and stride are for language models; targets are read as a whole")
    pairs = [_pair(text, number, writes) for number, text in enumerate(texts, start=1)]
    if not pairs:
        return []
    if writes:
        examples = task.encoded(pairs)
        every = [ids[: len(ids) - (not end)] for ids in examples.packed("target")]
        rows = [Row(ids, len(ids)) for ids in every]
        scored = _score_targets(task, params, examples, rows)
    else:
        rows = _continuing(task, pairs, end)
        scored = score_rows(task, params, rows, window, stride)
    vocabulary: Vocabulary = task.written_in if writes else task.data.vocabulary
    made = []
    for (before, text), row, numbers in zip(pairs, rows, scored, strict=True):
        ids = row.ids[len(row.ids) - row.scored :]
        offsets = _offsets(vocabulary, "" if writes else before, text, len(ids), end)
        unknown = vocabulary.special.unknown(ids)
        made.append(TextScore(text, vocabulary.tokens(ids), offsets, *numbers, end, unknown))
    return made


def choices(
    task: Any, params: Params, questions: Sequence[tuple[str, Sequence[str]]], **options: Any
) -> list[Choice]:
    """How likely the candidates of each question are; `options` and errors as of `scored_texts`,
    but that ends of texts that continue others do not count.
    """
    options = {"end": isinstance(task, WritingTask), **options}
    every = [(before, text) for before, texts in questions for text in texts]
    scored = iter(scored_texts(task, params, every, **options))
    made = []
    for _, texts in questions:
        scores = [next(scored) for _ in texts]
        log_probs = [score.log_prob for score in scores]
        per_byte = [score.log_prob / len(score.text.encode()) for score in scores]
        made.append(Choice(log_probs, per_byte))
    return made


def _pair(text: Text, number: int, writes: bool) -> tuple[str, str]:
    """A text with what stands before it."""
    pair = ("", text) if isinstance(text, str) else tuple(text)
    if len(pair) != 2 or (writes and not all(map(str.strip, pair))):
        raise UserError(f"pair {number}: expected a source and a target, both not empty")
    return pair


def _continuing(task: LanguageModelling, pairs: Sequence[tuple[str, str]], end: bool) -> list[Row]:
    """The rows of texts, each with what a model reads first and what stands before it."""
    vocabulary, rows = task.data.vocabulary, []
    every = located(vocabulary, [before + text for before, text in pairs])
    for number, ((before, text), (ids, offsets)) in enumerate(zip(pairs, every, strict=True), 1):
        scored = int((offsets[:, 1] > len(before)).sum()) if before else len(ids)
        if not scored:
            raise UserError(f"text {number}, {text!r}: it has no tokens to score")
        tail = [task.special.eos] if end else []
        rows.append(Row(np.array([task.first_id, *ids, *tail], np.int32), scored + end))
    return rows


def _offsets(vocabulary: Vocabulary, before: str, text: str, tokens: int, end: bool) -> np.ndarray:
    """See `TextScore.offsets`; -1 where tokens are not those of the text alone."""
    ((_, offsets),) = located(vocabulary, [before + text])
    offsets = offsets[max(len(offsets) - tokens + end, 0) :] - len(before)
    if len(offsets) != tokens - end:
        return np.full((tokens, 2), -1)
    return np.concatenate([np.maximum(offsets, 0), np.full((int(end), 2), len(text))])


def window_of(task: LanguageModelling) -> int | None:
    """The tokens that a language model looks back at: of a folder from elsewhere what its config
    says, else the longest row of training; None of a system that carries its state on.
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
    """The pieces in which a row of `length` ids is read, of which the last `scored` are scored.

    Yields:
      begin, end, first: ids begin ... end - 1 are read, and ids first ... end are scored.
    """
    last = length - 1
    done, window = last - scored, window or last
    while done < last:
        end = min(last, max(done + (stride or window), window))
        yield max(0, end - window), end, done + 1
        done = end


def score_rows(
    task: LanguageModelling,
    params: Params,
    rows: Sequence[Row],
    window: int | None = None,
    stride: int | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each row log P of its scored ids, [N] float64, and whether each was the likeliest, [N].

    Raises:
      UserError: a window that is less than a token or than the stride, or more than the positions
        of the model.
    """
    window = window_of(task) if window is None else window
    if min(window or 1, stride or 1) < 1 or (window and stride and stride > window):
        raise UserError(
            f"window={window}, stride={stride}: expected at least one token, and a stride of at"
            " most a window"
        )
    parts = [
        (number, *piece)
        for number, row in enumerate(rows)
        for piece in pieces(len(row.ids), row.scored, window, stride)
    ]
    columns = {
        name: Packed(
            (rows[number].ids[begin + shift : end + shift] for number, begin, end, _ in parts),
            task.special.pad,
        )
        for shift, name in enumerate(("source", "target"))
    }
    batches = evaluation_batches(
        Examples(**columns), size=task.at_once, buckets=_widths(columns["source"].lengths)
    )
    starts = np.cumsum([0, *(row.scored for row in rows)])
    log_probs, likeliest = np.zeros(starts[-1]), np.zeros(starts[-1], bool)
    for numbers, batch in batches:
        nats, right = jax.device_get(_of_tokens(task, batch)(params, batch))
        for part, of_part, right_there in zip(numbers, nats, right, strict=True):
            if part >= 0:
                number, begin, end, first = parts[part]
                at = starts[number + 1] - len(rows[number].ids) + first
                where, there = (
                    slice(at, at + end - first + 1),
                    slice(first - begin - 1, end - begin),
                )
                log_probs[where], likeliest[where] = -of_part[there], right_there[there]
    return [(log_probs[a:b], likeliest[a:b]) for a, b in itertools.pairwise(starts)]


def _widths(lengths: np.ndarray) -> list[int]:
    """Powers of two, from 16 on, up to the longest; that itself is the last."""
    longest = int(lengths.max(initial=1))
    powers = range(4, longest.bit_length())
    return [*(2**power for power in powers if 2**power < longest), longest]


def _of_tokens(task: LanguageModelling, batch: HostBatch) -> Callable[..., Any]:
    """The program that scores a batch, with as many logits at a time as there is room for."""
    rows, width = batch["source"].shape
    at_once = max(16, _LOGITS // (rows * task.system.vocabulary)) if task.system.in_two else 0
    return task.token_scores(at_once if at_once < width else 0)


def _score_targets(
    task: WritingTask[Any, Any, Any], params: Params, examples: Examples, rows: Sequence[Row]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """`score_rows` of the targets of examples."""
    scored: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for numbers, batch in task.in_order(examples):
        nats, right = jax.device_get(task.token_scores(params, batch))
        for at in np.flatnonzero(numbers >= 0):
            number, length = int(numbers[at]), rows[numbers[at]].scored
            scored[number] = -nats[at, :length].astype(np.float64), right[at, :length]
    return [scored[number] for number in range(len(rows))]
