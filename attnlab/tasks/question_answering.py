"""Extractive question answering: which stretch of a passage answers a question?

    p_start(t), p_end(t)   softmax of the two numbers of every token over the tokens of the passage
    loss                   -(log p_start(begin) + log p_end(end)) / 2 of the first right answer
    score(i, j)            log p_start(i) + log p_end(j), i <= j < i + 30
    answer                 argmax score(i, j) over all windows of the passage, as the characters from
                           the first of i to the last of j

With windows, or where questions may have no answer, the softmax is over the token that begins the
row, too: begin = end = 0 says "not here", which is what a window is taught that has no answer or
cuts it off. There is no answer at all if the least score(0, 0) of the windows is larger than that of
the answer by more than a threshold.

"exact" and "f1" are those of SQuAD: texts in lower case without signs and articles, the best of all
right answers; f1 is that of the words of the two texts. Where there is no answer, "" is right.

Source: P. Rajpurkar et al., "SQuAD", EMNLP 2016, section 6.1; P. Rajpurkar et al., "Know What You
Don't Know", ACL 2018; J. Devlin et al., "BERT", NAACL 2019, sections 4.2 and 4.3, and the authors'
code (30 tokens at most, windows). Their code compares windows by numbers before the softmax, which
mean nothing between windows, and lets an answer begin only in the window that has most around it.

Axis letters: B batch, T length.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import passages
from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.passages import MOST, Question, Windows, normal
from attnlab.data.questions import Questions
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import TokenClassifier
from attnlab.tasks import schemas
from attnlab.tasks.base import Task
from attnlab.tasks.models import built, longest_row
from attnlab.tasks.protocol import Response, Responses, Scores, Sides, Smoothing, TextExample, Typed
from attnlab.tasks.tokens import TOKENS_STORED, cross_entropy
from attnlab.training.step import Batch, Params, Sums, Tree

SILENCE = "(no answer)"  # what a person is told
_NEVER = -1e9


def build_system(
    config: schemas.QuestionAnswering, vocabulary: int, special: Special = OURS
) -> TokenClassifier:
    """The system of a config, with two numbers for every token.

    Raises:
      UserError: another kind of system, or a mechanism that does not fit, samples or has a loss.
    """
    system: TokenClassifier
    sizes = {"vocabulary": vocabulary, "outputs": 2}
    system, _ = built(config, TokenClassifier, special, longest_row(config), **sizes)
    return system


def windows_of(config: schemas.QuestionAnswering) -> Windows | None:
    """How the passages of a config are cut; None if they are not."""
    reading = config.passages
    if not reading.stride:
        return None
    return Windows(config.batch.max_length, reading.stride, reading.question)


class QuestionAnswering(Task[schemas.QuestionAnswering, Questions, TokenClassifier]):
    """Extractive question answering; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/question_answering.py`.
      data: the questions, their passages and answers.
      system: the model.
    """

    systems: ClassVar[type[TokenClassifier]] = TokenClassifier
    schema = schemas.QuestionAnswering
    loads = Questions
    columns: ClassVar[Mapping[str, Declared]] = {
        "source": IDS,
        "types": IDS,
        "words": IDS,
        "span": Declared("int32", (2,)),
        "question": Declared("int32"),
    }
    inputs = ("source", "types")
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="nats per window and end"),
        "accuracy": share("windows", unit="both likeliest ends right"),
        **dict.fromkeys(("exact", "f1"), Measure("max", 0.0, 1.0, unit="as in SQuAD")),
    }
    evaluated: ClassVar[Sequence[str]] = ("loss", "accuracy")
    ratios = {"loss": ("loss", "rows"), "accuracy": ("correct", "rows")}
    examples: ClassVar[str] = "questions"
    outputs: ClassVar[str] = "answers.tsv"
    stored_labels = TOKENS_STORED

    def __init__(self, config: schemas.QuestionAnswering, data: Questions) -> None:
        self.special, self._reading = data.vocabulary.special, config.passages
        self._absent = bool(self._reading.stride or self._reading.unanswerable)
        super().__init__(config, data, build_system(config, data.vocabulary.size, self.special))
        self._best = self.jit(self._likeliest)

    @classmethod
    def check(cls, config: schemas.QuestionAnswering) -> None:
        """Builds the system with a stand-in vocabulary, so that a bad config raises `UserError`
        before data is read; raises it too where windows would leave gaps in a passage.
        """
        build_system(config, 8)
        width, reading = config.batch.max_length, config.passages
        if reading.stride and reading.question + reading.stride + 3 > width:
            raise UserError(
                f"config.passages.stride={reading.stride} and question={reading.question}: with"
                f" three ends they are more than batch.max_length={width}, so that windows would"
                " leave gaps; lower them"
            )

    @classmethod
    def data_options(cls, config: schemas.QuestionAnswering) -> dict[str, Any]:
        """Returns the options with which data is loaded: how passages are cut into windows, and
        which answers count, as the config says.
        """
        return {
            "unanswerable": config.passages.unanswerable,
            "windows": windows_of(config),
            "units": config.passages.answers,
            "bound": config.passages.unreachable,
        }

    # --- training ---

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """Numbers [B,T,2] of a batch, float32; very low outside the passage, and outside the first
        token if that says "not here".
        """
        numbers: Any = super().apply(params, batch, **options)
        inside = jnp.asarray(batch["words"]) > 0
        inside = inside.at[:, 0].set(True) if self._absent else inside
        return jnp.where(inside[..., None], numbers.astype(jnp.float32), _NEVER)

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Computes sums over the windows of a batch, from start and end logits [B,T,2]: "loss" (of
        a window the mean of start and end), "rows", "correct" (both ends right); and "tokens",
        those that were read. Labels are not smoothed.
        """
        span = jnp.asarray(batch["span"])
        real, ends = self._real(batch), outputs.swapaxes(1, 2)  # [B,2,T]
        losses = cross_entropy(ends, span, 0.0).mean(axis=1)
        hits = (ends.argmax(axis=-1) == span).all(axis=1)
        return {
            "loss": jnp.where(real, losses, 0.0).sum(),
            "tokens": (jnp.asarray(batch["source"]) != self.special.pad).sum(),
            "rows": real.sum(),
            "correct": (hits & real).sum(),
        }

    def weight(self, batch: Batch) -> jax.Array:
        """The number of windows."""
        return self._real(batch).sum().astype(jnp.float32)

    def _real(self, batch: Batch) -> jax.Array:
        """Which rows [B] are no padding."""
        return jnp.asarray(batch["source"])[:, 0] != self.special.pad

    # --- scores ---

    def counts(self, split: str) -> dict[str, int]:
        """See `Task.counts`."""
        return {"windows": len(self.of_split(split))}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: {"exact", "f1"} of SQuAD, numbers from 0 to 1, the means over
        questions of the score with the right answer that fits best, and a list with a line
        "question TAB answer" for every question.
        """
        rows = self.data.rows[split]
        texts = [text for text, _ in self._answered(params, rows, self.of_split(split))]
        accepted = [[text for text, _ in row.answers if normal(text)] or [""] for row in rows]
        pairs, scores = list(zip(texts, accepted, strict=True)), dict[str, float]()
        for name, measure in (("exact", exact), ("f1", f1)):
            best = [max(map(measure, [answer] * len(truths), truths)) for answer, truths in pairs]
            scores[name] = float(np.mean(best))
        lines = [f"{row.question}\t{answer}" for answer, row in zip(texts, rows, strict=True)]
        return scores, [" ".join(line.split("\n")) for line in lines]

    def _likeliest(self, params: Params, batch: Batch) -> tuple[jax.Array, ...]:
        """Returns for each window [B] the first and the last token of its most probable answer of
        at most `MOST` tokens, the log probability of this answer, and that of no answer in the
        window.
        """
        chances = jax.nn.log_softmax(self.apply(params, batch), axis=1)
        sums = chances[:, :, None, 0] + chances[:, None, :, 1]
        length = sums.shape[1]
        tokens = jnp.arange(length)
        width = tokens - tokens[:, None]
        sums = jnp.where((width >= 0) & (width < MOST) & (tokens[:, None] > 0), sums, 2 * _NEVER)
        flat = sums.reshape(len(sums), -1)
        best = flat.argmax(axis=1)
        return best // length, best % length, flat.max(axis=1), chances[:, 0].sum(axis=1)

    def _answered(
        self, params: Params, rows: Sequence[Question], examples: Examples
    ) -> list[tuple[str, float]]:
        """Returns for each question in `rows` its answer and score: the most probable stretch of
        its passage over all windows in `examples`, or "" if questions may be `unanswerable` and no
        answer is likelier by more than the threshold.
        """
        best: dict[int, tuple[str, float]] = {}
        nothing: dict[int, float] = {}
        units = passages.read(self.data.vocabulary, rows, self._reading.answers)
        for numbers, batch in self.in_order(examples):
            begin, end, score, absent = map(np.asarray, self._best(params, batch))
            for row in np.flatnonzero(numbers >= 0).tolist():
                number = int(batch["question"][row])
                nothing[number] = min(nothing.get(number, np.inf), float(absent[row]))
                if number in best and score[row] <= best[number][1]:
                    continue
                ends = batch["words"][row, [begin[row], end[row]]]
                first, last = units[number].places[np.maximum(ends, 1) - 1]
                best[number] = rows[number].passage[first[0] : last[1]], float(score[row])
        return [self._choose_answer(best[number], nothing[number]) for number in range(len(rows))]

    def _choose_answer(self, best: tuple[str, float], nothing: float) -> tuple[str, float]:
        """The answer, or "" where none is likelier."""
        silent = self._reading.unanswerable and nothing - best[1] > self._reading.threshold
        return ("", nothing) if silent else best

    # --- answers and maps ---

    def _questions_in(self, lines: Sequence[str]) -> list[Question]:
        """Splits typed lines into question and passage; raises `UserError` for a line without
        exactly these two, a tab between them.
        """
        rows = []
        for line in lines:
            texts = line.split("\t")
            if len(texts) != 2 or not all(passages.cut(text) for text in texts):
                raise UserError(f"{line!r}: expected a question and a passage with a tab between")
            rows.append(Question(texts[0], texts[1], ()))
        return rows

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """A line has a question and a passage with a tab between them."""
        rows, windows = self._questions_in(lines), windows_of(self.config)
        return passages.encode(self.data.vocabulary, rows, windows, self._reading.answers)

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """None, where long passages are cut; see `Task.longer_than`."""
        return [] if self._reading.stride else super().longer_than(limit, lines)

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """The likeliest stretch of each passage, or `SILENCE`."""
        answered = self._answered(params, self._questions_in(lines), examples)
        return [[Response(text or SILENCE, score)] for text, score in answered]

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """The first questions of a split."""
        return [TextExample(row.question, row.passage) for row in self.data.rows[split][:number]]

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[TextExample]:
        """Returns a `TextExample` for each of `typed`, pairs (question, passage), or (both in one
        text with a tab between, None); raises `UserError` where one is missing.
        """
        lines = [first if second is None else f"{first}\t{second}" for first, second in typed]
        return [
            TextExample(question.question, question.passage)
            for question in self._questions_in(lines)
        ]

    def model_inputs(self, example: TextExample) -> tuple[list[np.ndarray], Sides]:
        """The row of a question and its passage, or of its first window, "source"."""
        examples = self.examples_from_lines([f"{example.source}\t{example.target}"])
        ids, types = (examples.packed(name)[0] for name in self.inputs)
        return [ids[None], types[None]], {"source": self.data.vocabulary.tokens(ids)}


def exact(answer: str, truth: str) -> bool:
    """Whether two texts are the same, see `normal`."""
    return normal(answer) == normal(truth)


def f1(answer: str, truth: str) -> float:
    """Computes the harmonic mean of precision and recall of the words of an answer against those of
    a right one (`truth`), normalised (`normal`); if a text has no words, 1 if both have none, else
    0.
    """
    answered, expected = normal(answer), normal(truth)
    if not answered or not expected:
        return float(answered == expected)
    shared = (Counter(answered) & Counter(expected)).total()
    return 2 * shared / (len(answered) + len(expected))
