"""The choice of one class among several: its loss, its scores example by example, and how often each
label got each answer. And classification of labelled texts, or pairs of them: a system that tells
classes apart, cross-entropy, and scores by label.

One text a row ("source"), as in sentiment, or two ("source" and "target"), as in natural language
inference; how many there are follows from the source of the data. `label` is k + 1 for class k of C
and 0 for a row of padding. A label that only a split other than training has is C + 1: whatever is
answered there is wrong, and the loss, which would be infinite, leaves it out.

Axis letters: B batch, N examples, S and T lengths of the first and the second text, C classes.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab import weights
from attnlab.data import labelled
from attnlab.data.columns import Declared, Examples
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import Classifier
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.base import Config, Data, Model, Task
from attnlab.tasks.protocol import Response, Responses, Rngs, Scores, Smoothing, Totals
from attnlab.tasks.texts import TextTask, sentences_of, traced_classifier
from attnlab.tasks.tokens import cross_entropy
from attnlab.training.step import Batch, Params, Sums, Tree


def choice_sums(logits: jax.Array, label: jax.Array, smoothing: Smoothing) -> Sums:
    """Returns sums over the rows of a batch by name, from logits [B,C] and `label` [B], 0 for
    padding and else 1 + class: "loss", "known" (rows with a class of training), "rows", "correct".
    """
    logits = logits.astype(jnp.float32)
    real, trained = label > 0, (label > 0) & (label <= logits.shape[-1])
    losses = cross_entropy(logits, jnp.where(trained, label - 1, 0), smoothing)
    return {
        "loss": jnp.where(trained, losses, 0.0).sum(),
        "known": trained.sum(),
        "rows": real.sum(),
        "correct": ((logits.argmax(axis=-1) == label - 1) & real).sum(),
    }


def choice_rows(
    logits: np.ndarray, classes: np.ndarray, trained: np.ndarray
) -> dict[str, tuple[str, np.ndarray]]:
    """Returns for "loss" and "accuracy" a rule of `attnlab.records.items` and rows [N,2] of (value,
    count), from logits [N,C] and right classes [N]; only examples that `trained` [N] marks have a
    loss.
    """
    logits = logits.astype(np.float64)
    right_logits = np.take_along_axis(logits, np.where(trained, classes, 0)[:, None], axis=1)[:, 0]
    nats = np.where(trained, np.logaddexp.reduce(logits, axis=1) - right_logits, 0.0)
    hits = logits.argmax(axis=1) == classes
    return {
        "loss": ("ratio", np.stack([nats, trained], axis=1)),
        "accuracy": ("ratio", np.stack([hits, np.ones_like(trained)], axis=1)),
    }


def confusion(pairs: Iterable[tuple[str, str]], names: Sequence[str]) -> Scores:
    """Counts how often each label (row; `names` and then others) got each answer (column; of
    `names`), from the label and the answer of every example.
    """
    counts = Counter(pairs)
    labels = (*names, *sorted({label for label, _ in counts} - {*names}))
    return {row: {column: counts[row, column] for column in names} for row in labels}


def likeliest(logits: np.ndarray, names: Sequence[str]) -> Response:
    """The likeliest class, given logits [C], and its log probability."""
    chances = logits - np.logaddexp.reduce(logits)
    return Response(names[int(chances.argmax())], float(chances.max()))


class Choosing(Task[Config, Data, Model]):
    """Base of the tasks that choose one of the classes in `data.learned`. Not a task by itself."""

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes."""
        return self.data.learned.classes  # type: ignore[attr-defined,no-any-return]

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """The likeliest class of each example, and its log probability."""
        logits = self.outputs_of(params, examples).astype(np.float64)
        return [[likeliest(row, self.classes)] for row in logits]


def build_system(
    config: schemas.Classification,
    vocabulary: int,
    classes: int,
    sentences: int,
    special: Special = OURS,
) -> tuple[Classifier, Auxiliary]:
    """Builds the classifier of a config for a vocabulary of this size, this number of classes and
    of texts a row (`sentences`), and the terms added to its loss.

    Raises:
      UserError: another kind of system, one that cannot read so many texts, a mechanism that cannot
        do what is asked of it, a loss with a weight that nobody hands out, or hops without a weight
        for the penalty that keeps them apart.
    """
    system, shapes = traced_classifier(config, vocabulary, classes, sentences, special)
    return system, Auxiliary(type(system), shapes, config, 1)


class Classification(TextTask):
    """Classification: texts, or pairs of them, to one of several labels; see
    `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/classification.py` and `configs/inference.py`.
      data: the texts, their ids and their labels.
      system: the model.
    """

    columns: ClassVar[Mapping[str, Declared]] = {**TextTask.columns, "label": Declared("int32")}
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="nats per example"),
        "accuracy": share("examples", unit="share of labels right"),
        "macro_f1": Measure("max", 0.0, 1.0, unit="mean of F1 over classes, each the same weight"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {"loss": ("loss", "known"), "accuracy": ("correct", "rows")}
    units: ClassVar[Mapping[str, str]] = {"confusion": "label \\ answer"}

    def __init__(self, config: schemas.Classification, data: labelled.LabelledTexts) -> None:
        learned, special = data.learned, data.vocabulary.special
        sizes = data.vocabulary.size, len(learned.classes), learned.sentences
        super().__init__(config, data, *build_system(config, *sizes, special))

    @classmethod
    def check(cls, config: schemas.Classification) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        read.
        """
        build_system(config, 8, 3, sentences_of(config))

    @classmethod
    def data_options(cls, config: schemas.Classification) -> dict[str, Any]:
        """See `Task.data_options`; labels are names."""
        return {}

    def check_pretrained(self) -> dict[str, str]:
        """Checks the pretrained weights as `InitialWeights.check` does and returns {"pretrained":
        their fingerprint} or {}; raises `UserError` too if a folder taken as a whole has other
        labels than the data.
        """
        summary = super().check_pretrained()
        if summary and self.config.pretrained.take == "all" and self.beginning:
            folder = self.beginning.folder
            labels, names = weights.labels(folder), self.data.learned.classes
            if labels and labels != names:
                raise UserError(
                    f"pretrained.folder={folder} has the labels {', '.join(labels)}, the data"
                    f" {', '.join(names)}, which are numbered in alphabetical order; rename those of"
                    " one so that they agree, or take the model but for its head"
                    " (pretrained.take=matching)"
                )
        return summary

    loss = Task.loss  # with terms of its own, and sums "tokens" (read), "rows", "correct" beside it
    weight = Task.weight  # by labels, where a task of texts goes by its texts

    def auxiliary_inputs(self, outputs: jax.Array, batch: Batch) -> dict[str, Tree]:
        """Returns the arguments of `auxiliary` by name: masks of the real tokens of the first and
        the second text (None where there is none), a mask "target" [B,1] of the rows with a label,
        and the log-likelihood [B,1] of the label.
        """
        source, second = (
            jnp.asarray(batch[side]) != self.special.pad if side in batch else None
            for side in ("source", "target")
        )
        label = jnp.asarray(batch["label"])[:, None]
        likelihood = -cross_entropy(
            outputs[:, None].astype(jnp.float32), jnp.maximum(label - 1, 0), 0.0
        )
        return {
            "source": source,
            "target": label > 0,
            "log_likelihood": likelihood,
            "second": second,
        }

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: {"confusion": a table of how often each label (row) got each answer
        (column)}, and a list with a line "label TAB answer" for every example of the split.
        """
        labels = [label for _, label in self.data.rows[split]]
        answers = [best.text for best in self.answered(params, self.of_split(split))]
        pairs = list(zip(labels, answers, strict=True))
        table = confusion(pairs, self.data.learned.classes)
        return {"confusion": table}, [f"{label}\t{answer}" for label, answer in pairs]

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """Returns `Items` with a row for every example of a split, from which "loss", "accuracy"
        and "macro_f1" are resampled: its loss (none for a label that training lacks), whether it is
        right, and its label and answer by class.
        """
        examples, classes = self.of_split(split), len(self.data.learned.classes)
        logits = self.outputs_of(params, examples)
        label = examples["label"].block(np.arange(len(examples)), 0) - 1
        of_label, of_answer = (
            np.eye(classes + 1, dtype=np.uint8)[ids] for ids in (label, logits.argmax(axis=1))
        )
        hits = np.concatenate([2 * of_label * of_answer, of_label + of_answer], axis=1)
        choices = choice_rows(logits, label, label < classes)
        return Items.of({**choices, "macro_f1": ("macro_f1", hits)})

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Computes sums over the rows of a batch, from logits [B,C]: "loss", "rows", "correct"; and
        "tokens", those that were read.
        """
        sums = choice_sums(outputs, jnp.asarray(batch["label"]), smoothing)
        del sums["known"]
        return {**sums, "tokens": self.counted(batch)["tokens"]}

    def sums(
        self, params: Params, batch: Batch, smoothing: Smoothing = 0.0, rngs: Rngs | None = None
    ) -> Sums:
        """Computes the sums of `summed` and how often each class (row) got each answer (column),
        "confusion" [C+1,C+1], labels not known last.
        """
        logits, label = self.apply(params, batch, rngs=rngs), jnp.asarray(batch["label"])
        one_hot = functools.partial(
            jax.nn.one_hot, num_classes=len(self.data.learned.classes) + 1, dtype=jnp.int32
        )
        return {
            **self.summed(logits, batch, smoothing),
            "confusion": one_hot(label - 1).T @ one_hot(logits.argmax(axis=-1)),
        }

    def averaged(self, totals: Totals) -> dict[str, float]:
        """The `ratios` and "macro_f1" (labels not known count as one class)."""
        table = totals["confusion"]
        scores = super().averaged({**totals, "known": table[:-1].sum()})
        return {**scores, "macro_f1": macro_f1(table)}

    def written(self, outputs: np.ndarray) -> Response:
        """The likeliest class, and its log probability."""
        return likeliest(outputs, self.data.learned.classes)


def macro_f1(table: np.ndarray) -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN), from counts [C,C] of label (row) and
    answer (column).

    A class that is neither there nor answered has nothing to get wrong and is left out.
    """
    hits, either = 2.0 * np.diagonal(table), table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(hits[either > 0] / either[either > 0])) if either.any() else 0.0
