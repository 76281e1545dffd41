"""Plans of the launcher: the one in the folder while it is valid, else one made in a process that is
forked from the server of the trials (`live`), since that has imported jax.
"""

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from attnlab.errors import TRACEBACK, UserError, note, one_line, show_traceback, users_code
from attnlab.experiments.define import AS_IT_IS, Changes
from attnlab.experiments.plan import Candidate, Plan, fairness, locked, own_files, unchanged_plan
from attnlab.experiments.run.live import start
from attnlab.experiments.run.output import write_output_to

PATIENCE, BETWEEN = 2.0, 10.0  # seconds before the first line on the progress, and between two


def ensure(
    file: str,
    directory: Path,
    changes: Changes = AS_IT_IS,
    cores: Callable[[Plan], int | None] = lambda plan: None,
) -> Plan:
    """Returns the plan of an experiment file in the sweep folder: the existing one if nothing has
    changed, else a new or extended one, made in another process; sets `cores(plan)` cores per trial
    if none are set and no trial has begun; writes the plan if it differs.

    An experiment that has not changed is not planned again.

    Args:
      file: "experiments/quickstart.py", with an argument "experiments/bottleneck.py:my/folder".
      directory: the sweep folder; made if absent.
      changes: of the command line; part of the experiment.
      cores: how many each trial of a plan gets, if the plan does not say and no trial has begun.

    Raises:
      UserError: a mistake in the file, or the folder holds trials that no longer fit (see
        `growth`), or a candidate misses the budget.
    """
    present = unchanged_plan(file, directory, changes)
    new = None
    if present is None:
        old = Plan.read(directory)
        new = fairness.check_budget(_planned("made", file, directory, changes), old)
    number = cores(new or present or Plan.of_sweep(directory))
    with locked(directory):
        before = Plan.read(directory)
        keep = changes.keep or (before.keep if before else "all")
        plan = (new or Plan.of_sweep(directory)).with_cores(number, directory)
        plan = dataclasses.replace(plan, keep=keep)
        if new is not None:
            for line in own_files(plan).keep(directory):
                print(f"note: {line}", file=sys.stderr)
        if plan != present:
            plan.write(directory)
    return plan


def draft(file: str, directory: Path, changes: Changes = AS_IT_IS) -> Plan:
    """Returns the plan that `ensure` would return, without cores and without the check of budgets;
    writes nothing.
    """
    present = unchanged_plan(file, directory, changes)
    return present or _planned("made", file, directory, changes)


def grow(directory: Path, points: Iterable[tuple[str, dict[str, Any]]]) -> list[Candidate]:
    """Adds candidates for those `points`, (variant, tuned settings) pairs, that the plan in a
    folder lacks, and returns the candidates of all points in order; safe with several processes at
    once.

    Args:
      directory: a sweep folder with a plan.
      points: variant and tuned settings of each.

    Returns:
      The candidates in the order of `points`; existing candidates are returned too.

    Raises:
      UserError: there is no plan, or a setting does not fit.
    """
    points = list(points)
    plan = Plan.of_sweep(directory)
    wanted = [plan.want(variant, tuned).id for variant, tuned in points]
    if None in [plan.made_of(identity) for identity in wanted]:
        plan = Plan.extend(directory, _planned("grown", directory, points).candidates)
    return [candidate for candidate in map(plan.made_of, wanted) if candidate is not None]


def _planned(function: Literal["made", "grown"], *given: Any) -> Plan:
    """Calls `made` or `grown` of `plan.process` in a forked process and returns its plan; prints
    its notes and progress on stderr and raises its error as `UserError`.
    """
    receiver, sender = Pipe(duplex=False)
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as log:
        place = (Path(log.name), Path.cwd(), dict(os.environ))
        process = start(_plan, sender, *place, function, given, name="planning")
        sender.close()
        try:
            refusal, text = _answer(receiver)
        except EOFError:
            process.join()
            *before, last = log.read().strip().splitlines() or ["it said nothing"]
            print(*before, sep="\n", file=sys.stderr)
            words = f"planning failed (exit code {process.exitcode}): {last}"
            raise UserError(words) from None
        finally:
            process.kill()
            process.join()
        for line in log:
            if line.startswith("note: "):
                note(line.removeprefix("note: ").rstrip("\n"))  # unless this process has said so
            elif refusal and os.environ.get(TRACEBACK):
                print(line, end="", file=sys.stderr)
    if refusal:
        raise UserError(refusal)
    return Plan.from_json(text, "the draft of a plan")


def _answer(receiver: Connection) -> tuple[str, str]:
    """Waits for the message of the planning process and returns (error message or "", text of the
    plan); prints the count of candidates if that takes long. Nothing is printed before it counts: a
    mistake found until then stays one line.
    """
    began, done, total, due = time.monotonic(), 0, 0, PATIENCE
    while True:
        if not total or receiver.poll(max(0.0, due - (time.monotonic() - began))):
            first, second = receiver.recv()
            if isinstance(first, str):
                return first, second
            done, total = first, second
            continue
        print(f"planning: {done} of {total} candidates", file=sys.stderr, flush=True)
        due = time.monotonic() - began + BETWEEN


def _plan(
    sender: Connection,
    log: Path,
    folder: Path,
    environment: dict[str, str],
    function: Literal["made", "grown"],
    given: tuple[Any, ...],
) -> int:
    """The main function of the planning process: calls `function` of `plan.process` with `given`,
    in `folder` and `environment`, with output to `log`; sends the counts and then the plan as text
    or the error through `sender`; returns the exit code, 0 or 2.
    """
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    write_output_to(log)
    import jax

    from attnlab.experiments.plan import process

    # shapes and counts only: accelerators are for the trials
    jax.config.update("jax_platforms", "cpu")
    try:
        with users_code():
            make = getattr(process, function)
            plan = make(*given, count=lambda done, total: sender.send((done, total)))
    except (UserError, OSError) as error:
        show_traceback(error)
        sender.send((one_line(error), ""))
        return 2
    sender.send(("", plan.to_json()))
    return 0
