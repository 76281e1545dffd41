"""Classification: labelled texts, or pairs of them, a system that tells classes apart, cross-entropy, and scores by label.

One text a row ("source"), as in sentiment, or two ("source" and "target"), as in natural language inference; how many there are follows
from the source of the data. `label` is k + 1 for class k and 0 for a row of padding. A label that only a split other than training has
is C + 1: whatever is answered there is wrong, and the loss, which would be infinite, leaves it out.

Axis letters: B batch, S and T lengths of the first and the second text, C classes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.data import labelled
from attnlab.data.batching import Batch, Examples, TrainBatches, evaluation_batches
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import PAD, AttentionMap, Classifier
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.models import cross_entropy, shapes_of, system_factory
from attnlab.tasks.protocol import Example, Response

ROWS = 64  # of a batch in evaluation


def build_system(config: ConfigDict, vocabulary: int, classes: labelled.Classes) -> tuple[Classifier, Auxiliary]:
    """The system of a config, and what is added to its loss.

    Raises:
      UserError: another kind of system, one that cannot read so many texts, a mechanism that cannot do what is asked of it, a loss
        with a weight that nobody hands out, or hops without a weight for the penalty that keeps them apart.
    """
    factory = system_factory(config, Classifier)
    if classes.sentences not in factory.func.texts:
        wanted, can = ("a text", "pairs of texts")[classes.sentences - 1], " or ".join(map(str, factory.func.texts))
        raise UserError(
            f"system={config.system.name} reads {can} text(s) a row, config.data={config.data.name} has {wanted}; "
            f"choose from: {', '.join(_reading(classes.sentences))}"
        )
    system: Classifier = factory(vocabulary=vocabulary, classes=len(classes.names))
    handed_out = shapes_of(system, *[jax.ShapeDtypeStruct((1, 2), jnp.int32)] * classes.sentences)
    return system, Auxiliary(type(system), handed_out, config, 1)


def _reading(sentences: int) -> list[str]:
    """The registered classifiers that can read so many texts."""
    found = ((name, SYSTEMS.resolve(name)) for name in SYSTEMS.names())
    return [name for name, one in found if issubclass(one, Classifier) and sentences in one.texts]


class Classification:
    """The task, see `attnlab.tasks.protocol.Task`; one object for a run.

    Attributes:
      config: see `configs/classification.py` and `configs/inference.py`.
      data: the texts, their ids and their labels.
      system: the model.
    """

    measures: ClassVar[Mapping[str, str]] = {"loss": "min", "accuracy": "max", "macro_f1": "max"}
    evaluated: ClassVar[Sequence[str]] = ("loss", "accuracy", "macro_f1")
    units: ClassVar[Mapping[str, str]] = {
        "loss": "nats per example",
        "accuracy": "share of labels right",
        "macro_f1": "mean of F1 over classes, each the same weight",
        "confusion": "label \\ answer",
    }
    examples: ClassVar[str] = "examples"
    outputs: ClassVar[str] = "predictions.tsv"

    def __init__(self, config: ConfigDict, data: labelled.LabelledTexts) -> None:
        self.config, self.data = config, data
        self.system, self.auxiliary = build_system(config, data.vocabulary.size, data.classes)
        self.carried, self.follow = self.auxiliary.carried, self.auxiliary.follow
        self._logits = jax.jit(lambda params, batch: self._apply(params, batch))
        score = functools.partial(self._sums, smoothing=0.0)
        self._score, self._score_all = jax.jit(score), jax.jit(jax.vmap(score, in_axes=(0, None)))

    @staticmethod
    def check(config: ConfigDict) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is read."""
        sentences = getattr(labelled.source(config.data), "sentences", None)
        for count in (sentences,) if sentences in (1, 2) else system_factory(config, Classifier).func.texts[:1]:
            build_system(config, 8, labelled.Classes(("a", "b", "c"), count))

    @classmethod
    def load(cls, config: ConfigDict, workdir: Path | None, splits: Sequence[str]) -> Classification:
        """The task with its data read; vocabulary and labels come from `workdir`, or without one from the training split.

        Raises:
          UserError: bad config, unreadable data, damaged or lost vocabulary or labels.
        """
        if workdir is not None and not cls.saved(workdir):  # never learned from whatever data is at hand: the ids would mean others
            raise UserError(f"{workdir} has lost its vocabulary or labels; the 'train' command that made it learns them again")
        return cls(config, labelled.load(config.data, config.vocabulary, workdir, splits))

    # --- what the training loop asks for ---

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters."""
        return self.system.init(key, *[jnp.ones((1, 2), jnp.int32)] * self.data.classes.sentences)["params"]

    def loss(
        self, params: Any, batch: Batch, key: jax.Array, carried: Any = None, smoothing: Any = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Summed cross-entropy with label smoothing and dropout; sums "tokens" (read), "rows" and "correct" beside it.

        With auxiliary terms (see `auxiliary`) these are added to it, and stand beside it with "cross_entropy" under their own names.
        `smoothing` replaces the configured rate; it may be an array.
        """
        smoothing = self.config.training.label_smoothing if smoothing is None else smoothing
        rngs = {"dropout": key, "sample": jax.random.fold_in(key, 1)}
        if not self.auxiliary.collections:
            sums = _summed(self._apply(params, batch, rngs=rngs), batch, smoothing)
            return sums.pop("loss"), sums
        logits, collected = self._apply(params, batch, rngs=rngs, mutable=self.auxiliary.collections)
        source, second = (jnp.asarray(batch[side]) != PAD if side in batch else None for side in ("source", "target"))
        label = jnp.asarray(batch["label"])[:, None]
        likelihood = -cross_entropy(logits[:, None].astype(jnp.float32), jnp.maximum(label - 1, 0), 0.0)
        added, terms = self.auxiliary(collected, source, label > 0, likelihood, carried, second)  # type: ignore[arg-type]
        sums = _summed(logits, batch, smoothing)
        return sums["loss"] + added, {"cross_entropy": sums.pop("loss"), **sums, **terms}

    def weight(self, batch: Batch) -> jax.Array:
        """The number of examples."""
        return (jnp.asarray(batch["label"]) > 0).sum().astype(jnp.float32)

    def batches(self, multiple: int, seed: int | None = None) -> TrainBatches:
        """The training batches of this process, in the order of the configured seed or another one."""
        shared = {"process_index": jax.process_index(), "process_count": jax.process_count()}
        seed = self.config.seed if seed is None else seed
        return TrainBatches(self.data.examples["train"], **self.config.batch, seed=seed, multiple=multiple, **shared)

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """ "loss" (nats per example with a known label, no smoothing), "accuracy" and "macro_f1" (labels not known count as one class)."""
        return _averaged([jax.device_get(self._score(params, batch)) for _, batch in self._in_order(self.data.examples[split])])

    def evaluate_stacked(self, params: Any, split: str) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""
        sums = [jax.device_get(self._score_all(params, batch)) for _, batch in self._in_order(self.data.examples[split])]
        return [_averaged([jax.tree.map(lambda x, i=i: x[i], one) for one in sums]) for i in range(len(sums[0]["loss"]))]

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back: vocabulary and labels."""
        labelled.save(self.data, workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""
        return labelled.saved(workdir)

    def notes(self, batches: TrainBatches) -> list[str]:
        """What a person should know about the data before training: sizes, unknown tokens, labels, texts left out."""
        lines = [f"{split}: {self.data.about(split)}" for split in self.data.rows]
        if batches.left_out:
            limit = self.config.batch.max_length
            lines.append(f"train: {batches.left_out:,} examples longer than batch.max_length={limit} tokens are left out, none is cut")
        return lines

    # --- text ---

    def size(self, split: str) -> int:
        """The number of examples."""
        return len(self.data.rows[split])

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """ "confusion", how often each label (row) got each answer (column), and "label TAB answer" of every example."""
        labels = [label for _, label in self.data.rows[split]]
        answers = [best.text for best in self._answers(params, self.data.examples[split])]
        names = self.data.classes.names
        pairs = list(zip(labels, answers, strict=True))
        counts = Counter(pairs)
        confusion = {label: {answer: counts[label, answer] for answer in names} for label in (*names, *sorted({*labels} - {*names}))}
        return {"confusion": confusion}, [f"{label}\t{answer}" for label, answer in pairs]

    def respond(self, params: Any, lines: Sequence[str]) -> list[list[Response]]:
        """The label of each line with its log probability; a line has one text, or two with a tab between them."""
        return [[best] for best in self._answers(params, self._encoded(list(map(self._texts, lines))))]

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """Which of the lines have a text of more than `limit` tokens, EOS counted."""
        return np.flatnonzero(self._encoded(list(map(self._texts, lines))).lengths > limit).tolist() if lines else []

    def pictured(self, split: str, number: int) -> list[Example]:
        """The first examples of a split."""
        return [(texts[0], texts[1] if len(texts) > 1 else None) for texts, _ in self.data.rows[split][:number]]

    def completed(self, params: Any, examples: Sequence[Example]) -> list[Example]:
        """The examples, a pair on one line split at its tab; raises `UserError` where a text is missing or too many."""
        lines = [source if target is None else f"{source}\t{target}" for source, target in examples]
        return [(first, second[0] if second else None) for first, *second in map(self._texts, lines)]

    def maps(self, params: Any, source: str, target: str | None) -> tuple[dict[str, AttentionMap], dict[str, list[str]]]:
        """Every attention map of one example, and the tokens of the sequences that the maps are between.

        Returns:
          Maps by name, [H,Tq,Tk], and tokens by sequence: "source", of a pair "target_in", and "hops", which are numbered.
        """
        example = self._encoded([(source,) if target is None else (source, target)])
        ids = {name: side[0] for name, side in zip(("source", "target_in"), example.packed, strict=False)}
        _, collected = self.system.apply({"params": params}, *(jnp.asarray(one)[None] for one in ids.values()), mutable=[MAPS])
        found = jax.device_get(self.system.maps(collected.get(MAPS, {})))  # type: ignore[union-attr]  # none without attention
        names = {name: self.data.vocabulary.tokens(one) for name, one in ids.items()}
        hops = max((one.weights.shape[2] for one in found.values() if one.query == "hops"), default=0)
        names["hops"] = [f"hop {number}" for number in range(1, hops + 1)]
        return {name: one.replace(weights=np.asarray(one.weights[0])) for name, one in found.items()}, names

    def _texts(self, line: str) -> tuple[str, ...]:
        """The texts of a line."""
        texts = tuple(line.split("\t"))
        if len(texts) != self.data.classes.sentences or not all(map(str.strip, texts)):
            wanted = ("one text", "two texts with a tab between them")[self.data.classes.sentences - 1]
            raise UserError(f"{line!r}: expected {wanted}")
        return texts

    def _encoded(self, texts: Sequence[tuple[str, ...]]) -> Examples:
        return labelled.unlabelled(self.data.vocabulary, self.data.classes, texts)

    def _answers(self, params: Any, examples: Examples) -> list[Response]:
        """The likeliest class of every example, and its log probability."""
        found: dict[int, Response] = {}
        for rows, batch in self._in_order(examples):
            chances = np.asarray(jax.nn.log_softmax(self._logits(params, batch).astype(jnp.float32)))
            for row, each in zip(rows.tolist(), chances, strict=True):
                found[row] = Response(self.data.classes.names[int(each.argmax())], float(each.max()))
        return [found[row] for row in range(len(examples))]

    def _in_order(self, examples: Examples) -> list[tuple[np.ndarray, Batch]]:
        return evaluation_batches(examples, size=ROWS, buckets=self.config.batch.buckets)

    def _apply(self, params: Any, batch: Batch, **how: Any) -> Any:
        """The system on the texts of a batch."""
        texts = (jnp.asarray(batch[side]) for side in ("source", "target")[: self.data.classes.sentences])
        return self.system.apply({"params": params}, *texts, **how)

    def _sums(self, params: Any, batch: Batch, smoothing: Any) -> dict[str, jax.Array]:
        """The sums of `_summed`, and how often each class got each answer, "confusion" [C+1,C+1], the labels not known last."""
        logits, label = self._apply(params, batch), jnp.asarray(batch["label"])
        one_hot = functools.partial(jax.nn.one_hot, num_classes=len(self.data.classes.names) + 1, dtype=jnp.int32)
        return {**_summed(logits, batch, smoothing), "confusion": one_hot(label - 1).T @ one_hot(logits.argmax(axis=-1))}


def _summed(logits: Any, batch: Batch, smoothing: Any) -> dict[str, jax.Array]:
    """Sums over the rows of a batch, of logits [B,C]: "loss", "rows", "correct"; and "tokens", those that were read."""
    label = jnp.asarray(batch["label"])
    real, known = label > 0, (label > 0) & (label <= logits.shape[-1])
    losses = cross_entropy(logits.astype(jnp.float32), jnp.where(known, label - 1, 0), smoothing)
    read = sum((jnp.asarray(batch[side]) != PAD).sum() for side in ("source", "target") if side in batch)
    correct = (logits.argmax(axis=-1) == label - 1) & real
    return {"loss": jnp.where(known, losses, 0.0).sum(), "tokens": jnp.asarray(read), "rows": real.sum(), "correct": correct.sum()}


def _averaged(sums: list[dict[str, Any]]) -> dict[str, float]:
    """The scores of `evaluate`, from the sums of all batches."""
    loss, rows, correct = (sum(float(one[name]) for one in sums) for name in ("loss", "rows", "correct"))
    confusion = np.sum([one["confusion"] for one in sums], axis=0)
    return {"loss": loss / float(confusion[:-1].sum()), "accuracy": correct / rows, "macro_f1": macro_f1(confusion)}


def macro_f1(confusion: np.ndarray) -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN), from counts [C,C] of label (row) and answer (column).

    A class that is neither there nor answered has nothing to get wrong and is left out.
    """
    hits, either = 2.0 * np.diagonal(confusion), confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.mean(hits[either > 0] / either[either > 0])) if either.any() else 0.0
