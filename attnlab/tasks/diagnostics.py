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

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import asked
from attnlab.data.asked import CHANCE, MAJORITY, AskedTexts, Row
from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks import schemas
from attnlab.tasks.base import Task
from attnlab.tasks.models import (
    check_output_bias,
    refuse_terms,
    shapes_of,
    sums_of_rows,
    system_factory,
)
from attnlab.tasks.protocol import (
    Axis,
    Batch,
    Params,
    Response,
    Scores,
    Smoothing,
    Sums,
    TextExample,
    Totals,
    Typed,
)
from attnlab.tasks.tokens import cross_entropy, tokens_or_rows


def build_system(
    config: schemas.Diagnostics, vocabulary: int, special: Special = OURS
) -> LanguageModel:
    """The system of a config.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, rows
        beyond the last position, no output bias where one is to be set.
    """
    factory = system_factory(config, LanguageModel)
    system: LanguageModel = factory(vocabulary=vocabulary, pad_id=special.pad)
    shapes = shapes_of(system, jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32))
    refuse_terms(config, shapes)
    check_output_bias(config, shapes["params"], vocabulary)
    return system


class Diagnostics(Task[schemas.Diagnostics, AskedTexts, LanguageModel]):
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
        "loss": Measure("min", low=0.0),
        "accuracy": share("questions"),
        "exact": share("texts"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    units: ClassVar[Mapping[str, str]] = {
        "loss": "nats per question",
        "accuracy": "of the questions",
        "exact": "texts with every question right",
        CHANCE: "accuracy of a guess among all answers",
        MAJORITY: "accuracy of the most frequent answer",
    }
    examples: ClassVar[str] = "texts"
    outputs: ClassVar[str] = "answers.tsv"

    def __init__(self, config: schemas.Diagnostics, data: AskedTexts) -> None:
        self.special = data.vocabulary.special
        super().__init__(config, data, build_system(config, data.vocabulary.size, self.special))
        self._answer_ids = self.jit(lambda params, batch: self.apply(params, batch).argmax(axis=-1))

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
        """Sums over the questions of a batch, of logits [B,T,V]: "loss", "asked", "correct"; over
        its texts: "rows" with a question, "exact"; and "tokens", those that were read.
        """
        target, logits = jnp.asarray(batch["target"]), outputs.astype(jnp.float32)
        wanted = target != self.special.pad
        right = (logits.argmax(axis=-1) == target) & wanted
        rows = wanted.any(axis=1)
        return {
            "loss": jnp.where(wanted, cross_entropy(logits, target, smoothing), 0.0).sum(),
            "tokens": (jnp.asarray(batch["source"]) != self.special.pad).sum(),
            "asked": wanted.sum(),
            "correct": right.sum(),
            "rows": rows.sum(),
            "exact": (rows & (right == wanted).all(axis=1)).sum(),
        }

    def weight(self, batch: Batch) -> jax.Array:
        """The number of questions, or of texts (`training.per="sentence"`)."""
        wanted = jnp.asarray(batch["target"]) != self.special.pad
        return tokens_or_rows(wanted, self.config.training.per)

    # --- scores ---

    def averaged(self, totals: Totals) -> dict[str, float]:
        """ "loss" (nats per question, no smoothing), "accuracy" and "exact"."""
        return {
            "loss": float(totals["loss"] / totals["asked"]),
            "accuracy": float(totals["correct"] / totals["asked"]),
            "exact": float(totals["exact"] / totals["rows"]),
        }

    def counts(self, split: str) -> dict[str, int]:
        """The number of questions."""
        return {"questions": self.data.questions(split)}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """The accuracies of guesses, and the accuracy by group where the source has groups; and
        "text TAB answers TAB what the system said" of every text.
        """
        rows, lines = self.data.rows[split], list[str]()
        right, every = collections.Counter[int](), collections.Counter[int]()
        for row, answered in zip(rows, self._answered(params, self.of_split(split)), strict=True):
            wanted = [answer for answer in row.answers if answer]
            lines.append(f"{' '.join(row.words)}\t{' '.join(wanted)}\t{' '.join(answered)}")
            every.update(row.groups)
            right.update(
                group
                for group, word, answer in zip(row.groups, wanted, answered, strict=False)
                if word == answer
            )
        scores: Scores = dict(self.data.beside[split])
        if every:
            scores[f"by_{self.data.group}"] = {
                str(group): {"accuracy": right[group] / count, "questions": count}
                for group, count in sorted(every.items())
            }
        return scores, lines

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items | None:
        """A row for every text, of what `evaluate` gives."""
        sums = sums_of_rows(self, params, self.in_order(self.of_split(split)))
        of = {
            "loss": ("loss", "asked"),
            "accuracy": ("correct", "asked"),
            "exact": ("exact", "rows"),
        }
        return Items.of(
            {
                name: ("ratio", np.stack([sums[total], sums[count]], axis=1))
                for name, (total, count) in of.items()
            }
        )

    def _answered(self, params: Params, examples: Examples) -> list[list[str]]:
        """What the system says at the words of each example that ask."""
        answers: dict[int, list[str]] = {}
        decode, tokens = self.data.vocabulary.decode, self.data.vocabulary.tokens
        for rows, batch in self.in_order(examples):
            answer_ids = np.asarray(self._answer_ids(params, batch))
            for row, target, ids in zip(rows, batch["target"], answer_ids, strict=True):
                if row >= 0:
                    chosen = ids[target != self.special.pad]
                    # A special id is no text; it is shown as it is.
                    answers[row] = [decode([token]) or tokens([token])[0] for token in chosen]
        return [answers[row] for row in range(len(examples))]

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Words with blanks between them; every word asks.

        Raises:
          UserError: a blank line.
        """
        rows = []
        for line in lines:
            if not (words := tuple(line.split())):
                raise UserError(f"{line!r}: expected words with blanks between them")
            rows.append(Row(words, words))
        return asked.encode(self.data.vocabulary, rows)

    def answers(
        self, params: Params, examples: Examples, lines: Sequence[str]
    ) -> list[list[Response]]:
        """What the system says behind every word of each line, as "word/answer word/answer ..."."""
        return [
            [Response(" ".join(map("/".join, zip(line.split(), answers, strict=True))), 0.0)]
            for line, answers in zip(lines, self._answered(params, examples), strict=True)
        ]

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """The first texts of a split."""
        return [TextExample(" ".join(row.words)) for row in self.data.rows[split][:number]]

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[TextExample]:
        """The texts as they are; a second one is an error."""
        if seconds := [second for _, second in typed if second is not None]:
            raise UserError(f"a text answers by itself; leave out the second, {seconds[0]!r}")
        self.examples_from_lines([first for first, _ in typed])
        return [TextExample(first) for first, _ in typed]

    def model_inputs(self, example: Any) -> tuple[list[np.ndarray], dict[str, Axis]]:
        """A text with what begins it, "source"."""
        (ids,) = self.examples_from_lines([example.source]).packed("source")
        return [ids[None]], {"source": Axis(self.data.vocabulary.tokens(ids))}

    def map_labels(self, axes: Mapping[str, Axis]) -> dict[str, Sequence[str]]:
        """The tokens that are read."""
        return {"source_tokens": axes["source"].labels, "target_tokens": ()}
