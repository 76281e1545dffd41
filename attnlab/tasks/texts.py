"""The base of tasks that answer a text, or a pair of texts: all that a task asks but what an answer
is, what it costs and how it scores.

`attnlab.tasks.classification` is one such task. A task of one's own whose answers are numbers says
what a label means (`answer`), what is added up over a batch (`sums`), which scores follow
(`averaged`) and what is written (`written`); `docs/examples/regression.py` is one.

Axis letters: B batch, S and T lengths of the first and the second text, C numbers that the system
gives for each.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import labelled
from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.rows import sums_of_rows
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.base import Task
from attnlab.tasks.models import longest_row, refuse_terms, shapes_of, system_factory
from attnlab.tasks.protocol import (
    Loss,
    Numbers,
    Response,
    Responses,
    Rngs,
    Scores,
    Sides,
    Smoothing,
    TextExample,
    Typed,
)
from attnlab.tasks.tokens import TOKENS_STORED
from attnlab.training.step import Batch, Params, Sums, Tree

SIDES = ("source", "target")


def factory_of(config: schemas.Classification, sentences: int) -> Any:
    """Returns the factory of the classifier of a config, its fields bound; raises `UserError` if it
    cannot read this number of texts a row.

    Raises:
      UserError: another kind of system, one that cannot read so many texts, or a mechanism that
        cannot do what is asked of it.
    """
    factory = system_factory(config, Classifier)
    if sentences not in factory.func.texts:
        expected = ("a text", "pairs of texts")[sentences - 1]
        can = " or ".join(map(str, factory.func.texts))
        raise UserError(
            f"system={config.system.name} reads {can} text(s) a row, config.data={config.data.name}"
            f" has {expected}; choose from: {', '.join(_classifiers_for(sentences))}"
        )
    return factory


def sentences_of(config: schemas.Classification) -> int:
    """How many texts an example has: what the source says, else the least that the system can
    read.
    """
    count = getattr(labelled.LabelledTexts.of_config(config.data), "sentences", None)
    return count if count in (1, 2) else int(system_factory(config, Classifier).func.texts[0])


def traced_classifier(
    config: schemas.Classification,
    vocabulary: int,
    outputs: int,
    sentences: int,
    special: Special = OURS,
) -> tuple[Classifier, dict[str, Tree]]:
    """Builds the classifier of a config for a vocabulary of this size, with so many `outputs`, and
    returns it with what `shapes_of` gives for `sentences` texts of the greatest length.

    Raises:
      UserError: what `factory_of` raises; the system cannot read rows of `batch.max_length`.
    """
    system: Classifier = factory_of(config, sentences)(
        vocabulary=vocabulary, classes=outputs, pad_id=special.pad, bos_id=special.bos
    )
    return system, shapes_of(system, *[longest_row(config)] * sentences)


def _classifiers_for(sentences: int) -> list[str]:
    """The registered classifiers that can read so many texts."""
    kinds = ((name, SYSTEMS.resolve(name)) for name in SYSTEMS.names())
    return [name for name, cls in kinds if issubclass(cls, Classifier) and sentences in cls.texts]


class TextTask(Task[schemas.Classification, labelled.LabelledTexts, Classifier]):
    """Base of the tasks of labelled texts, see `attnlab.tasks.base.Task`; one object for a run.

    Attributes:
      numbers: C of the system that `build` makes.
      config: of the run.
      data: the texts, their ids and their labels.
      system: the model, made by `build` where none is handed over.
    """

    systems: ClassVar[type[Classifier]] = Classifier
    schema = schemas.Classification
    loads = labelled.LabelledTexts
    columns: ClassVar[Mapping[str, Declared]] = {
        "source": IDS,
        "target": Declared("int32", ("T",), optional=True),
        "label": Declared("float32", None),
    }
    measures: Mapping[str, Measure | str] = {"loss": Measure("min")}
    evaluated: ClassVar[Sequence[str]] = ("loss",)
    ratios = {"loss": ("loss", "rows")}
    outputs: ClassVar[str] = "predictions.tsv"
    stored_labels = TOKENS_STORED
    numbers: ClassVar[int] = 1

    def __init__(
        self,
        config: schemas.Classification,
        data: labelled.LabelledTexts,
        system: Classifier | None = None,
        auxiliary: Auxiliary | None = None,
    ) -> None:
        """Stores the task's data and its system, which `build` makes if none is given; it reads one
        text or two, as the data has.
        """
        self.inputs = SIDES[: data.learned.sentences]
        self.special = data.vocabulary.special
        if system is None:
            system = self.build(config, data.vocabulary.size, data.learned.sentences, self.special)
        super().__init__(config, data, system, auxiliary)

    # --- what a task of one's own says ---

    @staticmethod
    def answer(label: str) -> Any:
        """A label as numbers, a float32 number or array; all labels have one shape.

        Raises:
          UserError: a label that means none; it is told where it stands.
        """
        raise NotImplementedError

    def sums(
        self, params: Params, batch: Batch, smoothing: Smoothing = 0.0, rngs: Rngs | None = None
    ) -> Sums:
        """Sums over the real rows of a batch (`real`), "loss" among them; `batch["label"]` has the
        answers [B,...], 0 where no row is.
        """
        raise NotImplementedError

    def written(self, outputs: np.ndarray) -> Response:
        """What is answered to a text, given the system's outputs [C]."""
        raise NotImplementedError

    # --- from a config to a task ---

    @classmethod
    def build(
        cls,
        config: schemas.Classification,
        vocabulary: int,
        sentences: int,
        special: Special = OURS,
    ) -> Classifier:
        """Builds the classifier of a config for a vocabulary of this size and `sentences` texts a
        row, with `cls.numbers` outputs; raises `UserError` for a config that does not fit, such as
        attention that needs terms of the loss that this task does not add.

        Raises:
          UserError: what `factory_of` raises; attention that samples or has a loss, which this loss
            does not add; a weight in `auxiliary`.
        """
        system, shapes = traced_classifier(config, vocabulary, cls.numbers, sentences, special)
        refuse_terms(config, shapes)
        # as nothing is handed out, it refuses every weight of the node `auxiliary`
        Auxiliary(type(system), shapes, config, 1)
        return system

    @classmethod
    def check(cls, config: schemas.Classification) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        read.
        """
        cls.build(config, 8, sentences_of(config))

    @classmethod
    def data_options(cls, config: schemas.Classification) -> dict[str, Any]:
        """See `Task.data_options`; labels mean what `answer` says."""
        return {"answer": cls.answer}

    # --- training ---

    def loss(
        self,
        params: Params,
        batch: Batch,
        key: jax.Array,
        *,
        carried: Tree = None,
        numbers: Numbers | None = None,
    ) -> Loss:
        """The "loss" of `sums` with dropout, and `counted` beside it; `numbers` replace those of the
        config.

        The other sums make scores of a split (`averaged`); in the record of a step they would pass
        for scores.
        """
        sums = self.sums(params, batch, self.smoothing(numbers), self.rngs(key))
        return sums["loss"], self.counted(batch)

    def weight(self, batch: Batch) -> jax.Array:
        """The number of examples."""
        return self.real(batch).sum().astype(jnp.float32)

    def real(self, batch: Batch) -> jax.Array:
        """[B] bool, False for rows of padding; every text has its end, so its first id is none."""
        return jnp.asarray(batch["source"])[:, 0] != self.special.pad

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """ "tokens", those that are read, and "rows", those that are real."""
        read = sum((jnp.asarray(batch[side]) != self.special.pad).sum() for side in self.inputs)
        return {"tokens": jnp.asarray(read), "rows": self.real(batch).sum()}

    # --- scores ---

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items | None:
        """Returns `Items` with a row for every example of a split, from which those scores are
        resampled that are the mean of a sum of the same name, or None if there are none.

        A task with other scores that can be drawn says what they are made of; `outputs_of` gives
        the numbers that it answers with.
        """

        columns = sums_of_rows(self.sums, params, self.in_order(self.of_split(split)))
        sums = {name: values.astype(np.float64) for name, values in columns.items()}
        sums.setdefault("rows", np.ones(self.size(split)))
        scores = self.averaged(
            self.totals([{name: values.sum(axis=0) for name, values in sums.items()}], split)
        )
        rows = {
            name: ("ratio", np.stack([values, np.ones_like(values)], axis=1))
            for name, values in sums.items()
            if name in scores and values.ndim == 1 and math.isclose(scores[name], values.mean())
        }
        return Items.of(rows) if rows else None

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: {}, for no scores beyond `evaluate`, and a list with a line "label
        TAB answer" for every example.
        """
        answers = self.answered(params, self.of_split(split))
        return {}, [
            f"{label}\t{answer.text}"
            for (_, label), answer in zip(self.data.rows[split], answers, strict=True)
        ]

    def answered(self, params: Params, examples: Examples) -> list[Response]:
        """What is answered to every example."""
        return list(map(self.written, self.outputs_of(params, examples))) if len(examples) else []

    # --- answers and maps ---

    def texts(self, line: str) -> tuple[str, ...]:
        """Splits a line at its tabs into the texts of an example; raises `UserError` for too few,
        too many, or a blank one.
        """
        texts = tuple(line.split("\t"))
        if len(texts) != self.data.learned.sentences or not all(map(str.strip, texts)):
            forms = "one text", "two texts with a tab between them"
            raise UserError(f"{line!r}: expected {forms[self.data.learned.sentences - 1]}")
        return texts

    def encoded(self, texts: Sequence[tuple[str, ...]]) -> Examples:
        """The ids of texts that have no label."""
        return labelled.encode_texts(self.data.learned, texts)

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """A line has one text, or two with a tab between them."""
        return self.encoded(list(map(self.texts, lines)))

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """One answer to each line."""
        return [[best] for best in self.answered(params, examples)]

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """The first examples of a split."""
        return [TextExample(*texts) for texts, _ in self.data.rows[split][:number]]

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[TextExample]:
        """The examples, a pair on one line split at its tab; raises `UserError` where a text is
        missing or too many.
        """
        lines = [source if target is None else f"{source}\t{target}" for source, target in typed]
        return [TextExample(*self.texts(line)) for line in lines]

    def model_inputs(self, example: TextExample) -> tuple[list[np.ndarray], Sides]:
        """Returns the ids [1,T] of the one or two texts of an example as inputs, and by side the
        tokens as labels: "source", of pairs "target_in", and "joined", all texts in one row behind
        BOS.
        """
        texts = tuple(text for text in example if text is not None)
        read = [ids.block(np.arange(1), len(ids[0])) for ids in self.encoded([texts]).sequences]
        row = np.concatenate([[self.special.bos], *(ids[0] for ids in read)])
        sides = {"source": read[0][0], "joined": row}
        if len(read) == 2:
            sides["target_in"] = read[1][0]
        tokens = self.data.vocabulary.tokens
        return read, {name: tokens(ids) for name, ids in sides.items()}
