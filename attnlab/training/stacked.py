"""Several trials as one program: the step function under `vmap`, with a leading trial axis in
state, batch and metrics.

    state_i, sums_i = step(numbers_i, state_i, batch_i)    for all trials i at once; who does not move keeps its state

The trials differ in their seed and in `hyperparameters.numbers`, which are inputs of the program.
Each has the batches, records and checkpoints that it would have alone, in its own folder, and can
continue alone or in another stack from any checkpoint. Only rounding differs: products of matrices
are summed in another order, and numbers are float32 where a program of one trial computes with
constants in float64 (1 - b2 then has a relative error of 3e-5 for b2 = 0.999).

Where a loss draws random numbers (dropout) they depend on the shape of the batch, so that batches
cannot be padded: in each turn those trials move whose next batch has the shape that most of them
wait for. Otherwise smaller batches are padded with zeros to the largest where they fit into it, and
all move. So the trials are not always at the same step. A trial that is to be evaluated or saved
waits until no other can move; then all waiting trials are evaluated at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.progress import Progress
from attnlab.records.attempts import Attempt
from attnlab.records.measures import declared
from attnlab.training.hyperparameters import SMOOTHING, signature
from attnlab.training.interrupt import Interrupt
from attnlab.training.journal import Journal, Shapes, shapes_of, spoken
from attnlab.training.loop import Outcome, why_stopped
from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import Program, Spread, Step
from attnlab.training.protocol import Batches, Stackable, Task
from attnlab.training.states import first_states, saved_like
from attnlab.training.step import Sums, TrainState, Tree, make_step
from attnlab.training.trained import Trained
from attnlab.training.turns import Batch, Feed, draws, turn

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings


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
    batches: Batches
    step: int
    batch: Batch
    waits: bool = False
    outcome: Outcome | None = None


def train(
    configs: Sequence[Settings],
    task: Stackable,
    batches: Sequence[Batches],
    workdirs: Sequence[Path],
    place: Spread,
    progress: Progress,
    interrupt: Interrupt,
    began: float,
    attempts: Sequence[Attempt] = (),
) -> list[Outcome]:
    """Train all trials to `training.steps`, each from the newest good checkpoint in its own folder;
    see `loop.train`.

    Args:
      configs: one for each trial, of equal `hyperparameters.signature`.
      task: model, data and loss; one for all.
      batches: those of each trial.
      workdirs: of each trial, locked by this process.
      place: where the trials are.
      progress: shows the trial that is furthest behind.
      interrupt: entered; a remembered signal makes all trials save and leave.
      began: `time.perf_counter()` at the start of the command.
      attempts: this process's at each trial, () for some of their own; their ends are for the
        caller to record.

    Returns:
      The outcome of each trial. A trial that diverges is dropped; the others continue.

    Raises:
      UserError: a checkpoint that cannot be used, a full disk.
      ValueError: trials that cannot be stacked.
    """
    if len({signature(config) for config in configs}) > 1:
        raise ValueError("these trials differ in more than their seeds and numbers")
    with contextlib.ExitStack() as files:
        members, hosts = [], []
        like, fresh = saved_like(configs[0], task), first_states(configs[0], task)
        told = attempts or [Attempt(workdir) for workdir in workdirs]
        for config, attempt, own in zip(configs, told, batches, strict=True):
            journal = files.enter_context(
                contextlib.closing(_journal(config, task, attempt, progress))
            )
            hosts.append(journal.begin(like, fresh))
            step = int(hosts[-1].step)
            members.append(
                Member(
                    journal,
                    own,
                    step,
                    own(step),
                    outcome=Outcome("done", step) if step == config.training.steps else None,
                )
            )
            journal.running(step)
        stack, first = Stack(configs, task, members, hosts, place, progress), None
        while any(member.outcome is None for member in members):
            if interrupt.signal is not None:
                stack.leave(why_stopped(interrupt))
            elif not stack.advance():
                stack.settle()
            first = first or time.perf_counter() - began
    return [
        dataclasses.replace(member.outcome, seconds_to_first_step=first)
        for member in members
        if member.outcome
    ]


class Stack:
    """The state of all trials on the devices, and its updates.

    Args:
      configs, task, members, place, progress: see `train`.
      hosts: the state each trial begins with.
    """

    def __init__(
        self,
        configs: Sequence[Settings],
        task: Stackable,
        members: list[Member],
        hosts: Sequence[TrainState],
        place: Spread,
        progress: Progress,
    ) -> None:
        self.task, self.members, self.place, self.progress = task, members, place, progress
        self._feed = Feed.of(configs, -(-len(members) // place.count) * place.count)
        which = Trained.of(configs[0])
        self._seen = jax.vmap(which.seen) if which.rank else which.seen
        self._pads = not draws(task, which.seen(hosts[0].params), members[0].batch)
        self._step: Step = make_stacked_step(configs[0], task)
        self._programs: dict[Shapes, Program] = {}
        idle = [hosts[0]] * (self._feed.slots - len(members))
        self._state = place.place(jax.tree.map(lambda *leaves: np.stack(leaves), *hosts, *idle))

    def advance(self) -> bool:
        """One update of as many trials as can move together. Returns whether any could."""
        batches = {
            i: one.batch
            for i, one in enumerate(self.members)
            if one.outcome is None and not one.waits
        }
        if not batches:
            return False
        moving = turn({i: sum(shapes_of(batch), ()) for i, batch in batches.items()}, self._pads)
        fed = self.place.feed(self._feed({i: batches[i] for i in moving}))
        program = self._program(fed)
        clock = time.perf_counter()
        self._state, sums = program(self._state, fed)
        for member in (self.members[i] for i in moving):
            member.batch = member.batches(
                member.step + 1
            )  # the next ones, while the devices are at work
        sums = self.place.fetch(sums)
        seconds = time.perf_counter() - clock
        for i in moving:
            self._stepped(
                self.members[i],
                {name: float(values[i]) for name, values in sums.items()},
                seconds,
                len(moving),
            )
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
        """Evaluate and save the trials that wait for it; those at their last step are done."""
        waiting = {i: member for i, member in enumerate(self.members) if member.waits}
        evaluated = [i for i, member in waiting.items() if member.journal.evaluates(member.step)]
        scores = (
            self.task.evaluate_stacked(self._seen(self.place.one(self._state.averaged)), "valid")
            if evaluated
            else []
        )
        improved = {i for i in evaluated if waiting[i].journal.scored(waiting[i].step, scores[i])}
        self._save(
            [
                i
                for i, member in waiting.items()
                if i in improved or member.journal.saves(member.step)
            ],
            improved,
        )
        for member in waiting.values():
            member.waits = False
            if member.outcome is None and member.step == member.journal.last:
                member.outcome = Outcome("done", member.step)

    def leave(self, why: str) -> None:
        """Save all trials that are under way, and end them."""
        self.settle()
        self._save(
            [i for i, member in enumerate(self.members) if member.outcome is None and member.step],
            set(),
        )
        for member in self.members:
            member.outcome = member.outcome or Outcome("interrupted", member.step, message=why)

    def _save(self, which: list[int], best: set[int]) -> None:
        """Save the states of some trials."""
        host = self.place.fetch(self._state) if which else None
        for i in which:
            member, own = self.members[i], jax.tree.map(lambda leaf, i=i: leaf[i], host)
            if wrong := member.journal.save(member.step, own, i in best):
                member.outcome = Outcome("diverged", member.step, message=wrong)

    def _stepped(
        self, member: Member, values: dict[str, float], seconds: float, together: int
    ) -> None:
        """Record an update of a trial, one of `together` that took these seconds; its pace is an
        equal share of them.
        """
        member.step += 1
        share = seconds / together
        pace = {
            "step_seconds": share,
            "tokens_per_second": values["tokens"] / share,
            "together": together,
        }
        if wrong := member.journal.stepped(member.step, values, pace):
            member.outcome = Outcome("diverged", member.step, message=wrong)
            return
        member.waits = member.journal.evaluates(member.step) or member.journal.saves(member.step)
        member.journal.running(member.step)

    def _program(self, fed: Mapping[str, Tree]) -> Program:
        """The compiled step for batches of this shape."""
        shapes = shapes_of(fed["batch"])
        if shapes not in self._programs:
            clock = time.perf_counter()
            self._programs[shapes] = self.place.compile(self._step, self._state, fed)
            seconds = time.perf_counter() - clock
            for member in self.members:
                member.journal.compiled(member.step + 1, seconds / len(self.members))
            self.progress.compiled(f"batches of {spoken(shapes)}", seconds)
        return self._programs[shapes]


def make_stacked_step(config: Settings, task: Stackable) -> Step:
    """`step(state, fed) -> (state, sums)`, all with a leading trial axis.

    Args:
      config: of any of the trials.
      task: see `train`.

    Returns:
      The step. `fed` holds "batch", "moves" (bool, whether a trial makes an update) and "numbers"
      (those that differ, by dotted name).
    """

    which = Trained.of(config)

    def one(state: TrainState, fed: Mapping[str, Tree]) -> tuple[TrainState, Sums]:
        numbers, settings = fed["numbers"], config.training
        optimizer, _ = build_optimizer(
            config.optimizer,
            config.schedule,
            steps=settings.steps,
            clip=settings.clip,
            instead=numbers,
        )
        loss = (
            functools.partial(task.loss, smoothing=numbers[SMOOTHING])
            if SMOOTHING in numbers
            else task.loss
        )
        how = {
            "accumulate": settings.accumulate,
            "ema": numbers.get("training.ema", settings.ema),
            "compute": settings.compute,
            "follow": task.follow,
            "which": which,
        }
        after, sums = make_step(loss, task.weight, optimizer, **how)(state, fed["batch"])
        return jax.tree.map(lambda new, old: jnp.where(fed["moves"], new, old), after, state), sums

    return jax.vmap(one)


def _journal(config: Settings, task: Task, attempt: Attempt, progress: Progress) -> Journal:
    workdir = attempt.workdir
    _, schedule = build_optimizer(
        config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip
    )
    return Journal(
        config,
        workdir,
        schedule,
        progress,
        declared(task),
        f"{workdir.parent.name}/{workdir.name}, ",
        attempt,
    )
