"""The config of each kind of task as a whole, and the nodes that belong to losses.

A task says by its attribute `schema` which of the whole configs its own is: `Classification`,
`Translation`, `Pronunciation`, `LanguageModelling`, or a class derived from one of these. Importing
this module loads no jax.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from attnlab.config.schema import (
    AT_LEAST_ZERO,
    RATE,
    SEED,
    TABLES,
    Component,
    Node,
    is_node,
    setting,
    settings_of,
)
from attnlab.data import settings as data_settings
from attnlab.decoding.settings import Decoding
from attnlab.errors import UserError
from attnlab.training import settings as training_settings

POSITIONS = 2**28  # of a batch, rows x width: 1 GiB of token ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained(Node):
    """Weights of a model from elsewhere to begin with."""

    folder: str = setting(
        "a folder of transformers, with config.json and safetensors, or of a trained run; '':"
        " weights are drawn",
        "",
    )
    take: Literal["all", "matching"] = setting(
        "every weight must fit, or those are taken that fit by name and shape (heads of keys and"
        " values are averaged to fewer) and the others drawn; what happened to each is told",
        "all",
    )

    @property
    def path(self) -> Path | None:
        """The folder; None if weights are drawn."""
        return Path(self.folder).expanduser() if self.folder else None

    @property
    def run(self) -> Path | None:
        """The folder where it has a run of ours, not a model of `transformers`."""
        path = self.path
        return path if path and (path / "manifest.json").is_file() else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auxiliary(Node):
    """Weights of losses that attention hands out, by name; None leaves one out on purpose."""

    further = (float | None, AT_LEAST_ZERO)
    hops: float | None = setting("weight of keeping hops apart", 0.0, within=AT_LEAST_ZERO)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairAuxiliary(Auxiliary):
    """Weights of losses that attention hands out, by name; None leaves one out on purpose."""

    doubly_stochastic: float | None = setting(
        "weight of looking once at every source position over all target positions",
        0.0,
        within=AT_LEAST_ZERO,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reinforce(Node):
    """How choices that attention samples are trained; it acts where an alignment samples."""

    reward: Literal["to_go", "total"] = setting(
        "the log-likelihood of the words from the choice on, or of the whole sentence", "to_go"
    )
    weight: float = setting(
        "weight of the reward; 0 leaves the choices untrained", 1.0, within=AT_LEAST_ZERO
    )
    entropy: float = setting(
        "weight of the entropy of the choices, which keeps them open", 0.01, within=AT_LEAST_ZERO
    )
    decay: float = setting("decay of the baseline, the mean of rewards", 0.9, within=RATE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decided(Node):
    """How decisions that a system takes by chance are trained; it acts where a system decides."""

    reward: Literal["right", "log_likelihood"] = setting(
        "1 for an image whose answer is right, else 0; or the log-likelihood of its class", "right"
    )
    weight: float = setting(
        "weight of the reward; 0 leaves the decisions untrained", 1.0, within=AT_LEAST_ZERO
    )
    baseline: float = setting(
        "weight of the squared error of the reward that the system expects",
        1.0,
        within=AT_LEAST_ZERO,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective(Node):
    """What weighs how much in the loss of detection, and in the costs by which objects and answers
    are matched.
    """

    classes: float = setting("weight of the loss of classes", 1.0, within=AT_LEAST_ZERO)
    distance: float = setting("weight of the L1 distance of boxes", 5.0, within=AT_LEAST_ZERO)
    overlap: float = setting("weight of their generalised IoU", 2.0, within=AT_LEAST_ZERO)
    no_object: float = setting(
        "weight of answers without an object, beside 1 with one", 0.1, within=AT_LEAST_ZERO
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Node):
    """What every config has."""

    task: str = setting("what is learned; 'list tasks' shows all")
    seed: int = setting("seed of parameters, order of the data, dropout", 0, within=SEED)
    system: Component = setting("the model; 'list systems' shows all", table=TABLES["system"])
    data: Component = setting(
        "where examples come from; 'list data' shows all", table=TABLES["data"]
    )
    batch: data_settings.AnyBatch
    optimizer: Component = setting("'list optimizers' shows all", "adam", table=TABLES["optimizer"])
    schedule: Component = setting(
        "of the learning rate; 'list schedules' shows all", table=TABLES["schedule"]
    )
    pretrained: Pretrained
    lora: training_settings.Lora
    training: training_settings.Training
    checkpoint: training_settings.Checkpoint
    parallel: training_settings.Parallel

    def check(self) -> None:
        """Raises `UserError` if a batch has more positions, rows x width, than `POSITIONS`."""
        if (tokens := self.batch.positions(self.training.accumulate)) > POSITIONS:
            raise UserError(
                f"config.batch.{self.batch.described()} are {tokens:,} positions in a batch;"
                f" expected at most {POSITIONS:,}"
            )

    @property
    def longest_text(self) -> int | None:
        """The tokens of the longest text of training, `batch.max_length`; None without texts."""
        return getattr(self.batch, "max_length", None)

    @property
    def longest(self) -> int | None:
        """The tokens of the longest sequence that the system meets; None where there is no such."""
        return self.longest_text

    @property
    def loss_weights(self) -> dict[str, float | None]:
        """The weights of losses that attention hands out, by name; {} for tasks without any."""
        weights = getattr(self, "auxiliary", None)
        return {} if weights is None else dict(weights.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """What every config of a task of texts has."""

    vocabulary: data_settings.Vocabulary
    batch: data_settings.Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(TextSettings):
    """Texts, or pairs of them, to answers."""

    batch: data_settings.Buckets
    auxiliary: Auxiliary
    reinforce: Reinforce


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingSettings(TextSettings):
    """What every config of a task that writes texts has."""

    training: training_settings.TokenTraining
    auxiliary: PairAuxiliary
    reinforce: Reinforce
    decoding: Decoding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(WritingSettings):
    """Texts to texts."""

    vocabulary: data_settings.PairVocabulary
    batch: data_settings.Buckets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pronunciation(Translation):
    """Texts to texts that are cut into other pieces."""

    vocabulary: data_settings.TwoVocabularies


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelling(TextSettings):
    """Texts, token by token."""

    batch: data_settings.Lanes
    auxiliary: Auxiliary
    training: training_settings.TextTraining
    decoding: Decoding

    @property
    def longest(self) -> int | None:
        """None for what is read in pieces and remembered."""
        in_pieces = self.batch.texts in ("joined", "in_turn")
        forgets = not in_pieces or self.system.get("carry") == "state"
        return self.batch.max_length if forgets else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelling(TextSettings):
    """Texts, with some of their tokens hidden."""

    batch: data_settings.Rows
    masking: data_settings.Masking
    training: training_settings.TokenTraining


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(TextSettings):
    """Sentences, with a tag for each word."""

    batch: data_settings.Buckets
    training: training_settings.TokenTraining


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption(WritingSettings):
    """Texts, with spans of their tokens taken out."""

    corruption: data_settings.Corruption


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnswering(TextSettings):
    """Questions, whose answers are stretches of a passage."""

    batch: data_settings.UncutBuckets
    passages: data_settings.Passages


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostics(TextSettings):
    """Texts that ask for answers at some of their words."""

    batch: data_settings.UncutBuckets
    training: training_settings.TokenTraining


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassification(Settings):
    """Images to classes."""

    augmentation: data_settings.Augmentation
    decisions: Decided


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segmentation(Settings):
    """Images to the class of every pixel."""

    augmentation: data_settings.Augmentation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detection(Settings):
    """Images to all of their objects."""

    objective: Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class Captioning(WritingSettings):
    """Images to texts."""

    augmentation: data_settings.Augmentation
    batch: data_settings.CaptionBuckets


@dataclasses.dataclass(frozen=True, kw_only=True)
class VisualQuestions(TextSettings):
    """Images and questions to answers."""

    batch: data_settings.QuestionBuckets


WHOLE = tuple(
    kind
    for kind in list(vars().values())
    if is_node(kind) and issubclass(kind, Settings) and not kind.__name__.endswith("Settings")
)
"""The configs of our tasks as a whole."""


def known_defaults() -> dict[str, Any]:
    """Returns the default of every setting of this package's config nodes by its full name (node
    and setting with a dot), without components and settings that must be set; imports no table.
    """
    defaults: dict[str, Any] = {}
    for whole in WHOLE:
        for key, field in settings_of(whole).items():
            below = settings_of(field.hint) if is_node(field.hint) else {}
            named = {f"{key}.{name}": inner.default for name, inner in below.items()}
            defaults |= named or {key: field.default}
    components = {key for key in defaults if key in TABLES}
    return {
        name: value
        for name, value in defaults.items()
        if value is not dataclasses.MISSING and name not in components
    }
