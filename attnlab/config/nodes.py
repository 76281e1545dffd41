"""The nodes of the configs of this package, and the config of each kind of task as a whole.

A task says by its attribute `schema` which of the whole configs its own is: `Classification`,
`Translation`, `Pronunciation`, `LanguageModelling`, or a class derived from one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from attnlab.config.decoding import Decoding
from attnlab.config.schema import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    COUNT,
    RATE,
    SEED,
    SHARE,
    Node,
    Range,
    imported,
    is_node,
    setting,
    whole,
)
from attnlab.config.starting import Lora, Pretrained
from attnlab.errors import UserError

STEPS = 10**9
LONGEST = 2**20  # tokens of a sequence, and the size of any part of a system

TABLES: Mapping[str, str] = {
    "system": "attnlab.systems:SYSTEMS",
    "data": "attnlab.data:SOURCES",
    "optimizer": "attnlab.training.optimizers:OPTIMIZERS",
    "schedule": "attnlab.training.optimizers:SCHEDULES",
}
"""Which table the components at the top of a config come from; below them, a component's `parts` say it."""

LIMITS: Mapping[str, Range] = {
    "schedule.peak": ABOVE_ZERO,
    "schedule.warmup": whole(0, STEPS),
    "schedule.hold": whole(0, STEPS),
    "schedule.every": whole(1, STEPS),
}
"""Ranges of fields that components have, by full name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary(Node):
    """What texts are cut into."""

    kind: Literal["bpe", "word", "spaced", "char", "tokenizer"] = setting(
        "the pieces: learned by byte-pair encoding, words and signs, what stands between spaces,"
        " characters, or those of the tokenizer in `file`",
        "bpe",
    )
    file: str = setting(
        "of kind 'tokenizer': a tokenizer.json, or the folder of a pretrained model that has one",
        "",
    )
    size: int = setting("most pieces, specials included", 8000, within=whole(1, 10**7))
    min_frequency: int = setting("pieces seen less often are left out", 2, within=COUNT)
    lowercase: bool = setting("all texts are lower-cased", False)
    reserved: int = setting(
        "ids that are no text, beyond `size`, for tasks that need some: the first is the mask of"
        " masked language modelling",
        0,
        within=whole(0, 2**16),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairVocabulary(Vocabulary):
    """What the texts of both sides are cut into."""

    shared: bool = setting("one vocabulary for both sides, or one of this size for each", True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoVocabularies(PairVocabulary):
    """What the texts of both sides are cut into, each in its own way."""

    target_kind: Literal["", "bpe", "word", "spaced", "char"] = setting(
        "the pieces of the target; '' for those of the source", ""
    )

    def check(self) -> None:
        """One vocabulary has one kind of pieces."""
        if self.shared and self.target_kind not in ("", self.kind):
            raise UserError(
                f"config.vocabulary.kind={self.kind!r} and target_kind={self.target_kind!r}: a"
                " shared vocabulary has one kind; set vocabulary.shared=false"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyBatch(Node):
    """What goes into an update."""

    size: int = setting("rows of a batch, or tokens", 64, within=whole(1, 2**24))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch(AnyBatch):
    """What goes into an update, of tasks of texts."""

    max_length: int = setting("tokens of the longest text, or of a piece", within=whole(1, LONGEST))


LONGER = (
    "what becomes of rows longer than max_length, in every split: 'cut'; 'leave_out'; 'windows': a"
    " text is several rows; 'refuse'; 'score': left out of training, scored whole"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buckets(Batch):
    """Batches of texts of about one length."""

    longer: Literal["score", "cut", "leave_out", "refuse"] = setting(LONGER, "score")
    unit: Literal["sentences", "tokens"] = setting("what the size counts", "sentences")
    buckets: tuple[int, ...] = setting("the widths of batches in tokens, increasing")

    def check(self) -> None:
        """The bucket lengths are whole numbers, at least 1, each longer than the one before."""
        counts = self.buckets and all(
            type(length) is int and 1 <= length <= LONGEST for length in self.buckets
        )
        if not counts or list(self.buckets) != sorted(set(self.buckets)):
            raise UserError(
                f"config.batch.buckets={self.buckets!r}: expected increasing whole numbers of at"
                " least 1, such as 16,32,64"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lanes(Batch):
    """Batches of running text: rows are texts, or lanes of one stream."""

    longer: Literal["score", "windows", "refuse"] = setting(LONGER, "score")
    texts: Literal["joined", "in_turn", "apart", "packed", "crops"] = setting(
        "'apart': each text is a row; 'joined': lanes of one stream, read piece by piece;"
        " 'in_turn': the same, but nothing is known at the beginning of a text; 'packed': rows of"
        " max_length tokens, filled with texts that do not see each other; 'crops': rows of"
        " max_length tokens that begin anywhere in the stream",
        "apart",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Node):
    """How long and how it is trained."""

    steps: int = setting("updates of the whole run", within=whole(1, STEPS))
    accumulate: int = setting(
        "parts of a batch, one after another, whose gradients are one", 1, within=whole(1, 2**16)
    )
    clip: float = setting(
        "norm to which longer gradients are scaled down; 0: none", 1.0, within=AT_LEAST_ZERO
    )
    label_smoothing: float = setting("probability spread over all other answers", 0.0, within=RATE)
    ema: float = setting("decay of a moving average of the parameters; 0: none", 0.0, within=RATE)
    compute: Literal["float32", "bfloat16"] = setting(
        "what the loss is computed in; parameters stay float32", "float32"
    )
    freeze: tuple[str, ...] = setting(
        "parameters whose path has one of these regular expressions are not trained", ()
    )
    rates: tuple[str, ...] = setting(
        "'REGEX=FACTOR': updates of parameters times a factor, that of the first their path has", ()
    )
    layer_decay: float = setting(
        "updates times so much to the power of how far a layer is below the last", 1.0, within=SHARE
    )
    log_every: int = setting("updates between two records", 50, within=COUNT)
    evaluate_every: int = setting(
        "updates between two evaluations on the validation split; 0: only at the end",
        250,
        within=whole(0),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTraining(Training):
    """How long and how it is trained, where tokens are predicted."""

    per: Literal["token", "sentence"] = setting("what the summed loss is divided by", "token")
    output_bias: Literal["unigram", "zeros"] = setting(
        "the bias of the last layer starts at how often each token is, or as the system has it",
        "zeros",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTraining(TokenTraining):
    """How long and how it is trained, where the tokens of long texts are predicted."""

    logits_at_once: int = setting(
        "tokens of a row whose logits are computed at a time, so that a long text with a large"
        " vocabulary fits into memory; 0: all",
        0,
        within=whole(0, LONGEST),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(Node):
    """Which states of a run are kept."""

    every: int = setting("updates between two; 0: only at the end", 250, within=whole(0))
    keep: int = setting("the latest so many, beside the best", 2, within=COUNT)
    by: str = setting("the score on the validation split of which the best is used", "loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parallel(Node):
    """On which devices it is trained."""

    backend: Literal["auto", "pmap", "mesh"] = setting(
        "a copy of the state on each device (pmap), or one program over all (mesh)", "auto"
    )
    devices: int = setting("how many; 0: all there are", 0, within=whole(0, 2**16))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auxiliary(Node):
    """Weights of losses that attention hands out, by name; None leaves one out on purpose."""

    further = (float | None, AT_LEAST_ZERO)
    hops: float | None = setting("keeps several hops apart", 0.0, within=AT_LEAST_ZERO)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairAuxiliary(Auxiliary):
    """Weights of losses that attention hands out, by name; None leaves one out on purpose."""

    doubly_stochastic: float | None = setting(
        "every source position is looked at once over all target positions",
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
        "of the reward; 0 leaves the choices untrained", 1.0, within=AT_LEAST_ZERO
    )
    entropy: float = setting(
        "weight of the entropy of the choices, which keeps them open", 0.01, within=AT_LEAST_ZERO
    )
    decay: float = setting("of the baseline, the moving average of rewards", 0.9, within=RATE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyRun(Node):
    """What every config has."""

    task: str = setting("what is learned; 'list tasks' shows all")
    seed: int = setting("of parameters, order of the data and dropout", 0, within=SEED)
    system: str = setting("the model; 'list systems' shows all", table=TABLES["system"])
    data: str = setting("where examples come from; 'list data' shows all", table=TABLES["data"])
    batch: AnyBatch
    optimizer: str = setting("'list optimizers' shows all", "adam", table=TABLES["optimizer"])
    schedule: str = setting(
        "of the learning rate; 'list schedules' shows all", table=TABLES["schedule"]
    )
    pretrained: Pretrained
    lora: Lora
    training: Training
    checkpoint: Checkpoint
    parallel: Parallel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(AnyRun):
    """What every config of a task of texts has."""

    vocabulary: Vocabulary
    batch: Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Run):
    """Texts, or pairs of them, to answers."""

    batch: Buckets
    auxiliary: Auxiliary
    reinforce: Reinforce


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(Run):
    """Texts to texts."""

    vocabulary: PairVocabulary
    batch: Buckets
    training: TokenTraining
    auxiliary: PairAuxiliary
    reinforce: Reinforce
    decoding: Decoding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pronunciation(Translation):
    """Texts to texts that are cut into other pieces."""

    vocabulary: TwoVocabularies


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelling(Run):
    """Texts, token by token."""

    batch: Lanes
    auxiliary: Auxiliary
    training: TextTraining
    decoding: Decoding


def schema_of(config: Mapping[str, Any]) -> type[Node]:
    """The class that describes a config as a whole, by its task.

    Raises:
      UserError: it names no task, or one that is not known, or one whose `schema` is no such class.
    """
    tasks = imported("attnlab.tasks:TASKS")
    name = config.get("task")
    if name is None:
        raise UserError(f"config.task is missing; choose from: {', '.join(tasks.names())}")
    try:
        task = tasks.resolve(name)
    except UserError as error:
        raise UserError(f"config.task: {error}") from error
    found = task.schema
    if not is_node(found):
        raise UserError(
            f"config.task={name}: its schema is {found!r}; expected a class derived from"
            f" {AnyRun.__module__}.{AnyRun.__name__}"
        )
    return found
