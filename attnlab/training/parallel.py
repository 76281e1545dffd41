"""Parallelism: two ways to run the same step function on several devices, with the same
checkpoints.

`pmap` keeps a copy of the state on every device and gives each a slice of the batch. `mesh`
compiles the step once for all devices with `jit`; `mesh.py` says where its arrays lie.
`TrainState.remembered` is sharded with the rows of the batch. Checkpoints have no device axis.
Several processes, on one host or many: each feeds its own rows of the global batch
(`process_index`, `process_count`) and drives its own devices; they share values by `largest` and
`broadcast_from_0`. `TrialParallel` is for stacked trials: each device gets whole trials, in one process.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import flax.jax_utils
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attnlab.errors import UserError
from attnlab.training.mesh import ROWS, Layout, place, spans
from attnlab.training.settings import Parallel
from attnlab.training.step import Batch, Step, Sums, TrainState, Tree

AXIS = "data"
Content = TypeVar("Content")
Program: TypeAlias = Callable[[TrainState, Batch], tuple[TrainState, Sums]]
HostBatch: TypeAlias = Mapping[str, np.ndarray]
Of = TypeVar("Of")


class PmapBackend:
    """Replicated data parallelism with `jax.pmap`.

    Attributes:
      layout: where arrays lie on a mesh; None where every device has its copy.
      count: devices over all processes; divides the rows of the global batch.
      about: its description in a manifest, besides the kind and number of devices.
    """

    layout: Layout | None = None

    def __init__(self, devices: list[jax.Device]) -> None:
        self.devices = devices
        self.local = [device for device in devices if device.process_index == jax.process_index()]
        self.count = len(devices)
        self.about: dict[str, int] = {}

    def place(self, state: TrainState) -> TrainState:
        """Places a state of the host (arrays without a device axis) on the local devices: each has a
        copy of all but `remembered`, whose rows are divided among them.
        """
        sharding = NamedSharding(Mesh(np.array(self.local), (AXIS,)), PartitionSpec(AXIS))

        def deal_rows(rows: np.ndarray) -> jax.Array:
            shape = (jax.process_count(), len(self.local), -1, *rows.shape[1:])
            return jax.device_put(np.asarray(rows).reshape(shape)[jax.process_index()], sharding)

        # pmap's own axis name: under another one the second step would compile anew
        copy = functools.partial(flax.jax_utils.replicate, devices=self.local, axis_name=AXIS)
        return _apply(state, copy, deal_rows)

    def like(self, state: TrainState) -> TrainState:
        """Returns the shapes and dtypes that a state has after `place`, with a leading device axis,
        given those of a state of the host.
        """
        shape = (jax.process_count(), len(self.local), -1)
        copy = functools.partial(jax.tree.map, lambda leaf: jnp.stack([leaf] * shape[1]))

        def deal_rows(rows: jax.Array) -> jax.Array:
            return jnp.reshape(rows, (*shape, *rows.shape[1:]))[0]

        return jax.eval_shape(lambda state: _apply(state, copy, deal_rows), state)

    def fetch(self, tree: Of) -> Of:
        """Returns a placed tree (a state or metrics) as host arrays without a device axis: from one
        device what is replicated, `remembered` as the rows of all devices and processes in order.
        """

        def collect_rows(x: jax.Array) -> np.ndarray:
            parts = [_from_device(x, number) for number in range(len(self.local))]
            return _gathered_rows(np.concatenate(parts))

        return _apply(tree, lambda copies: jax.device_get(self.arrays(copies)), collect_rows)

    saved = fetch

    def arrays(self, tree: Of) -> Of:
        """Returns a placed tree as plain arrays for work on one device (evaluation), without copying
        where it can.
        """
        return jax.tree.map(_from_device, tree)

    def feed(self, batch: HostBatch) -> Batch:
        """Returns this process's rows of the global batch in the form for the compiled step."""
        shape = (len(self.local), -1)
        return {name: rows.reshape(*shape, *rows.shape[1:]) for name, rows in batch.items()}

    def compile(self, step: Step, state: TrainState, batch: Batch) -> Program:
        """Compiles `step(state, batch, axis_name)` with `pmap` for states and batches of these
        shapes and returns the program, which overwrites the state that it gets; with several
        processes it is compiled at its first call.
        """
        axis = AXIS if self.count > 1 else None  # alone, the step is that of the mesh, bit for bit
        mapped = jax.pmap(
            functools.partial(step, axis_name=axis),
            axis_name=AXIS,
            donate_argnums=0,
            devices=self.devices,
        )
        # a program compiled ahead asks for arrays over all processes, which only pmap's own call makes
        if jax.process_count() > 1:
            return mapped
        return mapped.lower(state, batch).compile()


class MeshBackend:
    """One program over a mesh of devices: the state lies as its layout says, `remembered` as the
    rows of the batch, over the axes "data" and "fsdp". For `count` and `about` see `PmapBackend`.

    Attributes:
      layout: where arrays lie on the mesh.
      metrics_sharding: where the metrics of a step lie.
    """

    def __init__(self, layout: Layout) -> None:
        """Stores the layout and the shardings of whole arrays and of rows on its mesh."""
        self.layout = layout
        self.replicated = NamedSharding(layout.mesh, PartitionSpec())
        self.rows = NamedSharding(layout.mesh, ROWS)
        self.metrics_sharding = self.replicated
        self.count = layout.mesh.size
        self.about: dict[str, int] = {}

    def place(self, state: TrainState) -> TrainState:
        """See `PmapBackend.place`."""
        return jax.tree.map(place, state, self.shardings(state))

    def like(self, state: TrainState) -> TrainState:
        """See `PmapBackend.like`."""
        return jax.eval_shape(lambda state: state, state)

    def fetch(self, tree: Of) -> Of:
        """See `PmapBackend.fetch`."""
        return _apply(tree, lambda copies: jax.device_get(self.arrays(copies)), _gathered_rows)

    def saved(self, state: TrainState) -> TrainState:
        """Returns the state as a checkpoint takes it: that of `fetch`; a divided one stays where it
        is.
        """
        return state if self.layout.divides else self.fetch(state)

    def arrays(self, tree: Of) -> Of:
        """See `PmapBackend.arrays`; what is divided stays so, over all devices."""
        return tree if self.layout.divides else jax.tree.map(lambda x: x.addressable_data(0), tree)

    def feed(self, batch: HostBatch) -> Batch:
        """See `PmapBackend.feed`."""
        deal = functools.partial(jax.make_array_from_process_local_data, self.rows)
        return jax.tree.map(deal, batch)

    def compile(self, step: Step, state: TrainState, batch: Batch) -> Program:
        """Compiles a step with `jit` for states and batches of these shapes, placed as the layout
        says; the program overwrites the state that it gets. See `PmapBackend.compile`.
        """
        state_shardings = self.shardings(state)
        compiled = jax.jit(
            step,
            donate_argnums=0,
            in_shardings=(state_shardings, self.rows),
            out_shardings=(state_shardings, self.metrics_sharding),
        )
        return compiled.lower(state, batch).compile()

    def shardings(self, state: TrainState) -> TrainState:
        """The sharding of each array of a state."""
        return self.layout.shardings(state)


class TrialParallel(MeshBackend):
    """Stacked trials: state, batch and metrics all have a leading trial axis, dealt to the devices;
    `count` divides its length.

    `fetch` and `arrays` keep the trial axis. Devices do not communicate within a step.

    Attributes:
      trials: how many there are; the axis may be longer.
    """

    def __init__(self, devices: list[jax.Device], trials: int) -> None:
        super().__init__(Layout.of(Parallel(), devices))
        self.trials = trials
        self.metrics_sharding = self.rows
        self.about = {"stacked": trials}

    def arrays(self, tree: Of) -> Of:
        """See `PmapBackend.arrays`; the trials stay where they are."""
        return tree

    def shardings(self, state: TrainState) -> TrainState:
        """As the trials lie."""
        return jax.tree.map(lambda _: self.rows, state)


Backend: TypeAlias = PmapBackend | MeshBackend
"""Where the state is stored and how a step runs."""


def _apply(tree: Of, map_tree: Callable[[Tree], Tree], map_rows: Callable[[Tree], Tree]) -> Of:
    """Applies `map_tree` to a tree without `remembered`, and `map_rows` to each array of that; only
    a training state has it, arrays with a row for each of the batch.
    """
    if not isinstance(tree, TrainState):
        return map_tree(tree)  # type: ignore[no-any-return]
    mapped: Of = map_tree(tree.replace(remembered=None))
    return mapped.replace(remembered=jax.tree.map(map_rows, tree.remembered))  # type: ignore[attr-defined]


def _from_device(x: jax.Array, number: int = 0) -> jax.Array:
    """The part of an array of pmap on a device of this process, without the device axis."""
    data = x.addressable_data(number)
    return data[0] if data.ndim == x.ndim else data


def _gathered_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of the global batch on the host, in their order: of a global array, or of each process's
    own.
    """
    if jax.process_count() == 1:
        return np.asarray(rows)
    return np.asarray(multihost_utils.process_allgather(rows, tiled=True))


def place_trials(trials: int, settings: Parallel) -> TrialParallel:
    """Returns the backend (`TrialParallel`) of `trials` stacked trials, on the first
    `settings.devices` devices (0: all) but at most one per trial; raises `UserError` for settings
    that divide a trial's state, or if there are not so many devices.

    Raises:
      UserError: more devices than there are, or settings that divide the state of a trial.
    """
    if settings.fsdp > 1 or settings.rules:
        raise UserError(
            f"config.parallel.fsdp={settings.fsdp}: trials that are stacked lie whole on a device;"
            " train them apart with --stack=off"
        )
    return TrialParallel(_first_devices(settings.devices)[:trials], trials)


def backend(settings: Parallel) -> Backend:
    """Returns the backend of a run on `settings.devices` devices (0: all), by `settings.backend`
    pmap or mesh ("auto": the mesh only if the state is divided); raises `UserError` if there are
    not so many or the axes do not fit.

    Raises:
      UserError: more devices than there are, or not as many of each of several processes; axes that
        do not fit them.
    """
    devices = _first_devices(settings.devices)
    layout = Layout.of(settings, devices)
    if settings.backend == "pmap" or (settings.backend == "auto" and not layout.divides):
        return PmapBackend(devices)
    return MeshBackend(layout)


def largest(values: Sequence[int]) -> list[int]:
    """The largest of each value over all processes, the same in all of them; every process must
    call it.
    """
    if jax.process_count() == 1:
        return list(values)
    gathered = multihost_utils.process_allgather(np.asarray(values, np.int32))
    return [int(value) for value in np.max(gathered, axis=0)]


def agree_with_0(texts: Sequence[str]) -> list[bool]:
    """Which of these texts equal those of process 0; every process must call it with the same
    number of texts.
    """
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    return [digest == first for digest, first in zip(digests, message_from_0(digests), strict=True)]


def broadcast_from_0(tree: Of) -> Of:
    """Returns the arrays of process 0 in all processes, bit for bit; every process must call it
    with a tree of the same shapes and dtypes. Those that are divided among all processes stay.
    """
    if jax.process_count() == 1 or spans(tree):
        return tree
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for leaf in leaves]
    # as bits: a sum over processes would turn -0.0 into 0.0
    content = b"".join(array.tobytes() for array in arrays)
    bits = np.frombuffer(content + bytes(-len(content) % 4), np.uint32)
    content = np.asarray(multihost_utils.broadcast_one_to_all(bits)).tobytes()
    received, begin = [], 0
    for array in arrays:
        received.append(
            np.frombuffer(content, array.dtype, array.size, begin).reshape(array.shape).copy()
        )
        begin += array.nbytes
    return jax.tree.unflatten(structure, received)


def message_from_0(content: Content) -> Content:
    """Returns the `content` of process 0, anything that JSON can hold, in all processes; every
    process must call it.
    """
    if jax.process_count() == 1:
        return content
    text = json.dumps(content).encode()
    size = int(broadcast_from_0(np.asarray(len(text), np.int32)))
    encoded = np.frombuffer(text.ljust(size)[:size], np.uint8)
    return json.loads(broadcast_from_0(encoded).tobytes())


def _first_devices(devices: int) -> list[jax.Device]:
    """Returns the first `devices` devices (0: all), equally many of each process; raises
    `UserError` if there are not so many.
    """
    present, processes = jax.devices(), jax.process_count()
    if not 0 <= devices <= len(present):
        raise UserError(
            f"parallel.devices={devices}, but there are {len(present)} of kind {present[0].platform!r};"
            " 0 takes all"
        )
    by_process = [
        [device for device in present if device.process_index == index]
        for index in range(processes)
    ]
    share = (devices or len(present)) // processes
    if share * processes != (devices or len(present)) or any(
        len(local) < share for local in by_process
    ):
        counts = ", ".join(str(len(local)) for local in by_process)
        raise UserError(
            f"parallel.devices={devices}: as many of each of {processes} processes are needed; they"
            f" have {counts}"
        )
    return [device for local in by_process for device in local[:share]]
