"""`sweep`: from an experiment file to a report; the same command again goes on where it was."""

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attnlab.commands.sweep_flags import add_arguments as add_arguments
from attnlab.commands.sweep_flags import default_directory, seeds, work_options
from attnlab.errors import UserError
from attnlab.experiments import report
from attnlab.experiments import run as running
from attnlab.experiments.define import Changes, Experiment, InlineExperiment, load_experiment
from attnlab.experiments.plan import Plan, fairness, write_tasks
from attnlab.experiments.run import SweepOptions, slots
from attnlab.pages.tables import scaled
from attnlab.progress import table
from attnlab.records import tracking
from attnlab.records.files import check_folder, write_atomic


def run(arguments: argparse.Namespace, task: str = "", *, only_plan: bool = False) -> int:
    """Plans an experiment (or one `task` of it), runs its trials, evaluates and reports, or resumes
    that, and returns the exit code; with `only_plan` only plans, with `--dry-run` prints the plan.

    Returns:
      0 when all is done, 1 when a trial failed or could not be run, 128 + a signal's number.
    """
    inline = _inline_experiment(arguments)
    usual = f"runs/sweep-{inline.name}" if inline else default_directory(arguments.file)
    directory = Path(arguments.dir or usual)
    check_folder("--dir", directory)
    written = None if inline is None else directory / f"{inline.name}.py"
    _check_contents(directory, written)
    of_plan = arguments.accept_changed_code, arguments.change_plan, arguments.accept_unmatched
    given = tuple(arguments.overrides), seeds(arguments.seeds)
    changes = Changes(*given, *of_plan, arguments.keep, task)
    experiment = None if inline or task else load_experiment(arguments.file, changes)
    if experiment is not None and experiment.tasks:
        return _run_tasks(arguments, directory, experiment)
    tracked = tracking.Tracking.choose(directory, arguments.track)
    if arguments.dry_run:
        with (
            tempfile.TemporaryDirectory(prefix="attnlab-") as folder,
            _experiment_file(inline, written and Path(folder) / written.name) as file,
        ):
            print_plan(running.draft(file or arguments.file, directory, changes), directory)
        return 0
    options = _sweep_options(arguments)

    def cores(plan: Plan) -> int | None:
        return slots_and_cores(plan, options, arguments)[1]

    def ensure() -> Plan:
        """Writes the experiment file of the flags, if any, and returns the plan, made or extended."""
        with _experiment_file(inline, written) as file:
            return running.ensure(file or arguments.file, directory, changes, cores)

    if not directory.exists():
        ensure()  # so that a bad file leaves no folder
    with running.lock(directory):
        planned = ensure()
        if only_plan:
            return 0
        for line in fairness.budget_lines(planned):
            print(line)
        sized = with_slots(planned, options, directory, arguments)
        with tracked.beside(directory):
            return _run_and_report(directory, sized)


def _run_tasks(arguments: argparse.Namespace, directory: Path, experiment: Experiment) -> int:
    """Runs a sweep for each task of an experiment in `directory`/task, after planning all, and
    writes the report on all (with `--dry-run` only prints the plans); returns the largest exit code
    (at once after a signal); removes a new folder if planning fails.
    """

    def run_task(task: str, **stage: bool) -> int:
        values = {**vars(arguments), "dir": str(directory / task)}
        try:
            return run(argparse.Namespace(**values), task, **stage)
        except UserError as error:
            raise UserError(f"task {task!r}: {error}") from error

    codes = [0]
    if arguments.dry_run:
        return max(map(run_task, experiment.tasks))
    with contextlib.ExitStack() as undo:
        if not directory.exists():
            undo.callback(shutil.rmtree, directory, ignore_errors=True)
        write_tasks(directory, experiment, arguments.change_plan)
        for task in experiment.tasks:
            run_task(task, only_plan=True)
        undo.pop_all()
    for task in experiment.tasks:
        codes.append(run_task(task))
        if codes[-1] > 1:  # a signal
            return codes[-1]
    report.write_over_tasks(directory)
    return max(codes)


def _inline_experiment(arguments: argparse.Namespace) -> InlineExperiment | None:
    """Returns the experiment that the flags define, or None if an experiment file is named instead;
    raises `UserError` for both or neither.

    Raises:
      UserError: both, or neither.
    """
    names = [field.name for field in dataclasses.fields(InlineExperiment)]
    values = {name: getattr(arguments, name) for name in names}
    flags = [f"--{name}" for name, value in values.items() if value and name != "overrides"]
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
    return InlineExperiment(**values)


@contextlib.contextmanager
def _experiment_file(inline: InlineExperiment | None, path: Path | None) -> Iterator[str | None]:
    """Context manager: writes the experiment of the flags to `path` and yields that path as text
    (without flags writes nothing, yields None); restores file and folder if the block raises.
    """
    if inline is None or path is None:
        yield None
        return
    text = inline.file()
    new_folder = not path.parent.exists()
    old_content = path.read_bytes() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
    try:
        yield str(path)
    except BaseException:
        path.unlink() if old_content is None else write_atomic(path, old_content)
        if new_folder:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        raise


def _sweep_options(arguments: argparse.Namespace) -> SweepOptions:
    """Returns the `SweepOptions` from the command line, with the slots of this machine or a cluster
    request that has been checked; raises `UserError` for flags that do not go together, or without
    SLURM or Ray where it is asked for.

    Raises:
      UserError: flags that do not go together, or no SLURM or Ray where it is asked for.
    """
    if arguments.accept_failed and arguments.no_final:
        raise UserError("--accept-failed: nothing is chosen with --no-final; leave one of them out")
    options = running.SweepOptions(
        stack=arguments.stack,
        retry_failed=arguments.retry_failed,
        accept_failed=arguments.accept_failed,
        work=work_options(arguments),
        final=not arguments.no_final,
    )
    if arguments.executor == "local":
        cores = arguments.cores_per_trial
        slots = running.local_slots(arguments.slots, arguments.devices_per_trial, cores)
        return dataclasses.replace(options, slots=slots)
    name = arguments.executor
    if arguments.devices_per_trial is not None:
        raise UserError(
            f"--devices-per-trial: a worker of --executor={name} has what --{name}.gpus asks for;"
            " use that"
        )
    request = (running.slurm if name == "slurm" else running.ray).request(arguments)
    request.check()
    if arguments.stack == "on":
        raise UserError(
            f"--stack=on: workers of --executor={name} take one trial at a time; leave it out"
        )
    return dataclasses.replace(options, cluster=request)


def slots_and_cores(
    plan: Plan, options: SweepOptions, arguments: argparse.Namespace
) -> tuple[list[slots.Slot], int | None]:
    """Returns the slots for the trials of a plan, and the number of cores for each trial if the
    plan does not fix it: `--cores-per-trial`, else that of cluster or slots, or None for trials on
    GPUs.
    """
    wanted, cluster = arguments.cores_per_trial, options.cluster
    if cluster is not None:
        slots = [running.slots.Slot(0, tuple(range(cluster.cores)))]
        return slots, wanted or (None if cluster.gpus else cluster.cores)
    devices = arguments.devices_per_trial or running.devices_wanted(plan)
    slots = running.local_slots(arguments.slots, devices, plan.cores or wanted)
    return slots, wanted or running.slots.planned_cores(slots)


def with_slots(
    plan: Plan, options: SweepOptions, directory: Path, arguments: argparse.Namespace
) -> SweepOptions:
    """Returns the options with slots of as many cores as the plan in `directory` fixes (none on a
    cluster); raises `UserError` if `--cores-per-trial` differs, or slots have fewer cores without
    `--accept-cores`.

    Raises:
      UserError: `--cores-per-trial` is not what was planned, or there are fewer here.
    """
    cluster, slots = options.cluster, slots_and_cores(plan, options, arguments)[0]
    if arguments.cores_per_trial not in (None, plan.cores):
        raise UserError(
            f"--cores-per-trial={arguments.cores_per_trial}: {directory} was planned with"
            f" {plan.cores or 'any number'}; leave it out, or use another --dir"
        )
    if cluster is None or not cluster.gpus:
        slots = running.slots.with_planned_cores(slots, plan.cores, arguments.accept_cores)
    return dataclasses.replace(options, slots=slots if cluster is None else ())


def _run_and_report(directory: Path, options: SweepOptions) -> int:
    """Runs the remaining trials of a sweep, whose lock the caller has, prints errors, and writes
    the report unless interrupted; returns the exit code: 0, 1 after a failure, 128 + signal.
    """
    result = running.run_sweep(directory, options)
    for line in result.wrong:
        print(line, file=sys.stderr)
    if result.signal is not None:
        message = f"interrupted: all is saved in {directory}; the same command goes on from here"
        print(message, file=sys.stderr)
        return 128 + result.signal
    report.write(directory)
    return 1 if result.wrong else 0


def print_plan(plan: Plan, directory: Path) -> None:
    """Prints a plan: the table of its candidates (the names of the variants if a search has none
    yet), how budgets match, the (largest) number of trials, and, for several variants, the smallest
    difference to the baseline that its seeds can detect.
    """
    rows = [
        (
            x.id,
            x.variant,
            f"{x.parameters:,}",
            scaled(x.flops),
            ", ".join(f"{k}={v}" for k, v in x.tuned.items()),
        )
        for x in plan.candidates
    ]
    if rows or plan.search is None:
        table(
            plan.question, ("candidate", "variant", "parameters", "FLOPs per step", "tuned"), rows
        )
    else:
        print(f"{plan.question}\n{', '.join(plan.variants)}")
    for line in fairness.budget_lines(plan):
        print(line)
    if any(x.budget and not x.budget["matched"] for x in plan.candidates):
        print(f"a budget that is missed is refused when the sweep begins, unless {fairness.FLAG}")
    print(running.outlook(plan, directory))
    if expectation := report.foresight(plan):
        print(expectation)


def _check_contents(directory: Path, written: Path | None) -> None:
    """Raises `UserError` if the folder exists without a plan and contains anything but hidden
    files, `code` and the experiment file `written`.
    """
    if directory.is_dir() and not {"plan.json", "tasks.json"} & {*os.listdir(directory)}:
        own_files = {"code", written.name if written is not None else "code"}
        others = [name for name in sorted({*os.listdir(directory)} - own_files) if name[0] != "."]
        if others:
            raise UserError(
                f"--dir={directory} is not empty and holds no sweep ({others[0]} is there); name"
                " a new or empty folder"
            )
