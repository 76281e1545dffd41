"""Parallelism: two ways to run the same step function on several devices, with the same
checkpoints.

`pmap` keeps a copy of the state on every device and gives each a slice of the batch. `mesh`
compiles the step once for all devices with `jit`; `mesh.py` says where its arrays lie.
`TrainState.remembered` is sharded with the rows of the batch. Checkpoints have no device axis.
Several processes, on one host or many: each feeds its own rows of the global batch
(`process_index`, `process_count`) and drives its own devices; they share values by `largest` and
`broadcast_from_0`. `TrialParallel` is for stacked trials: each device gets whole trials, in one process.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import flax.jax_utils
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attnlab.errors import UserError
from attnlab.training.mesh import ROWS, Layout
from attnlab.training.settings import Parallel
from attnlab.training.step import Batch, Step, Sums, TrainState, Tree

AXIS = "data"
Program: TypeAlias = Callable[[TrainState, Batch], tuple[TrainState, Sums]]
HostBatch: TypeAlias = Mapping[str, np.ndarray]
Of = TypeVar("Of")


class Backend(Protocol):
    """Where the state is stored and how a step runs.

    Attributes:
      count: devices over all processes; divides the rows of the global batch.
      about: its description in a manifest, besides the kind and number of devices.
    """

    count: int
    about: dict[str, int]

    @property
    def layout(self) -> Layout | None:
        """Where arrays lie on a mesh; None where every device has its copy."""

    def place(self, state: TrainState) -> TrainState:
        """Host state (arrays without a device axis) to its place on the devices."""

    def fetch(self, tree: Of) -> Of:
        """Any placed tree (a state or metrics) to host numpy arrays, without a device axis."""

    def one(self, tree: Of) -> Of:
        """A placed tree as plain arrays for work on one device (evaluation), without copying
        where it can.
        """

    def feed(self, batch: HostBatch) -> Batch:
        """This process's rows of the global batch, in the form for the compiled step."""

    def compile(self, step: Step, state: TrainState, batch: Batch) -> Program:
        """Compile `step(state, batch, axis_name)` for these shapes; the state's buffers are
        donated.
        """


class PmapBackend:
    """Replicated data parallelism with `jax.pmap`."""

    layout: Layout | None = None

    def __init__(self, devices: list[jax.Device]) -> None:
        self.devices = devices
        self.local = [device for device in devices if device.process_index == jax.process_index()]
        self.count = len(devices)
        self.about: dict[str, int] = {}

    def place(self, state: TrainState) -> TrainState:
        """See `Backend.place`."""
        rest, of_rows = _apart(state)
        # pmap's own axis name: under another one the second step would compile anew
        placed = flax.jax_utils.replicate(rest, self.local, axis_name=AXIS)
        sharding = NamedSharding(Mesh(np.array(self.local), (AXIS,)), PartitionSpec(AXIS))

        def dealt(rows: np.ndarray) -> jax.Array:
            mine = np.asarray(rows).reshape(
                jax.process_count(), len(self.local), -1, *rows.shape[1:]
            )[jax.process_index()]
            return jax.device_put(mine, sharding)

        return _joined(placed, jax.tree.map(dealt, of_rows))

    def fetch(self, tree: Of) -> Of:
        """See `Backend.fetch`."""
        rest, of_rows = _apart(tree)

        def collected(x: jax.Array) -> np.ndarray:
            return _of_all_processes(
                np.concatenate([_of_one_device(x, number) for number in range(len(self.local))])
            )

        return _joined(jax.device_get(self.one(rest)), jax.tree.map(collected, of_rows))

    def one(self, tree: Of) -> Of:
        """See `Backend.one`."""
        return jax.tree.map(_of_one_device, tree)

    def feed(self, batch: HostBatch) -> Batch:
        """See `Backend.feed`."""
        return {
            name: rows.reshape(len(self.local), -1, *rows.shape[1:]) for name, rows in batch.items()
        }

    def compile(self, step: Step, state: TrainState, batch: Batch) -> Program:
        """See `Backend.compile`."""
        axis = (
            AXIS if self.count > 1 else None
        )  # alone, the step is that of the mesh to the last bit
        mapped = jax.pmap(
            functools.partial(step, axis_name=axis),
            axis_name=AXIS,
            donate_argnums=0,
            devices=self.devices,
        )
        if (
            jax.process_count() > 1
        ):  # a program compiled ahead asks for arrays over all processes, which only pmap's own call makes
            return mapped
        return mapped.lower(state, batch).compile()


class MeshBackend:
    """One program over a mesh of devices: the state lies as its layout says, `remembered` as the
    rows of the batch, over the axes "data" and "fsdp".
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.replicated = NamedSharding(layout.mesh, PartitionSpec())
        self.rows = NamedSharding(layout.mesh, ROWS)
        self.count = layout.mesh.size
        self.about: dict[str, int] = {}

    def place(self, state: TrainState) -> TrainState:
        """See `Backend.place`."""

        def put(x: jax.Array | np.ndarray, sharding: NamedSharding) -> jax.Array:
            whole = np.asarray(x)  # every process has it
            return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

        return jax.tree.map(put, state, self.shardings(state))

    def fetch(self, tree: Of) -> Of:
        """See `Backend.fetch`."""
        rest, of_rows = _apart(tree)
        return _joined(jax.device_get(self.one(rest)), jax.tree.map(_of_all_processes, of_rows))

    def one(self, tree: Of) -> Of:
        """See `Backend.one`; what is divided stays so, over all devices."""
        return tree if self.layout.divides else jax.tree.map(lambda x: x.addressable_data(0), tree)

    def feed(self, batch: HostBatch) -> Batch:
        """See `Backend.feed`."""
        return jax.tree.map(
            lambda rows: jax.make_array_from_process_local_data(self.rows, rows), batch
        )

    def compile(self, step: Step, state: TrainState, batch: Batch) -> Program:
        """See `Backend.compile`."""
        of_state = self.shardings(state)
        compiled = jax.jit(
            step,
            donate_argnums=0,
            in_shardings=(of_state, self.rows),
            out_shardings=(of_state, self.of_metrics),
        )
        return compiled.lower(state, batch).compile()

    @property
    def of_metrics(self) -> NamedSharding:
        """Where the metrics of a step lie."""
        return self.replicated

    def shardings(self, state: TrainState) -> TrainState:
        """The sharding of each array of a state."""
        return self.layout.shardings(state)


class TrialParallel(MeshBackend):
    """Stacked trials: state, batch and metrics all have a leading trial axis, dealt to the devices;
    `count` divides its length.

    `fetch` and `one` keep the trial axis. Devices do not communicate within a step.

    Attributes:
      trials: how many there are; the axis may be longer.
    """

    def __init__(self, devices: list[jax.Device], trials: int) -> None:
        super().__init__(Layout.of(Parallel(), devices))
        self.trials = trials
        self.about = {"stacked": trials}

    def one(self, tree: Of) -> Of:
        """See `Backend.one`; the trials stay where they are."""
        return tree

    @property
    def of_metrics(self) -> NamedSharding:
        """As the trials lie."""
        return self.rows

    def shardings(self, state: TrainState) -> TrainState:
        """As the trials lie."""
        return jax.tree.map(lambda _: self.rows, state)


def _apart(tree: Tree) -> tuple[Tree, Tree]:
    """A tree without what it remembers of the rows of the batch, and that; only a training state
    remembers anything.
    """
    return (
        (tree.replace(remembered=None), tree.remembered)
        if isinstance(tree, TrainState)
        else (tree, None)
    )


def _joined(rest: Tree, of_rows: Tree) -> Tree:
    """The tree again."""
    return rest.replace(remembered=of_rows) if isinstance(rest, TrainState) else rest


def _of_one_device(x: jax.Array, number: int = 0) -> jax.Array:
    """What a device of this process has of an array of pmap, whose device axis may be in it
    still.
    """
    data = x.addressable_data(number)
    return data[0] if data.ndim == x.ndim else data


def _of_all_processes(rows: np.ndarray) -> np.ndarray:
    """Rows of the global batch on the host, in their order: of a global array, or of each process's
    own.
    """
    if jax.process_count() == 1:
        return np.asarray(rows)
    return np.asarray(multihost_utils.process_allgather(rows, tiled=True))


def place_trials(trials: int, settings: Parallel) -> TrialParallel:
    """Where that many stacked trials go: to `settings.devices` devices (0: all), but to no more
    than there are trials.

    Raises:
      UserError: more devices than there are, or settings that divide the state of a trial.
    """
    if settings.fsdp > 1 or settings.rules:
        raise UserError(
            f"config.parallel.fsdp={settings.fsdp}: trials that are stacked lie whole on a device;"
            " train them apart with --stack=off"
        )
    return TrialParallel(_first(settings.devices)[:trials], trials)


def backend(settings: Parallel) -> Backend:
    """The devices of a run: `settings.devices` of them (0: all). "auto" is pmap while the state is
    copied, and the mesh where it is divided.

    Raises:
      UserError: more devices than there are, or not as many of each of several processes; axes that
        do not fit them.
    """
    devices = _first(settings.devices)
    layout = Layout.of(settings, devices)
    if settings.backend == "pmap" or (settings.backend == "auto" and not layout.divides):
        return PmapBackend(devices)
    if layout.divides and jax.process_count() > 1:
        raise UserError(
            f"config.parallel.fsdp={settings.fsdp} over several processes: not yet; take 1"
        )
    return MeshBackend(layout)


def largest(values: Sequence[int]) -> list[int]:
    """The largest of each value over all processes, the same in all of them; every process must
    call it.
    """
    if jax.process_count() == 1:
        return list(values)
    mine = np.broadcast_to(np.asarray(values, np.int32), (jax.local_device_count(), len(values)))
    return [int(value) for value in _of_one_device(_maximum()(mine))]


@functools.cache
def _maximum() -> Callable[[np.ndarray], jax.Array]:
    return jax.pmap(lambda x: jax.lax.pmax(x, AXIS), axis_name=AXIS)


def agree_with_0(texts: Sequence[str]) -> list[bool]:
    """Which of these texts equal those of process 0; every process must call it with the same
    number of texts.
    """
    mine = np.stack(
        [np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in texts]
    )
    return [bool(same) for same in (broadcast_from_0(mine) == mine).all(axis=1)]


def broadcast_from_0(tree: Of) -> Of:
    """The arrays of process 0, in all processes, bit for bit; every process must call it with
    arrays of these shapes and dtypes.
    """
    if jax.process_count() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for leaf in leaves]
    content = b"".join(
        array.tobytes() for array in arrays
    )  # as bits: a sum over processes would turn -0.0 into 0.0
    words = np.frombuffer(content + bytes(-len(content) % 4), np.uint32)
    content = np.asarray(multihost_utils.broadcast_one_to_all(words)).tobytes()
    found, begin = [], 0
    for array in arrays:
        found.append(
            np.frombuffer(content, array.dtype, array.size, begin).reshape(array.shape).copy()
        )
        begin += array.nbytes
    return jax.tree.unflatten(structure, found)


def _first(devices: int) -> list[jax.Device]:
    """The first `devices` devices, as many of each process; all for 0."""
    known, processes = jax.devices(), jax.process_count()
    if not 0 <= devices <= len(known):
        raise UserError(
            f"parallel.devices={devices}, but there are {len(known)} of kind {known[0].platform!r};"
            " 0 takes all"
        )
    of_process = [
        [device for device in known if device.process_index == index] for index in range(processes)
    ]
    share = (devices or len(known)) // processes
    if share * processes != (devices or len(known)) or any(
        len(some) < share for some in of_process
    ):
        counts = ", ".join(str(len(some)) for some in of_process)
        raise UserError(
            f"parallel.devices={devices}: as many of each of {processes} processes are needed; they"
            f" have {counts}"
        )
    return [device for some in of_process for device in some[:share]]
