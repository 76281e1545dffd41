"""Visual question answering: an image and a question to one of the answers of training.

    x      = (image / 255 - mean) / deviation        of each channel, over the training images
    loss   = mean over questions of -log softmax(system(x, question))_answer

Beside the scores stand the accuracies of guesses that see no image: "chance", "majority", and
"question_only", the most frequent answer of training to a question of the same words. A source with
groups or kinds of questions has the accuracy split up by them. Vocabulary, answers, mean and deviation
are computed once and kept with the run. `label` is k + 1 for answer k of C, 0 for a row of padding,
and C + 1 for an answer that only a split other than training has: whatever is answered there is wrong,
and the loss, which would be infinite, leaves it out.

Axis letters: B batch, H height, W width, C answers, S tokens of the question.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.data.asked import CHANCE, MAJORITY
from attnlab.data.batching import Batches, TrainBatches
from attnlab.data.columns import Declared, Examples, Shared
from attnlab.data.images.files import read_images
from attnlab.data.images.texts import QUESTION_ONLY, Question, QuestionData, together
from attnlab.data.learned import Shape
from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.rows import by_example
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.vision.protocol import VisualAnswerer
from attnlab.tasks import schemas
from attnlab.tasks.classification import Choosing, choice_rows, choice_sums, confusion
from attnlab.tasks.localisation import LOCALISATION, localised, of_questions
from attnlab.tasks.maps import Overlays, gates_of
from attnlab.tasks.models import check_statistics, refuse_terms, shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Params, Scores, Sides, Smoothing, Sums, Tree, Typed


class VisualExample(NamedTuple):
    """An image, uint8 [H,W,C], what it is called, and a question about it."""

    image: np.ndarray
    name: str
    question: str
    answer: str = ""

    def shown(self) -> str:
        """See `protocol.Example`."""
        answer = f"  ->  {self.answer}" if self.answer else ""
        return f"{self.name}: {self.question}{answer}"

    def record(self) -> dict[str, Any]:
        """See `protocol.Example`."""
        return {"source": f"{self.name}: {self.question}", "target": self.answer or None}


def build_system(
    config: schemas.VisualQuestions,
    vocabulary: int,
    answers: int,
    shape: Shape | None,
    special: Special = OURS,
) -> VisualAnswerer:
    """Builds the system of a config for a vocabulary of this size and this number of answers,
    checked for images of this shape (H, W, C) where that is known; raises `UserError` where it does
    not fit.

    Raises:
      UserError: another kind of system, a mechanism that cannot do what is asked of it, images too
        small, attention that samples or has a loss.
    """
    factory = system_factory(config, VisualAnswerer)
    system: VisualAnswerer = factory(
        vocabulary=vocabulary, classes=answers, pad_id=special.pad, bos_id=special.bos
    )
    if shape is not None:
        images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        ids = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
        refuse_terms(config, shapes_of(system, images, ids))
    subject = "norms of system.backbone have the statistics of"
    check_statistics(config, system, subject, ", or take another system.backbone.normalisation")
    return system


class VisualQuestions(Choosing[schemas.VisualQuestions, QuestionData, VisualAnswerer]):
    """Questions about images; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/visual_questions.py`.
      data: the images, the questions and their answers.
      system: the model.
    """

    systems: ClassVar[type[VisualAnswerer]] = VisualAnswerer
    schema = schemas.VisualQuestions
    loads = QuestionData
    columns: ClassVar[Mapping[str, Declared]] = {
        "image": Declared("uint8", ("H", "W", "C")),
        "question": Declared("int32", None),  # [B,T], or [B,Q,T] of Q about an image
        "label": Declared("int32", None),
    }
    inputs = ("image", "question")
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="nats per question"),
        "accuracy": share("questions", unit="share of answers right"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {"loss": ("loss", "known"), "accuracy": ("correct", "rows")}
    units: ClassVar[Mapping[str, str]] = {
        CHANCE: "accuracy of a guess among all answers",
        MAJORITY: "accuracy of the most frequent answer",
        QUESTION_ONLY: "accuracy of the most frequent answer to the same words",
        LOCALISATION: "share of attention on what is asked about",
        "confusion": "answer \\ said",
    }
    examples: ClassVar[str] = "questions"
    outputs: ClassVar[str] = "answers.tsv"
    stored_labels = {
        "image_places": ("image",),
        "question_tokens": ("question",),
        "joined_tokens": ("joined",),
    }

    def __init__(self, config: schemas.VisualQuestions, data: QuestionData) -> None:
        self.special = data.vocabulary.special
        answers, shape = len(data.learned.classes), data.learned.shape
        system = build_system(config, data.vocabulary.size, answers, shape, self.special)
        super().__init__(config, data, system)

    @functools.cached_property
    def grid(self) -> tuple[int, int]:
        """Height and width of the map of places, of a system that looks at some."""
        return self.system.grid(self.data.learned.shape)

    @classmethod
    def check(cls, config: schemas.VisualQuestions) -> None:
        """Build the system with a stand-in vocabulary, for the size of images where the source
        knows it, so that a bad config fails before data is read.
        """
        source = QuestionData.of_config(config.data)
        build_system(config, 8, 2, getattr(source, "shape", None))

    # --- training ---

    def init_inputs(self) -> list[jax.Array]:
        """See `Task.init_inputs`."""
        return [jnp.zeros((1, *self.data.learned.shape)), jnp.ones((1, 2), jnp.int32)]

    def normalised(self, images: Any) -> jax.Array:
        """Images [B,H,W,C] as the system reads them."""
        return self.data.learned.normalised(jnp.asarray(images))

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """Logits [B,C] of the B questions of a batch, whose images are normalised first."""
        images, questions = self.normalised(batch["image"]), jnp.asarray(batch["question"])
        questions = questions.reshape(-1, questions.shape[-1])
        return self.system.apply({"params": params}, images, questions, **options)

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Computes sums over the questions of a batch, from logits [B,C]: "loss", "known" (those
        with an answer of training), "rows", "correct"; and "tokens", those that are read.
        """
        sums = choice_sums(outputs, jnp.asarray(batch["label"]).reshape(-1), smoothing)
        read = (jnp.asarray(batch["question"]) != self.special.pad).sum()
        return {**sums, "tokens": read}

    def ordered(self, seed: int, shared: Mapping[str, Any]) -> Batches:
        """Returns the training batches of this process (`shared` has its index and the number of
        processes) in the order of the seed; with `batch.questions` Q above 1 a row is an image with
        Q questions. See `Task.ordered`.
        """
        train, count = self.of_split("train"), self.config.batch.questions
        things = self.data.things
        if count > 1:
            things = f"rows of {count} {things}"
            train = together(train, np.array([row.image for row in self.data.rows["train"]]), count)
        return TrainBatches(
            train, **self.config.batch.arguments, seed=seed, things=things, **shared
        )

    # --- scores ---

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: a mapping of scores beyond `evaluate` by name, numbers (accuracies of
        guesses) and tables ("confusion"; where the source has them "by_group", "by_kind" and
        "localisation"), and a list with a line "question TAB right answer TAB answer of the system"
        for each question. Accuracies are by group and by kind where the source has them, with that
        of "question_only" beside it; "localisation" of each map over the image (see
        `localisation`), by kind, where the source knows the places; "confusion", how often each
        answer (row) was said to be which (column).
        """
        rows, names = self.data.rows[split], self.data.learned.classes
        texts = [
            names[label] for label in self.outputs_of(params, self.of_split(split)).argmax(axis=1)
        ]
        scores: Scores = self.data.prior.scores(rows)
        for by in ("group", "kind"):
            if any(getattr(row, by) for row in rows):
                scores[f"by_{by}"] = self._accuracies_by(rows, texts, by)
        if self.system.needs and any(row.boxes for row in rows):
            shape = self.data.learned.shape
            looks = self._attention_of_questions(params, self.of_split(split))
            scores[LOCALISATION] = localised(looks, rows, self.grid, shape)
        pairs = ((row.answer, text) for row, text in zip(rows, texts, strict=True))
        scores["confusion"] = confusion(pairs, names)
        lines = (f"{row.text}\t{row.answer}\t{text}" for row, text in zip(rows, texts, strict=True))
        return scores, list(lines)

    def _attention_of_questions(self, params: Params, examples: Examples) -> dict[str, np.ndarray]:
        """Computes, for every map over the image by name, the attention [N,L] of each of N
        questions over the places of its image.
        """

        @self.jit
        def look(params: Params, batch: Batch) -> dict[str, jax.Array]:
            _, collected = self.apply(params, batch, mutable=[MAPS])
            return of_questions(self.system.maps(collected.get(MAPS, {})))

        batches = self.in_order(examples)
        looks: dict[str, np.ndarray] = by_example(look, params, batches)
        return {name: weights.astype(np.float64) for name, weights in looks.items()}

    def _accuracies_by(self, rows: Sequence[Question], texts: Sequence[str], by: str) -> Scores:
        """Returns a mapping of each "group" or "kind" (`by`) of questions to three numbers:
        "accuracy" of the answers `texts`, "question_only", that of guessing from the question only,
        and "questions", how many there are.
        """
        hits, guessed, totals = Counter[str](), Counter[str](), Counter[str]()
        for row, text in zip(rows, texts, strict=True):
            name = getattr(row, by)
            totals[name] += 1
            hits[name] += row.answer == text
            guessed[name] += row.answer == self.data.prior.guess(row.text)
        return {
            name: {
                "accuracy": hits[name] / count,
                QUESTION_ONLY: guessed[name] / count,
                "questions": count,
            }
            for name, count in sorted(totals.items())
        }

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every question: its loss (none for an answer not known), and whether it is
        right.
        """
        logits, classes = self.outputs_of(params, self.of_split(split)), self.data.labels(split)
        return Items.of(choice_rows(logits, classes, classes < logits.shape[1]))

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Reads lines of the name of an image file, a tab and a question as `Examples`; each file
        is read once and resized to the images of training; raises `UserError` for a line in another
        form.

        Raises:
          UserError: a line in another form, a file that is no image, or images of training that have
            neither 1 nor 3 channels.
        """
        pairs = [self._parse_line(line) for line in lines]
        row = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in pairs))}
        images = read_images(row, self.data.learned.shape)
        return Examples(
            image=Shared(images, np.array([row[name] for name, _ in pairs])),
            question=self.data.vocabulary.packed(text for _, text in pairs),
            # 1 says that a row is a question; nothing reads which answer it would be.
            label=np.ones(len(pairs), np.int32),
        )

    def _parse_line(self, line: str) -> tuple[str, str]:
        """The name of an image file and the question of a line; `UserError` for another form."""
        name, _, text = (part.strip() for part in line.partition("\t"))
        if not (name and text) or "\t" in text:
            raise UserError(f"{line!r}: expected the name of an image file, a tab and a question")
        return name, text

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """See `Task.longer_than`; no image is read."""
        packed = self.data.vocabulary.packed(self._parse_line(line)[1] for line in lines)
        return np.flatnonzero(packed.lengths > limit).tolist() if lines else []

    def map_examples(self, split: str, number: int) -> list[VisualExample]:
        """Returns the first `number` questions of a split as `VisualExample`s with their images and
        answers.
        """
        rows = self.data.rows[split][:number]
        images = self.of_split(split)["image"].block(np.arange(len(rows)), 1)
        return [
            VisualExample(image, f"{split} image {row.image + 1}", row.text, row.answer)
            for image, row in zip(images, rows, strict=True)
        ]

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[VisualExample]:
        """Returns `VisualExample`s without answers from pairs of the name of an image file and a
        question (or both in one text with a tab between, and None); reads and resizes the images.
        """
        lines = [first if second is None else f"{first}\t{second}" for first, second in typed]
        questions = [self._parse_line(line) for line in lines]
        images = read_images([name for name, _ in questions], self.data.learned.shape)
        return [
            VisualExample(image, name, text)
            for image, (name, text) in zip(images, questions, strict=True)
        ]

    def model_inputs(self, example: VisualExample) -> tuple[list[np.ndarray], Sides]:
        """Returns the normalised image and the question's ids as inputs, and labels of the sides of
        maps. These lie between the places of the image, row by row as the `grid` of its axis says,
        and the question, alone or "joined", the beginning of a text before it.
        """
        (ids,) = self.data.vocabulary.packed([example.question])
        joined = np.concatenate([[self.special.bos], ids])
        height, width = self.grid
        places = [f"{row},{column}" for row in range(height) for column in range(width)]
        axes = {
            "image": places,
            "question": self.data.vocabulary.tokens(ids),
            "joined": self.data.vocabulary.tokens(joined),
        }
        return [np.asarray(self.normalised(example.image[None])), ids[None]], axes

    def overlays(self, params: Params, example: Any) -> Overlays:
        """The gates of the backbone."""
        return gates_of(self.system, params, self.model_inputs(example)[0], example.image)
