"""`sweep`: from an experiment file to a report; the same command again goes on where it was."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.commands.sweep_flags import add_arguments as add_arguments
from attnlab.commands.sweep_flags import default_directory, limit, seeds
from attnlab.errors import UserError
from attnlab.records.files import write_atomic

if TYPE_CHECKING:
    from attnlab.experiments.define import Words
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import How


def run(arguments: argparse.Namespace) -> int:
    """Run the sweep.

    Returns:
      0 when all is done, 1 when a trial failed, diverged or could not be run, 128 + the signal's
      number when interrupted.
    """
    from attnlab.commands.session import check_folder
    from attnlab.experiments import plan
    from attnlab.experiments.define import Changes
    from attnlab.experiments.plan import matching
    from attnlab.experiments.run import lock

    words = _words(arguments)
    directory = Path(
        arguments.dir
        or (default_directory(arguments.file) if words is None else f"runs/sweep-{words.name}")
    )
    check_folder("--dir", directory)
    own = None if words is None else directory / f"{words.name}.py"
    _check_contents(directory, own)
    changes = Changes(
        tuple(arguments.overrides),
        seeds(arguments.seeds),
        arguments.accept_changed_code,
        arguments.change_plan,
        arguments.accept_unmatched,
    )
    if arguments.dry_run:
        with (
            tempfile.TemporaryDirectory(prefix="attnlab-") as folder,
            _kept(words, own and Path(folder) / own.name) as file,
        ):
            show(plan.draft(file or arguments.file, directory, changes), directory)
        return 0
    how = _how(arguments)
    if not directory.exists():
        with _kept(words, own) as file:
            plan.ensure(
                file or arguments.file, directory, changes
            )  # so that a bad file leaves no folder
    with lock(directory):
        with _kept(words, own) as file:
            planned = plan.ensure(file or arguments.file, directory, changes)
        for line in matching.budget_lines(planned):
            print(line)
        return _conducted(directory, with_slots(how, directory, arguments))


def _words(arguments: argparse.Namespace) -> Words | None:
    """What the command line says in place of a file; None if it names one.

    Raises:
      UserError: both, or neither.
    """
    from attnlab.experiments.define import Words

    given = {
        name: getattr(arguments, name)
        for name in ("config", "grid", "tune", "search", "trials", "pruner", "measure")
    }
    flags = [f"--{name}" for name, value in given.items() if value]
    if arguments.file is not None:
        if flags:
            raise UserError(
                f"{flags[0]} is for an experiment without a file; write it into {arguments.file},"
                " or leave that out"
            )
        return None
    if not arguments.config:
        raise UserError(
            "name an experiment, 'sweep experiments/quickstart.py', or a config:"
            " --config=FILE.py:ARGUMENT --grid KEY=V,V"
        )
    compare, tune, search = (tuple(given[name]) for name in ("grid", "tune", "search"))
    return Words(
        arguments.config,
        compare,
        tune,
        search,
        arguments.trials,
        arguments.pruner,
        arguments.measure or "",
    )


@contextlib.contextmanager
def _kept(words: Words | None, path: Path | None) -> Iterator[str | None]:
    """The name of the file that the words of a command line make, written to `path`; if the block
    raises, all is as it was before.
    """
    if words is None or path is None:
        yield None
        return
    text, new = words.file(), not path.parent.exists()
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
    try:
        yield str(path)
    except BaseException:
        path.unlink() if before is None else write_atomic(path, before)
        if new:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        raise


def _how(arguments: argparse.Namespace) -> How:
    """How the command line wants the sweep run.

    Raises:
      UserError: flags that do not go together, or no SLURM where it is asked for.
    """
    from attnlab.experiments import run as running

    if arguments.accept_failed and arguments.no_final:
        raise UserError("--accept-failed: nothing is chosen with --no-final; leave one of them out")
    options = {"stack": arguments.stack, "final": not arguments.no_final}
    options |= {"retry_failed": arguments.retry_failed, "accept_failed": arguments.accept_failed}
    options |= {
        "limit": limit(arguments.trial_timeout),
        "accept_cores": arguments.accept_cores,
        "part": running.Part.of(arguments.only, arguments.skip),
    }
    if arguments.executor == "local":
        cores = arguments.cores_per_trial
        slots = running.local_slots(arguments.slots, arguments.devices_per_trial, cores)
        return running.How(slots=slots, **options)
    if arguments.devices_per_trial is not None:
        raise UserError(
            "--devices-per-trial: a worker of --executor=slurm has what --slurm.gpus asks for; use"
            " that"
        )
    request = running.slurm.request(arguments)
    running.slurm.check()
    if arguments.stack == "on":
        raise UserError(
            "--stack=on: workers of --executor=slurm take one trial at a time; leave it out"
        )
    return running.How(cluster=request, **options)


def with_slots(how: How, directory: Path, arguments: argparse.Namespace) -> How:
    """The same with slots as large as the trials of the plan ask for; a new plan gets the cores of
    its trials from them.

    Raises:
      UserError: `--cores-per-trial` is not what was planned, or there are fewer here.
    """
    from attnlab.experiments import run as running
    from attnlab.experiments.plan import Plan, fix_cores

    wanted, plan, cluster = arguments.cores_per_trial, Plan.of_sweep(directory), how.cluster
    if cluster is None:
        devices = arguments.devices_per_trial or running.devices_wanted(plan)
        slots = running.local_slots(arguments.slots, devices, plan.cores or wanted)
        cores = running.slots.planned_cores(slots)
    else:
        slots = [running.slots.Slot(0, tuple(range(cluster.cores)))]
        cores = None if cluster.gpus else cluster.cores
    plan = fix_cores(directory, wanted or cores)
    if wanted not in (None, plan.cores):
        raise UserError(
            f"--cores-per-trial={wanted}: {directory} was planned with {plan.cores or 'any number'};"
            " leave it out, or use another --dir"
        )
    if cluster is None or not cluster.gpus:
        slots = running.slots.with_planned_cores(slots, plan.cores, arguments.accept_cores)
    return dataclasses.replace(how, slots=slots if cluster is None else ())


def _conducted(directory: Path, how: How) -> int:
    """Run what is left of the sweep, whose lock is held, and report; the exit code."""
    from attnlab.experiments import report
    from attnlab.experiments.run import conduct

    ended = conduct(directory, how)
    for line in ended.wrong:
        print(line, file=sys.stderr)
    if ended.signal is not None:
        print(
            f"interrupted: all is saved in {directory}; the same command goes on from here",
            file=sys.stderr,
        )
        return 128 + ended.signal
    report.write(directory)
    return 1 if ended.wrong else 0


def show(plan: Plan, directory: Path) -> None:
    """Print a plan: its candidates and how many trials they make; of a search, how many it may
    come to.
    """
    from attnlab.experiments.plan import matching
    from attnlab.experiments.report import foresight
    from attnlab.experiments.run import outlook
    from attnlab.progress import table

    rows = [
        (one.id, one.variant, one.parameters, one.flops, _settings(one.tuned))
        for one in plan.candidates
    ]
    if rows or plan.search is None:
        table(
            plan.question, ("candidate", "variant", "parameters", "FLOPs per step", "tuned"), rows
        )
    else:
        print(f"{plan.question}\n{', '.join(plan.variants)}")
    for line in matching.budget_lines(plan):
        print(line)
    if any(one.budget and not one.budget["matched"] for one in plan.candidates):
        print(f"a budget that is missed is refused when the sweep begins, unless {matching.FLAG}")
    print(outlook(plan, directory))
    if found := foresight(plan):
        print(found)


def _settings(tuned: object) -> str:
    return (
        ", ".join(f"{key}={value}" for key, value in tuned.items())
        if isinstance(tuned, dict)
        else ""
    )


def _check_contents(directory: Path, own: Path | None) -> None:
    """Raise `UserError` if the folder is there and holds something that is no sweep, nor the
    experiment file that we write there.
    """
    if directory.is_dir() and not (directory / "plan.json").exists():
        ours = {"code", own.name if own is not None else "code"}
        strangers = sorted(
            name for name in os.listdir(directory) if not name.startswith(".") and name not in ours
        )
        if strangers:
            raise UserError(
                f"--dir={directory} is not empty and holds no sweep ({strangers[0]} is there); name"
                " a new or empty folder"
            )
