"""Several trials as one program: the step function under `vmap`, with a leading trial axis in
state, batch and metrics.

    state_i, sums_i = step(state_i, batch_i)    for all trials i at once; who does not move keeps its state

The trials differ in their seed and in `hyperparameters.numbers`, which the state has. Each has the
batches, records and checkpoints that it would have alone, in its own folder, and can continue alone
or in another stack from any checkpoint. Only rounding differs: products of matrices are summed in
another order.

Where a loss draws random numbers (dropout) they depend on the shape of the batch, so that batches
cannot be padded: in each turn those trials move whose next batch has the shape that most of them
wait for. Otherwise smaller batches are padded with zeros to the largest where they fit into it, and
all move. So the trials are not always at the same step. A trial that is to be evaluated or saved
waits until no other can move; then all waiting trials are evaluated at once.
"""

import collections
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.progress import Progress
from attnlab.training.hyperparameters import signature
from attnlab.training.journal import Journal, Shapes, format_shapes, shapes_of
from attnlab.training.loop import open_journal, why_stopped
from attnlab.training.parallel import Program
from attnlab.training.session import Outcome, Session
from attnlab.training.step import Params, Step, Sums, TrainState, Tree

if TYPE_CHECKING:
    from attnlab.data.batching import Batches
    from attnlab.tasks import AnyTask
    from attnlab.training.run import Run

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(eq=False)
class Member:
    """One trial of a stack.

    Attributes:
      journal: its files.
      batches: its own, by step.
      step: updates made.
      batch: of the next one.
      waits: an evaluation or a checkpoint is due before it may move on.
      outcome: how it ended; None while it is under way.
    """

    journal: Journal
    batches: "Batches"
    step: int
    batch: Batch
    waits: bool = False
    outcome: Outcome | None = None


def train(runs: "Sequence[Run]", session: Session) -> list[Outcome]:
    """Trains all trials together to `training.steps`, each from the newest good checkpoint in its
    own folder or the start, until done, interrupted or diverged, and returns a list with an
    `Outcome` for each; raises `ValueError` for trials that cannot be stacked.

    Args:
      runs: of equal `hyperparameters.signature`, with one task and one `TrialParallel` for all.
      session: its progress shows the trial that is furthest behind.

    Returns:
      The outcome of each trial. A trial that diverges is dropped; the others continue.

    Raises:
      UserError: a checkpoint that cannot be used, a full disk.
      ValueError: trials that cannot be stacked.
    """
    if len({signature(run.config) for run in runs}) > 1:
        raise ValueError("these trials differ in more than their seeds and numbers")
    with contextlib.ExitStack() as files:
        members, hosts = [], []
        task, updates = runs[0].task, runs[0].updates
        like, fresh = updates.saved_like(task), updates.first_states(task)
        for number, run in enumerate(runs):
            label = f"{run.workdir.parent.name}/{run.workdir.name}, "
            journal = open_journal(run, session, number, label)
            files.enter_context(contextlib.closing(journal))
            hosts.append(journal.begin(like, fresh).replace(numbers=run.updates.numbers))
            step = int(hosts[-1].step)
            outcome = Outcome("done", step) if step == run.config.training.steps else None
            members.append(Member(journal, run.batches, step, run.batches(step), outcome=outcome))
            journal.running(step)
        stack, first = Stack(runs, members, hosts, session.progress), None
        while any(member.outcome is None for member in members):
            if session.interrupt.signal is not None:
                stack.leave(why_stopped(session.interrupt))
            elif not stack.advance():
                stack.settle()
            first = first or time.perf_counter() - session.began
    return [
        dataclasses.replace(member.outcome, seconds_to_first_step=first)
        for member in members
        if member.outcome
    ]


class Stack:
    """The state of all trials on the devices, and its updates.

    Args:
      runs, progress: see `train`.
      members: of each trial.
      hosts: the state each trial begins with.
    """

    def __init__(
        self,
        runs: "Sequence[Run]",
        members: list[Member],
        hosts: Sequence[TrainState],
        progress: Progress,
    ) -> None:
        """Stores task, members and devices, and places the states `hosts` of all trials, stacked
        and filled up to equally many for each device, on the devices.
        """
        first = runs[0]
        self.task, self.members, self.progress = first.task, members, progress
        self._rows = first.config.training.evaluate_rows
        self.devices = first.devices
        self._slots = -(-len(members) // self.devices.count) * self.devices.count
        trained = first.updates.trained
        self._merge = jax.vmap(trained.merge) if trained.rank else trained.merge
        params = trained.merge(hosts[0].params)
        self._pads = not uses_randomness(self.task, params, members[0].batch)
        self._step = stack_step(first.updates.step(self.task))
        self._programs: dict[Shapes, Program] = {}
        idle = [hosts[0]] * (self._slots - len(members))
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *hosts, *idle)
        self._state = self.devices.place(stacked)

    def advance(self) -> bool:
        """Makes one update of as many trials as can share a program call (of equal shapes, or
        padded to the largest), records it, ends those that diverged and makes those wait that are
        due for an evaluation or a save; returns False if none is ready to move.
        """
        free = [member.outcome is None and not member.waits for member in self.members]
        batches = {i: member.batch for i, member in enumerate(self.members) if free[i]}
        if not batches:
            return False
        sizes = {i: sum(shapes_of(batch), ()) for i, batch in batches.items()}
        moving = choose_trials(sizes, self._pads)
        fed = self.devices.feed(stack_batches({i: batches[i] for i in moving}, self._slots))
        program = self._program(fed)
        clock = time.perf_counter()
        self._state, sums = program(self._state, fed)
        for member in (self.members[i] for i in moving):  # the next, while the devices are at work
            member.batch = member.batches(member.step + 1)
        sums = self.devices.fetch(sums)
        seconds = time.perf_counter() - clock
        for i in moving:
            values = {name: float(by_trial[i]) for name, by_trial in sums.items()}
            self._stepped(self.members[i], values, seconds, len(moving))
        under_way = [member.step for member in self.members if member.outcome is None]
        pace = {
            "step_seconds": seconds * len(under_way) / len(moving),
            "tokens_per_second": float(sums["tokens"][moving].sum()) / seconds,
        }
        self.progress.update(
            min(under_way, default=self.members[0].step),
            loss=float(np.mean(sums["loss"][moving])),
            **pace,
        )
        return True

    def settle(self) -> None:
        """Evaluates the waiting trials where that is due, saves those that are due or improved,
        lets them go on, and marks those at their last step as done.
        """
        waiting = {i: member for i, member in enumerate(self.members) if member.waits}
        evaluated = [i for i, member in waiting.items() if member.journal.evaluates(member.step)]
        scores = []
        if evaluated:
            params = self._merge(self.devices.arrays(self._state.averaged))
            scores = self.task.evaluate_stacked(params, "valid", self._rows)
        improved = {i for i in evaluated if waiting[i].journal.scored(waiting[i].step, scores[i])}
        due = [i for i in waiting if i in improved or waiting[i].journal.saves(waiting[i].step)]
        self._save(due, improved)
        for member in waiting.values():
            member.waits = False
            if member.outcome is None and member.step == member.journal.last:
                member.outcome = Outcome("done", member.step)

    def leave(self, why: str) -> None:
        """Evaluates and saves waiting trials, saves the unfinished ones that have begun, and ends
        all unfinished ones as "interrupted", with the reason `why`.
        """
        self.settle()
        begun = [i for i, trial in enumerate(self.members) if trial.outcome is None and trial.step]
        self._save(begun, set())
        for member in self.members:
            member.outcome = member.outcome or Outcome("interrupted", member.step, message=why)

    def _save(self, numbers: list[int], best: set[int]) -> None:
        """Saves the states of the trials `numbers`, those in `best` as their best; a trial whose
        parameters are not finite ends as "diverged".
        """
        host = self.devices.fetch(self._state) if numbers else None
        for i in numbers:
            member, state = self.members[i], jax.tree.map(lambda leaf, i=i: leaf[i], host)
            if problem := member.journal.save(member.step, state, i in best):
                member.outcome = Outcome("diverged", member.step, message=problem)

    def _stepped(
        self, member: Member, values: dict[str, float], seconds: float, together: int
    ) -> None:
        """Records an update of a trial, one of `together` that took `seconds` in all, and sets
        whether it now waits for an evaluation or a save; one that is not finite ends as "diverged".
        """
        member.step += 1
        share = seconds / together
        pace = {"step_seconds": share, "tokens_per_second": values["tokens"] / share}
        pace["together"] = together
        if problem := member.journal.stepped(member.step, values, pace):
            member.outcome = Outcome("diverged", member.step, message=problem)
            return
        member.waits = member.journal.evaluates(member.step) or member.journal.saves(member.step)
        member.journal.running(member.step)

    def _program(self, fed: Mapping[str, Tree]) -> Program:
        """Returns the compiled step for batches of these shapes; compiles and records it the first
        time.
        """
        shapes = shapes_of(fed["batch"])
        if shapes not in self._programs:
            clock = time.perf_counter()
            self._programs[shapes] = self.devices.compile(self._step, self._state, fed)
            seconds = time.perf_counter() - clock
            for member in self.members:
                member.journal.compiled(member.step + 1, seconds / len(self.members))
            self.progress.compiled(f"batches of {format_shapes(shapes)}", seconds)
        return self._programs[shapes]


def stack_step(step: Step) -> Step:
    """Returns a step for several trials at once, all arguments with a leading trial axis; `fed`
    holds "batch" and "moves" (bool: a trial that does not move keeps its state).
    """

    def update(state: TrainState, fed: Mapping[str, Tree]) -> tuple[TrainState, Sums]:
        moved, sums = step(state, fed["batch"])
        return jax.tree.map(lambda new, old: jnp.where(fed["moves"], new, old), moved, state), sums

    return jax.vmap(update)


def stack_batches(batches: Mapping[int, Batch], slots: int) -> dict[str, Tree]:
    """Returns {"batch": the batches of the moving trials padded with zeros to the largest, arrays
    [slots,...] by name with a place for every trial, "moves": bool [slots], which trials move}.

    Args:
      batches: of the trials that move, by number.
      slots: length of the trial axis; idle slots after the trials give all devices equally many.
    """
    first = next(iter(batches.values()))
    room = {
        name: tuple(map(max, zip(*(batch[name].shape for batch in batches.values()), strict=True)))
        for name in first
    }
    together = {name: np.zeros((slots, *shape), first[name].dtype) for name, shape in room.items()}
    moves = np.zeros(slots, bool)
    for i, batch in batches.items():
        moves[i] = True
        for name, rows in batch.items():
            corner: tuple[int | slice, ...] = (i, *map(slice, rows.shape))
            together[name][corner] = rows
    return {"batch": together, "moves": moves}


def uses_randomness(task: "AnyTask", params: Params, batch: Batch) -> bool:
    """Returns whether a task's loss draws random numbers, by tracing it."""
    state = {"carried": task.carried(), "remembered": task.remembered()}
    loss = functools.partial(
        task.loss, **{name: value for name, value in state.items() if value is not None}
    )
    return "random_bits" in str(jax.make_jaxpr(loss)(params, batch, jax.random.key(0)))


def choose_trials(waiting: Mapping[int, tuple[int, ...]], pads: bool) -> list[int]:
    """Returns the numbers of the trials in `waiting` (number to the shapes of its batch's arrays,
    end to end) that make the next update together: all, if `pads` and all batches fit into the
    largest of them, else those of the most common shape.

    Args:
      waiting: the shapes of their batches, those of all arrays end to end.
      pads: batches may be padded.
    """
    largest = max(waiting.values(), key=math.prod)
    if pads and all(
        size <= longest
        for shape in waiting.values()
        for size, longest in zip(shape, largest, strict=True)
    ):
        return list(waiting)
    ((most_wanted, _),) = collections.Counter(waiting.values()).most_common(1)
    return [i for i, shape in waiting.items() if shape == most_wanted]
