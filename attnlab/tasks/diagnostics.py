"""Diagnostic tasks: exact, generated texts that ask for one ability, and a language model that
answers at the words where something is asked.

    loss      = mean over questions of -log p(answer | words up to the one that asks)
    accuracy  = share of questions with the right answer
    exact     = share of texts whose questions are all answered right

Where the answers stand in the text, each read before the next is asked for (a copy, say), `exact`
is also what greedy generation from the first question on would reach: as long as all answers are
right, it reads what stands in the text. Beside these scores stand the accuracies of guesses, which
read nothing ("chance", "majority") or little (what the source says). A source with groups (lengths,
distances) has its accuracy split up by them.

Axis letters: B batch, T length, V vocabulary.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import asked
from attnlab.data.asked import CHANCE, MAJORITY, AskedTexts, Row
from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.vocabulary import OURS, Special
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks import schemas
from attnlab.tasks.models import built
from attnlab.tasks.protocol import Batch, Params, Responses, Scores, Smoothing, Sums, TextExample
from attnlab.tasks.tokens import OneTextTask, check_output_bias, cross_entropy, words_of


def build_system(
    config: schemas.Diagnostics, vocabulary: int, special: Special = OURS
) -> LanguageModel:
    """Builds the language model of a config for a vocabulary of this size; raises `UserError` where
    a part of it does not fit.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, rows
        beyond the last position, no output bias where one is to be set.
    """
    system: LanguageModel
    row = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
    system, params = built(config, LanguageModel, special, row, vocabulary=vocabulary)
    check_output_bias(config, params, vocabulary)
    return system


class Diagnostics(OneTextTask[schemas.Diagnostics, AskedTexts, LanguageModel]):
    """Answers at some words of a text; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/diagnostics.py`.
      data: the texts, their ids and the answers.
      system: the model.
    """

    systems: ClassVar[type[LanguageModel]] = LanguageModel
    schema = schemas.Diagnostics
    loads = AskedTexts
    columns: ClassVar[Mapping[str, Declared]] = {"source": IDS, "target": IDS}
    inputs = ("source",)
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="nats per question"),
        "accuracy": share("questions", unit="of the questions"),
        "exact": share("texts", unit="texts with every question right"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {
        "loss": ("loss", "asked"),
        "accuracy": ("correct", "asked"),
        "exact": ("exact", "rows"),
    }
    units: ClassVar[Mapping[str, str]] = {
        CHANCE: "accuracy of a guess among all answers",
        MAJORITY: "accuracy of the most frequent answer",
    }
    alone = "a text answers by itself"
    examples: ClassVar[str] = "texts"
    outputs: ClassVar[str] = "answers.tsv"

    def __init__(self, config: schemas.Diagnostics, data: AskedTexts) -> None:
        self.special = data.vocabulary.special
        super().__init__(config, data, build_system(config, data.vocabulary.size, self.special))

    @classmethod
    def check(cls, config: schemas.Diagnostics) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        made.
        """
        build_system(config, 8)

    # --- training ---

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """The answers of the training split."""
        if "train" not in self.data.examples:
            return None
        ids = self.data.examples["train"].packed("target").ids
        return ids[ids != self.special.pad], self.data.vocabulary.size

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Returns sums over a batch by name, from logits [B,T,V]: of its questions "loss", "asked"
        and "correct", of its texts "rows" (with a question) and "exact" (all answers right), and
        "tokens", those that were read.
        """
        target, logits = jnp.asarray(batch["target"]), outputs.astype(jnp.float32)
        has_answer = target != self.special.pad
        hits = (logits.argmax(axis=-1) == target) & has_answer
        rows = has_answer.any(axis=1)
        return {
            "loss": jnp.where(has_answer, cross_entropy(logits, target, smoothing), 0.0).sum(),
            "tokens": (jnp.asarray(batch["source"]) != self.special.pad).sum(),
            "asked": has_answer.sum(),
            "correct": hits.sum(),
            "rows": rows.sum(),
            "exact": (rows & (hits == has_answer).all(axis=1)).sum(),
        }

    # --- scores ---

    def counts(self, split: str) -> dict[str, int]:
        """The number of questions."""
        return {"questions": self.data.questions(split)}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: a dict of scores of a split, which are the accuracies of trivial
        guesses and, where the source has groups, a table of the system's accuracy and number of
        questions for each group; and a list with a line "text TAB right answers TAB answers of the
        system" for every text.
        """
        rows, lines = self.data.rows[split], list[str]()
        hits, totals = collections.Counter[int](), collections.Counter[int]()
        for row, answered in zip(rows, self._answered(params, self.of_split(split)), strict=True):
            expected = [answer for answer in row.answers if answer]
            lines.append(f"{' '.join(row.words)}\t{' '.join(expected)}\t{' '.join(answered)}")
            totals.update(row.groups)
            hits.update(
                group
                for group, word, answer in zip(row.groups, expected, answered, strict=False)
                if word == answer
            )
        scores: Scores = dict(self.data.extra[split])
        if totals:
            scores[f"by_{self.data.group}"] = {
                str(group): {"accuracy": hits[group] / count, "questions": count}
                for group, count in sorted(totals.items())
            }
        return scores, lines

    def _answered(self, params: Params, examples: Examples) -> list[list[str]]:
        """Returns for each example a list of the system's likeliest answers, as texts, one at each
        word that asks for one.
        """
        decode, tokens = self.data.vocabulary.decode, self.data.vocabulary.tokens
        # A special id is no text; it is shown as it is.
        return [
            [decode([token]) or tokens([token])[0] for token in ids]
            for ids in self.likeliest_ids(params, examples)
        ]

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Words with blanks between them; every word asks.

        Raises:
          UserError: a blank line.
        """
        rows = map(words_of, lines)
        return asked.encode(self.data.vocabulary, [Row(words, words) for words in rows])

    def example(self, line: str) -> TextExample:
        """See `OneTextTask.example`."""
        words_of(line)
        return TextExample(line)

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """What the system says behind every word of each line, as "word/answer word/answer ..."."""
        return self.beside_words(lines, self._answered(params, examples))

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """The first texts of a split."""
        return [TextExample(" ".join(row.words)) for row in self.data.rows[split][:number]]
