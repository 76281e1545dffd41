"""The protocols of tasks and batches for training; the tasks are in `attnlab.tasks`, which this
room does not import.

Importing this module loads no jax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from attnlab.records.measures import Measure

if TYPE_CHECKING:
    import jax
    import numpy as np

    from attnlab.tasks.schemas import Settings
    from attnlab.training.step import Batch, Params, Sums, Tree

Batches = Callable[[int], "dict[str, np.ndarray]"]
"""This process's rows of the batch of each step, counted from 0."""


class Noted(Protocol):
    """`Batches` that say, in `note`, what a person should know of them; "" for nothing."""

    note: str

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""


class Measured(Protocol):
    """Something that has scores."""

    @property
    def measures(self) -> Mapping[str, Measure | str]:
        """The direction of each score, see `attnlab.records.measures`; at least for those of
        `evaluate`.
        """

    def evaluate(self, params: Params, split: str) -> dict[str, float]:
        """Deterministic scores on a split, among them "loss"."""


class Task(Measured, Protocol):
    """A task, as the loop uses it."""

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters."""

    def loss(
        self, params: Params, batch: Batch, key: jax.Array, carried: Tree = None
    ) -> tuple[jax.Array, Sums]:
        """See `step.Loss`."""

    def carried(self) -> Tree:
        """The first `TrainState.carried` of the loss, a tree of arrays; None for nothing."""

    def follow(self, carried: Tree, tracked: Tree) -> Tree:
        """The next `carried`, from the sums that the loss tracked in a batch."""

    def weight(self, batch: Batch) -> jax.Array:
        """The divisor of the summed loss of a batch."""


@runtime_checkable
class Remembering(Protocol):
    """A task whose loss may continue in a batch from the end of the batch before."""

    def remembered(self) -> Tree:
        """The first `TrainState.remembered`, with a row for each row of the global batch; None for
        nothing.
        """


@runtime_checkable
class Beginning(Protocol):
    """A task whose training may begin with the weights of a model from elsewhere."""

    @property
    def pretrained(self) -> Path | None:
        """Where they are; None if weights are drawn."""

    def check_pretrained(self) -> dict[str, str]:
        """Whether they fit, and their fingerprint by name; `UserError`."""

    def begun(self, key: jax.Array, read: Callable[..., tuple[Params, int]]) -> Params:
        """What training begins with, on the host; what the weights do not give is drawn from the
        key. `read` is `states.best_params`.
        """

    def drawn_anew(self) -> tuple[str, ...]:
        """Paths of the parameters that stay drawn."""


class Stackable(Task, Protocol):
    """A task that can train several models at once."""

    def loss(
        self,
        params: Params,
        batch: Batch,
        key: jax.Array,
        carried: Tree = None,
        smoothing: float | jax.Array | None = None,
    ) -> tuple[jax.Array, Sums]:
        """See `step.Loss`; `smoothing`, an array, replaces the configured label smoothing. Given
        only where trials differ in it.
        """

    def evaluate_stacked(self, params: Params, split: str) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""


class Loaded(Protocol):
    """The data of a task."""

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The hash of what was read, by split."""


class Example(Protocol):
    """One example of a task."""

    def record(self) -> dict[str, Any]:
        """The example as JSON, stored with the answer."""


class Map(Protocol):
    """The weights of one attention for one example."""

    @property
    def weights(self) -> Any:
        """[H,Tq,Tk]."""

    @property
    def query(self) -> str:
        """The name of the side of the rows."""

    @property
    def key(self) -> str:
        """The name of the side of the columns."""


class Look(Protocol):
    """Where a system looks in an image."""

    @property
    def image(self) -> np.ndarray:
        """[H,W,C] uint8."""

    @property
    def weights(self) -> np.ndarray:
        """[R,h,w], each a part of the image."""

    @property
    def rows(self) -> Sequence[str]:
        """What looks, R names."""


class Maps(Protocol):
    """Every attention map of an example."""

    @property
    def weights(self) -> Mapping[str, Map]:
        """By name."""

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """What is stored beside the arrays, by the name in the file."""

    @property
    def looks(self) -> Mapping[str, Look]:
        """What is drawn over an image, by name."""

    @property
    def gates(self) -> Mapping[str, np.ndarray]:
        """Arrays of gates, by name."""

    def rows(self, name: str) -> Sequence[str]:
        """The labels of the rows of the map `name`."""

    def columns(self, name: str) -> Sequence[str]:
        """The labels of the columns."""


class Runnable(Stackable, Protocol):
    """A task with its data, as a run of its own and what is reported of it see it; what its members
    mean is said in `attnlab.tasks.base.Task`.
    """

    evaluated: ClassVar[Sequence[str]]
    outputs: ClassVar[str]
    examples: ClassVar[str]
    item: ClassVar[str]
    units: ClassVar[Mapping[str, str]]
    config: Settings

    @property
    def data(self) -> Loaded:
        """Of the splits that were asked for."""

    @property
    def system(self) -> Any:
        """The model."""

    def size(self, split: str) -> int:
        """The number of examples."""

    def score(self, params: Params, split: str) -> tuple[dict[str, Any], list[str]]:
        """Scores beyond `evaluate`, and for each example what goes to `outputs`."""

    def pictured(self, split: str, number: int) -> Sequence[Example]:
        """At most so many examples of a split."""

    def maps(self, params: Params, example: Any) -> Maps:
        """Every attention map of one of them."""

    def batches(self, multiple: int, seed: int | None = None) -> Noted:
        """The batches of this process; their rows are divisible by `multiple` over all
        processes.
        """

    def notes(self, batches: Noted) -> list[str]:
        """What a person should know about the data before training."""

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back."""

    @classmethod
    def saved(cls, workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""

    @classmethod
    def check(cls, config: Settings) -> None:
        """Build all that needs no data; `UserError`."""

    @classmethod
    def load(cls, config: Settings, workdir: Path | None, splits: Sequence[str]) -> Self:
        """The task with the data of `splits`."""
