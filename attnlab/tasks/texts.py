"""The base of tasks that answer a text, or a pair of texts: all that `Task` asks but what an answer
is, what it costs and how it scores.

`attnlab.tasks.classification` is one such task. A task of one's own whose answers are numbers says
what a label means (`answer`), what is added up over a batch (`sums`), which scores follow
(`averaged`) and what is written (`written`); `docs/examples/regression.py` is one.

Axis letters: B batch, S and T lengths of the first and the second text, C numbers that the system
gives for each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.config import nodes
from attnlab.data import labelled
from attnlab.data.batching import Batch, Examples, TrainBatches, evaluation_batches
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import PAD, AttentionMap, Classifier
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.models import shapes_of, system_factory
from attnlab.tasks.protocol import Example, Response

ROWS = 64  # of a batch in evaluation


def factory_of(config: ConfigDict, sentences: int) -> Any:
    """The system of a config, its fields bound, once it is known to read so many texts.

    Raises:
      UserError: another kind of system, one that cannot read so many texts, or a mechanism that
        cannot do what is asked of it.
    """
    factory = system_factory(config, Classifier)
    if sentences not in factory.func.texts:
        wanted, can = (
            ("a text", "pairs of texts")[sentences - 1],
            " or ".join(map(str, factory.func.texts)),
        )
        raise UserError(
            f"system={config.system.name} reads {can} text(s) a row, config.data={config.data.name}"
            f" has {wanted}; choose from: {', '.join(_reading(sentences))}"
        )
    return factory


def sentences_of(config: ConfigDict) -> int:
    """How many texts an example has: what the source says, else the least that the system can
    read.
    """
    said = getattr(labelled.source(config.data), "sentences", None)
    return said if said in (1, 2) else int(system_factory(config, Classifier).func.texts[0])


def handed_out(system: Classifier, sentences: int) -> Any:
    """The shapes of what a pass over as many texts leaves in the collections "losses" and
    "samples".
    """
    return shapes_of(system, *[jax.ShapeDtypeStruct((1, 2), jnp.int32)] * sentences)


def _reading(sentences: int) -> list[str]:
    """The registered classifiers that can read so many texts."""
    found = ((name, SYSTEMS.resolve(name)) for name in SYSTEMS.names())
    return [name for name, one in found if issubclass(one, Classifier) and sentences in one.texts]


class TextTask:
    """Base of the tasks of labelled texts, see `attnlab.tasks.protocol.Task`; one object for a run.

    Attributes:
      numbers: C of the system that `build` makes.
      config: of the run.
      data: the texts, their ids and their labels.
      system: the model, made by `build` where none is handed over.
    """

    systems: ClassVar[type[Classifier]] = Classifier
    schema: ClassVar[type[nodes.Run]] = nodes.Classification
    reads: ClassVar[str] = "labelled"
    measures: ClassVar[Mapping[str, Measure | str]] = {"loss": Measure("min")}
    evaluated: ClassVar[Sequence[str]] = ("loss",)
    units: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[str] = "examples"
    outputs: ClassVar[str] = "predictions.tsv"
    numbers: ClassVar[int] = 1

    carried: Callable[[], Any] = staticmethod(lambda: None)
    follow: Callable[[Any, Any], Any] = staticmethod(lambda carried, tracked: None)

    def __init__(
        self, config: ConfigDict, data: labelled.LabelledTexts, system: Classifier | None = None
    ) -> None:
        self.config, self.data = config, data
        self.system: Classifier = (
            self.build(config, data.vocabulary.size, data.classes.sentences)
            if system is None
            else system
        )
        score = functools.partial(self.sums, smoothing=0.0)
        self._score, self._score_all = jax.jit(score), jax.jit(jax.vmap(score, in_axes=(0, None)))
        self._outputs = jax.jit(lambda params, batch: self.apply(params, batch).astype(jnp.float32))

    # --- what a task of one's own says ---

    @staticmethod
    def answer(label: str) -> Any:
        """A label as numbers, a float32 number or array; all labels have one shape.

        Raises:
          UserError: a label that means none; it is told where it stands.
        """
        raise NotImplementedError

    def sums(
        self, params: Any, batch: Batch, smoothing: Any = 0.0, rngs: Any = None
    ) -> dict[str, jax.Array]:
        """Sums over the real rows of a batch (`real`), "loss" among them; `batch["label"]` has the
        answers [B,...], 0 where no row is.
        """
        raise NotImplementedError

    def averaged(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """The scores `evaluated` of a split, "loss" first, from the sums over all of its rows;
        "rows" is among them.
        """
        return {"loss": float(totals["loss"]) / float(totals["rows"])}

    def written(self, outputs: np.ndarray) -> Response:
        """What is answered to a text, given the system's outputs [C]."""
        raise NotImplementedError

    # --- from a config to a task ---

    @classmethod
    def build(cls, config: ConfigDict, vocabulary: int, sentences: int) -> Classifier:
        """The system of a config, with `numbers` outputs.

        Raises:
          UserError: what `factory_of` raises; attention that samples or has a loss, which this loss
            does not add; a weight in `auxiliary`.
        """
        system: Classifier = factory_of(config, sentences)(
            vocabulary=vocabulary, classes=cls.numbers
        )
        made = handed_out(system, sentences)
        for collection, what in (
            (SAMPLES, "samples what it looks at"),
            (LOSSES, "hands out a loss of its own"),
        ):
            if made.get(collection):
                raise UserError(
                    f"system={config.system.name}: its attention {what}, which task={config.task}"
                    " does not train"
                )
        Auxiliary(
            type(system), made, config, 1
        )  # as nothing is handed out, it refuses every weight of the node `auxiliary`
        return system

    @classmethod
    def check(cls, config: ConfigDict) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        read.
        """
        cls.build(config, 8, sentences_of(config))

    @classmethod
    def load(cls, config: ConfigDict, workdir: Path | None, splits: Sequence[str]) -> Self:
        """The task with its data read; the vocabulary comes from `workdir`, or without one from the
        training split.

        Raises:
          UserError: bad config, unreadable data, a label that `answer` refuses, a damaged or lost
            vocabulary.
        """
        cls.check_saved(workdir)
        return cls(
            config, labelled.load(config.data, config.vocabulary, workdir, splits, cls.answer)
        )

    @classmethod
    def check_saved(cls, workdir: Path | None) -> None:
        """`UserError` for a run that has lost what `save` kept: learned from whatever data is at
        hand, the ids would mean others.
        """
        if workdir is not None and not cls.saved(workdir):
            raise UserError(
                f"{workdir} has lost its vocabulary or labels; the 'train' command that made it"
                " learns them again"
            )

    # --- what the training loop asks for ---

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters."""
        return self.system.init(key, *[jnp.ones((1, 2), jnp.int32)] * self.data.classes.sentences)[
            "params"
        ]

    def loss(
        self, params: Any, batch: Batch, key: jax.Array, carried: Any = None, smoothing: Any = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """The "loss" of `sums` with dropout, and `counted` beside it; `smoothing` replaces the
        configured rate.

        The other sums make scores of a split (`averaged`); in the record of a step they would pass
        for scores.
        """
        smoothing = self.config.training.label_smoothing if smoothing is None else smoothing
        return self.sums(params, batch, smoothing, self.rngs(key))["loss"], self.counted(batch)

    def weight(self, batch: Batch) -> jax.Array:
        """The number of examples."""
        return self.real(batch).sum().astype(jnp.float32)

    def batches(self, multiple: int, seed: int | None = None) -> TrainBatches:
        """The training batches of this process, in the order of the configured seed or another
        one.
        """
        shared = {"process_index": jax.process_index(), "process_count": jax.process_count()}
        seed = self.config.seed if seed is None else seed
        return TrainBatches(
            self.data.examples["train"], **self.config.batch, seed=seed, multiple=multiple, **shared
        )

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """The scores `evaluated`; nothing is dropped or smoothed."""
        return self.averaged(
            self._totals(
                [jax.device_get(self._score(params, batch)) for _, batch in self._of(split)], split
            )
        )

    def evaluate_stacked(self, params: Any, split: str) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""
        sums = [jax.device_get(self._score_all(params, batch)) for _, batch in self._of(split)]
        several = range(len(sums[0]["loss"]))
        return [
            self.averaged(
                self._totals([jax.tree.map(lambda x, i=i: x[i], one) for one in sums], split)
            )
            for i in several
        ]

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back: vocabulary and labels."""
        labelled.save(self.data, workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""
        return labelled.saved(workdir)

    def notes(self, batches: TrainBatches) -> list[str]:
        """What a person should know about the data before training: sizes, unknown tokens, labels,
        texts left out.
        """
        lines = [f"{split}: {self.data.about(split)}" for split in self.data.rows]
        if batches.left_out:
            limit = self.config.batch.max_length
            lines.append(
                f"train: {batches.left_out:,} examples longer than batch.max_length={limit} tokens"
                " are left out, none is cut"
            )
        return lines

    # --- text ---

    def size(self, split: str) -> int:
        """The number of examples."""
        return len(self.data.rows[split])

    def counts(self, split: str) -> Mapping[str, int]:
        """Nothing beside the examples."""
        return {}

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items | None:
        """A row for every example, of each measure that is the mean over examples of what `sums`
        has under its name; else None.

        A task with other scores that can be drawn says what they are made of; `outputs_of` gives
        the numbers that it answers with.
        """

        def single(row: Batch) -> dict[str, jax.Array]:
            return self.sums(params, {name: one[None] for name, one in row.items()}, 0.0)

        each = jax.jit(jax.vmap(single))
        found = [(rows >= 0, jax.device_get(each(batch))) for rows, batch in self._of(split)]
        order = np.argsort(np.concatenate([rows[rows >= 0] for rows, _ in self._of(split)]))
        sums = {
            name: np.concatenate([one[name][real] for real, one in found]).astype(np.float64)[order]
            for name in found[0][1]
        }
        scores = self.averaged(
            self._totals([{name: one.sum(axis=0) for name, one in sums.items()}], split)
        )
        means = {
            name: one
            for name, one in sums.items()
            if name in scores and one.ndim == 1 and math.isclose(scores[name], one.mean())
        }
        return (
            Items.of(
                {
                    name: ("ratio", np.stack([one, np.ones_like(one)], axis=1))
                    for name, one in means.items()
                }
            )
            if means
            else None
        )

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """No scores beyond `evaluate`, and "label TAB answer" of every example."""
        answers = self.answers(params, self.data.examples[split])
        return {}, [
            f"{label}\t{one.text}"
            for (_, label), one in zip(self.data.rows[split], answers, strict=True)
        ]

    def respond(self, params: Any, lines: Sequence[str]) -> list[list[Response]]:
        """The answer to each line; a line has one text, or two with a tab between them."""
        return [[best] for best in self.answers(params, self.encoded(list(map(self.texts, lines))))]

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """Which of the lines have a text of more than `limit` tokens, EOS counted."""
        return (
            np.flatnonzero(self.encoded(list(map(self.texts, lines))).lengths > limit).tolist()
            if lines
            else []
        )

    def pictured(self, split: str, number: int) -> list[Example]:
        """The first examples of a split."""
        return [
            (texts[0], texts[1] if len(texts) > 1 else None)
            for texts, _ in self.data.rows[split][:number]
        ]

    def completed(self, params: Any, examples: Sequence[Example]) -> list[Example]:
        """The examples, a pair on one line split at its tab; raises `UserError` where a text is
        missing or too many.
        """
        lines = [source if target is None else f"{source}\t{target}" for source, target in examples]
        return [(first, second[0] if second else None) for first, *second in map(self.texts, lines)]

    def maps(
        self, params: Any, source: str, target: str | None
    ) -> tuple[dict[str, AttentionMap], dict[str, list[str]]]:
        """Every attention map of one example, and the tokens of the sequences that the maps are
        between.

        Returns:
          Maps by name, [H,Tq,Tk], and tokens by sequence: "source", of a pair "target_in", and
          "hops", which are numbered.
        """
        example = self.encoded([(source,) if target is None else (source, target)])
        ids = {
            name: side[0]
            for name, side in zip(("source", "target_in"), example.packed, strict=False)
        }
        _, collected = self.system.apply(
            {"params": params}, *(jnp.asarray(one)[None] for one in ids.values()), mutable=[MAPS]
        )
        found = jax.device_get(self.system.maps(collected.get(MAPS, {})))  # type: ignore[union-attr]  # none without attention
        names = {name: self.data.vocabulary.tokens(one) for name, one in ids.items()}
        hops = max(
            (one.weights.shape[2] for one in found.values() if one.query == "hops"), default=0
        )
        names["hops"] = [f"hop {number}" for number in range(1, hops + 1)]
        return {
            name: one.replace(weights=np.asarray(one.weights[0])) for name, one in found.items()
        }, names

    # --- what these are made of, for a task of one's own too ---

    def apply(self, params: Any, batch: Batch, **how: Any) -> Any:
        """The outputs [B,C] of the system for the texts of a batch; `how` goes to
        `linen.Module.apply`.
        """
        texts = (
            jnp.asarray(batch[side]) for side in ("source", "target")[: self.data.classes.sentences]
        )
        return self.system.apply({"params": params}, *texts, **how)

    def real(self, batch: Batch) -> jax.Array:
        """[B] bool, False for rows of padding; every text has its end, so its first id is none."""
        return jnp.asarray(batch["source"])[:, 0] != PAD

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """ "tokens", those that are read, and "rows", those that are real."""
        read = sum(
            (jnp.asarray(batch[side]) != PAD).sum()
            for side in ("source", "target")
            if side in batch
        )
        return {"tokens": jnp.asarray(read), "rows": self.real(batch).sum()}

    @staticmethod
    def rngs(key: jax.Array) -> dict[str, jax.Array]:
        """The random streams of a step."""
        return {"dropout": key, "sample": jax.random.fold_in(key, 1)}

    def texts(self, line: str) -> tuple[str, ...]:
        """The texts of a line; `UserError` for too few, too many, or one of nothing but blanks."""
        texts = tuple(line.split("\t"))
        if len(texts) != self.data.classes.sentences or not all(map(str.strip, texts)):
            wanted = ("one text", "two texts with a tab between them")[
                self.data.classes.sentences - 1
            ]
            raise UserError(f"{line!r}: expected {wanted}")
        return texts

    def encoded(self, texts: Sequence[tuple[str, ...]]) -> Examples:
        """The ids of texts that have no label."""
        return labelled.unlabelled(self.data.vocabulary, self.data.classes, texts)

    def answers(self, params: Any, examples: Examples) -> list[Response]:
        """What is answered to every example."""
        return list(map(self.written, self.outputs_of(params, examples))) if len(examples) else []

    def outputs_of(self, params: Any, examples: Examples) -> np.ndarray:
        """The system's outputs [N,C] for N examples, float32."""
        found = [
            (rows, np.asarray(self._outputs(params, batch)))
            for rows, batch in self._in_order(examples)
        ]
        outputs = np.zeros((len(examples), *found[0][1].shape[1:]), np.float32)
        for rows, each in found:
            outputs[rows[rows >= 0]] = each[rows >= 0]
        return outputs

    def _in_order(self, examples: Examples) -> list[tuple[np.ndarray, Batch]]:
        return evaluation_batches(examples, size=ROWS, buckets=self.config.batch.buckets)

    def _of(self, split: str) -> list[tuple[np.ndarray, Batch]]:
        return self._in_order(self.data.examples[split])

    def _totals(self, sums: Sequence[Mapping[str, Any]], split: str) -> dict[str, Any]:
        """Added up over batches, in float64; and "rows"."""
        added = {name: sum(np.asarray(one[name], np.float64) for one in sums) for name in sums[0]}
        return {"rows": self.size(split), **added}
