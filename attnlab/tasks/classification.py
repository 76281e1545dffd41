"""Classification: labelled texts, or pairs of them, a system that tells classes apart,
cross-entropy, and scores by label.

One text a row ("source"), as in sentiment, or two ("source" and "target"), as in natural language
inference; how many there are follows from the source of the data. `label` is k + 1 for class k and
0 for a row of padding. A label that only a split other than training has is C + 1: whatever is
answered there is wrong, and the loss, which would be infinite, leaves it out.

Axis letters: B batch, S and T lengths of the first and the second text, C classes.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab import weights
from attnlab.data import labelled
from attnlab.data.columns import Declared
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import Classifier
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.base import Task
from attnlab.tasks.choices import choice_rows, choice_sums, confusion, likeliest
from attnlab.tasks.protocol import Response, Rngs, Scores, Smoothing, Totals
from attnlab.tasks.texts import TextTask, sentences_of, traced_classifier
from attnlab.tasks.tokens import cross_entropy
from attnlab.training.step import Batch, Params, Sums, Tree


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


def macro_f1(confusion: np.ndarray) -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN), from counts [C,C] of label (row) and
    answer (column).

    A class that is neither there nor answered has nothing to get wrong and is left out.
    """
    hits, either = 2.0 * np.diagonal(confusion), confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.mean(hits[either > 0] / either[either > 0])) if either.any() else 0.0
