"""`sweep`: from an experiment file to a report; the same command again goes on where it was."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.records.files import write_atomic

if TYPE_CHECKING:
    from attnlab.experiments.define import Words
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import How

EPILOG = """\
An experiment file defines get_experiment(argument) -> attnlab.experiments.Experiment; experiments/quickstart.py is a short one.
Every candidate and seed is a trial in DIR/trials, trained in a process of its own: a GPU each where there are some, else a core
each. Ctrl-C once lets trials save and stops, twice kills them. Nothing that is done is run again.
Another machine joins by 'work DIR'; 'status DIR' shows how far all is, and 'stop DIR TRIAL' ends one trial for good.
--config.a.b=value changes a setting of all variants; what the command line changes is part of the experiment.

Without a file, --config names the config, and the flags below what is compared and tuned; the experiment is written to DIR as a file:
  sweep --config=configs/translation.py:rnnsearch --grid system.attention.score=dot,additive --tune schedule.peak=1e-3,3e-3 --seeds=5
A value with a comma of its own stands in brackets: --grid "batch.buckets=(16,32),(64,)"."""
STACK = (
    "train trials that differ in seed or numbers only as one program (auto: where trials have GPUs)"
)
DEVICES = (
    "GPUs of a trial, or devices that XLA makes of its cores (default: the largest parallel.devices"
    " of the configs, else one GPU)"
)
TIMEOUT = (
    "a trial that takes longer, all its attempts together, is stopped and has failed (default:"
    " none)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, the folder, and how to run."""
    from attnlab.commands import session
    from attnlab.experiments.run import slurm

    parser.add_argument("file", nargs="?", metavar="FILE.py[:ARGUMENT]", help="the experiment")
    group = parser.add_argument_group("an experiment without a file")
    group.add_argument("--config", metavar="FILE.py:ARGUMENT", help="the config of all")
    group.add_argument(
        "--grid",
        metavar="KEY=V,V",
        action="append",
        default=[],
        help="compared: every combination is a row of the report",
    )
    group.add_argument(
        "--tune",
        metavar="KEY=V,V",
        action="append",
        default=[],
        help="tried for every row; validation chooses",
    )
    group.add_argument(
        "--search",
        metavar="KEY=RANGE",
        action="append",
        default=[],
        help="searched for every row: log_uniform(1e-4,1e-2)",
    )
    group.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="settings that a search tries for each row (default: 16)",
    )
    group.add_argument("--pruner", metavar="halving", help="stop settings of a search early")
    group.add_argument(
        "--measure",
        metavar="NAME",
        help="what is reported (default: by the task, such as accuracy or bleu)",
    )
    parser.add_argument(
        "--dir", metavar="DIR", help="where the sweep is kept (default: runs/<name of the file>)"
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        help="so many, from 0, or a list: 0,1,2 (the seed 7 alone: 7,); instead of the file's",
    )
    parser.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help="trials at a time (default: one a GPU, else one a core)",
    )
    add_running(parser)
    parser.add_argument(
        "--retry-failed", action="store_true", help="run trials again that have failed"
    )
    parser.add_argument(
        "--accept-failed",
        action="store_true",
        help="choose without trials that have failed, and record it",
    )
    parser.add_argument(
        "--executor",
        choices=("local", "slurm"),
        default="local",
        help="where trials run (default: local)",
    )
    parser.add_argument("--stack", choices=("auto", "on", "off"), default="auto", help=STACK)
    parser.add_argument(
        "--no-final",
        action="store_true",
        help="stop before anything is chosen and the test split is read",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the plan, run and write nothing"
    )
    parser.add_argument(
        "--change-plan",
        action="store_true",
        help="leave out trials that have begun, where file or command line now do",
    )
    session.add_acceptance(parser)
    slurm.add_arguments(parser)
    parser.epilog = EPILOG


def add_running(parser: argparse.ArgumentParser) -> None:
    """What is run and on what, for `work` too."""
    parser.add_argument("--devices-per-trial", type=int, metavar="N", help=DEVICES)
    parser.add_argument(
        "--only",
        metavar="GLOB[,GLOB]",
        help="run only these variants, candidates or trials now; chosen is among all",
    )
    parser.add_argument("--skip", metavar="GLOB[,GLOB]", help="do not run these now")
    parser.add_argument("--trial-timeout", type=float, metavar="MINUTES", help=TIMEOUT)


def run(arguments: argparse.Namespace) -> int:
    """Run the sweep.

    Returns:
      0 when all is done, 1 when a trial failed, diverged or could not be run, 128 + the signal's
      number when interrupted.
    """
    from attnlab.commands.session import check_folder
    from attnlab.experiments import plan
    from attnlab.experiments.define import Changes
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
            plan.ensure(file or arguments.file, directory, changes)
        return _conducted(directory, with_slots(how, directory, arguments))


def _words(arguments: argparse.Namespace) -> Words | None:
    """What the command line says in place of a file; None where it names one.

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
        "part": running.Part.of(arguments.only, arguments.skip),
    }
    if arguments.executor == "local":
        return running.How(
            slots=running.local_slots(arguments.slots, arguments.devices_per_trial), **options
        )
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
    """The same with slots as large as the trials of the plan ask for, where the command line does
    not say.
    """
    from attnlab.experiments.run import devices_wanted, local_slots, read

    if not how.slots or arguments.devices_per_trial is not None:
        return how
    return dataclasses.replace(
        how, slots=local_slots(arguments.slots, devices_wanted(read(directory)))
    )


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


def limit(minutes: float | None) -> float | None:
    """The seconds of `--trial-timeout`.

    Raises:
      UserError: no time at all, or without end.
    """
    if minutes is not None and not 0 < minutes < float("inf"):
        raise UserError(f"--trial-timeout={minutes:g}: expected minutes, a number above 0")
    return None if minutes is None else 60 * minutes


def seeds(listed: str | None) -> tuple[int, ...]:
    """The seeds of "0,1,2", or so many as a single number says, from 0; () for None.

    Raises:
      UserError: neither a number of at least 1 nor whole numbers with commas between.
    """
    if listed is None:
        return ()
    try:
        found = tuple(int(one) for one in listed.removesuffix(",").split(","))
    except ValueError:
        raise UserError(
            f"--seeds={listed}: expected a number of seeds, or whole numbers with commas between,"
            " such as 0,1,2"
        ) from None
    if "," in listed:
        return found
    if not 1 <= found[0] <= 1000:
        raise UserError(
            f"--seeds={listed}: expected how many, from 1 to 1000; the seed {listed} alone is"
            f" --seeds={listed},"
        )
    return tuple(range(found[0]))


def default_directory(file: str) -> str:
    """`runs/<name of the file>`, with its argument if there is one."""
    path, _, argument = file.partition(":")
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", argument).strip("-.")
    return f"runs/{Path(path).stem}{'-' if slug else ''}{slug}"


def show(plan: Plan, directory: Path) -> None:
    """Print a plan: its candidates and how many trials they make; of a search, how many it may
    come to.
    """
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
