"""A whole sweep, once it is planned: trials, choice, the one look at the test split; on this
machine or on a cluster.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Plan
from attnlab.experiments.run import ray, slurm
from attnlab.experiments.run.board import Board, failures
from attnlab.experiments.run.jobs import Executor
from attnlab.experiments.run.launcher import Launcher, retry_failed
from attnlab.experiments.run.live import DEFAULTS, WorkOptions
from attnlab.experiments.run.selection import Choice, wanted
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import recorded
from attnlab.experiments.run.stop import Stop
from attnlab.experiments.run.worker import Worker


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Options of running a sweep.

    Attributes:
      slots: of this machine; () on a cluster.
      cluster: the resources on SLURM or Ray; None for this machine.
      stack: whether trials that differ only in seed or numbers train as one program: "on", "off",
        or "auto" (if trials have GPUs).
      retry_failed: run trials again that have failed.
      accept_failed: choose without trials that have failed.
      work: of its workers.
      final: choose, and read the test split, at the end.
    """

    slots: Sequence[Slot] = ()
    cluster: slurm.Request | ray.Request | None = None
    stack: str = "auto"
    retry_failed: bool = False
    accept_failed: bool = False
    work: WorkOptions = DEFAULTS
    final: bool = True


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a sweep ended.

    Attributes:
      signal: that stopped it; None if it finished.
      wrong: a line for each trial that failed or diverged, and for each job that could not be run.
    """

    signal: int | None
    wrong: tuple[str, ...]


def run_sweep(directory: Path, options: SweepOptions) -> Ended:
    """Runs the rest of a planned sweep, whose lock the caller holds: reopens failed trials if
    asked, trains, and with `final` chooses and evaluates on the test split; returns `Ended`, the
    signal that stopped it and a line for each failure.
    """
    options.work.part.check(Plan.of_sweep(directory))
    if options.retry_failed:
        count = retry_failed(directory, options.work.part)
        print(f"{count} failed trials are run again", file=sys.stderr)
    with Stop() as stop, Board(Plan.of_sweep(directory), directory, len(options.slots)) as board:
        executor = _executor(directory, options, board, stop)
        part = options.work.part
        launcher = Launcher(directory, executor, board, stop, part, options.accept_failed)
        lines = launcher.train()
        if stop.signal is None and not lines and options.final:
            lines = launcher.finish()
    wrong = failures(Plan.of_sweep(directory), directory)
    return Ended(stop.signal, (*wrong, *lines))


def _executor(directory: Path, options: SweepOptions, board: Board, stop: Stop) -> Executor:
    """Returns the executor of a sweep's jobs: that of the cluster if one is requested, else a
    worker in this process.
    """
    if options.cluster is not None:
        return options.cluster.executor(directory, board, stop, options.work)
    together = trains_together(directory, options)
    return Worker(directory, options.slots, board, stop, options.work, together)


def trains_together(directory: Path, options: SweepOptions) -> bool:
    """Returns whether several trials may train as one program: with `stack` "on", or "auto" and
    GPUs, but never in a search that prunes.
    """
    search = Plan.of_sweep(directory).search
    # trials of a round stop at steps of their own
    prunes = search is not None and search["pruner"] is not None
    gpus = any("CUDA_VISIBLE_DEVICES" in slot.environment for slot in options.slots)
    return not prunes and (options.stack == "on" or (options.stack == "auto" and gpus))


def devices_wanted(plan: Plan) -> int | None:
    """Returns the largest `parallel.devices` in the configs of a plan's candidates (in its base if
    there are none), or None if that is at most 1.
    """
    configs: list[Mapping[str, Any]] = [candidate.config for candidate in plan.candidates]
    numbers = [config.get("parallel", {}).get("devices", 0) for config in configs]
    most = max(map(int, numbers or [plan.base.get("parallel.devices", 0)]))
    return most if most > 1 else None


def outlook(plan: Plan, directory: Path) -> str:
    """Returns a text on how many trials a plan has (of a search: at most), how many have settled in
    the folder, and how many a frozen choice excludes.
    """
    choice = Choice.read(directory)
    trials = wanted(plan, choice)
    settled = sum(recorded(trial, directory).settled for trial in trials)
    frozen = [variant for variant in plan.variants if choice and choice.candidate(variant)]
    if plan.search is None or len(frozen) == len(plan.variants):
        text = f"{len(trials)} trials: seeds {', '.join(map(str, plan.seeds))}"
    else:
        more = sum(trial.candidate.variant in frozen for trial in trials)
        text = _searched(plan, len(plan.variants) - len(frozen), more)
    if settled:
        text += f"; {settled} of them have settled before"
    if left := len(plan.trials()) - len(trials):
        text += f"; the choice is frozen ({', '.join(frozen)}), so {left} trials of candidates that"
        text += " were not chosen are left out"
    return text


def _searched(plan: Plan, variants: int, more: int) -> str:
    """Returns a text on the trials of a search over so many `variants`: its settings, its seeds,
    and the most trials, including `more` trials of variants whose choice is frozen.
    """
    assert plan.search is not None
    (first, *others), number = plan.seeds, plan.search["trials"]
    space = ", ".join(plan.search["space"])
    searched = f"{number} settings of {space} for each of {variants} variants, with seed {first}"
    chosen = f"; the best of each with seeds {', '.join(map(str, others))} too" if others else ""
    frozen = f"; {more} of variants whose choice is frozen" if more else ""
    most = variants * (number + len(others)) + more
    return f"{searched}{chosen}{frozen}: at most {most} trials"
