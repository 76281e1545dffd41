"""The process of a trial: train it on "train" and "valid", and write down its validation scores. The test split is never opened here.

    python -m attnlab.experiments.running.trial DIR additive-3f2a9c1b 0

Exit code 0: done, now or before; 1: failed or diverged; 75: another process is at it; 78: code or data is not what the sweep was planned
with; 128 + n: stopped by signal n, and saved.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError, told
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.running import unchanged
from attnlab.experiments.running.attempts import Attempt
from attnlab.experiments.running.slots import Slot
from attnlab.experiments.running.state import recorded
from attnlab.files import write_atomic
from attnlab.progress import Progress
from attnlab.provenance import Changed
from attnlab.training.interrupt import Interrupt
from attnlab.training.records import Held, RunLock, Scored, State, Status, best_record, read_records

if TYPE_CHECKING:
    from attnlab.training.loop import Outcome
    from attnlab.training.run import Prepared

HELD = os.EX_TEMPFAIL
_LETTERS: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}  # of the log, whatever the terminal takes


def main(argv: Sequence[str] | None = None) -> int:
    """Train the trial that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m attnlab.experiments.running.trial", description=__doc__)
    parser.add_argument("directory", type=Path, help="the sweep's folder")
    parser.add_argument("candidate", help="the candidate's id")
    parser.add_argument("seed", type=int)
    chosen = parser.parse_args(argv)
    try:
        return run(chosen.directory, chosen.candidate, chosen.seed)
    except (UserError, OSError) as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 2


def run(directory: Path, candidate: str, seed: int, slot: Slot | None = None) -> int:
    """Train a trial of the plan, from where it is.

    Returns:
      The exit code, see the top of this file.

    Raises:
      UserError: there is no such trial, or its folder cannot be used.
      Changed: code or data is not what the sweep was planned with; the trial is as it was, or interrupted.
    """
    began = time.perf_counter()
    trial = find(directory, candidate, seed)
    workdir = trial.workdir(directory)
    workdir.mkdir(parents=True, exist_ok=True)
    write_output_to(workdir / "log.txt")
    try:
        lock = RunLock(workdir)
    except Held:
        return HELD
    with lock:
        if recorded(trial, directory).settled:  # by another process, in the meantime
            return 0
        unchanged.check_code(trial)
        attempt = Attempt.start(workdir, slot)
        try:
            outcome, code = fit(trial, directory, began)
        except Changed as error:
            failed(error, attempt, trial, "interrupted")
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # a user's own module may leave
            return failed(error, attempt, trial)
        attempt.end(outcome.state, outcome.step, outcome.message, outcome.seconds_to_first_step)
        return code


def find(directory: Path, candidate: str, seed: int) -> Trial:
    """The trial of that candidate's id and seed.

    Raises:
      UserError: no plan, no such candidate or seed.
    """
    plan = Plan.read(directory)
    if plan is None:
        raise UserError(f"{directory} holds no sweep (no plan.json in it); 'sweep' makes one")
    return plan.trial(candidate, seed)


def write_output_to(log: Path) -> None:
    """Append what this process prints to `log`, errors included."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False, **_LETTERS) for number in (1, 2))  # noqa: SIM115 - until the end


def fit(trial: Trial, directory: Path, began: float) -> tuple[Outcome, int]:
    """Train until the end or a signal, then write `valid.json`; how it ended, and the exit code."""
    from attnlab import config as configs
    from attnlab.tasks import TASKS
    from attnlab.training.run import Prepared, start_jax

    config = configs.prepare(configs.from_dict(trial.config))
    code = unchanged.check_code(trial)  # what has just been imported is what was there before and is there now
    start_jax()
    with Interrupt() as interrupt, Progress(config.training.steps, every=config.training.log_every) as progress:
        prepared = Prepared.prepare(TASKS.resolve(config.task), config, trial.workdir(directory), ("train", "valid"), code)
        unchanged.check_data(trial, directory, prepared.task.data.fingerprints)
        outcome = prepared.fit(progress, interrupt, began)
    if outcome.state == "done":
        plan = Plan.read(directory)
        assert plan is not None
        write_validation(prepared, plan.select["metric"])
    return outcome, {"done": 0, "interrupted": 128 + int(interrupt.signal or 0)}.get(outcome.state, 1)


def failed(error: BaseException, attempt: Attempt, trial: Trial, state: State = "failed") -> int:
    """Write down why an attempt ended by an error: the whole of it in the log, its line in the records; the exit code.

    The trial is then in `state`; after Ctrl-C it is "interrupted" in any case.
    """
    if isinstance(error, UserError):
        message = str(error)
        print(f"error: {message}", file=sys.stderr)
    else:
        message = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        traceback.print_exception(error)
    state = "interrupted" if isinstance(error, KeyboardInterrupt) else state
    step = int((Status.read(attempt.workdir) or {}).get("step", 0))
    with contextlib.suppress(UserError, OSError):  # where the disk is full, the first error is the one to tell
        attempt.end(state, step, message)
        Status(attempt.workdir, int(trial.config["training"]["steps"])).update(state, step, message)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def write_validation(prepared: Prepared, metric: str) -> None:
    """Write `valid.json`: the scores at the best step on validation, whose parameters are kept.

    They stand in the metric stream already; only a metric of free-running text is decoded for now, with the parameters of that step.

    Raises:
      UserError: the task has no such metric.
    """
    workdir = prepared.workdir
    by = prepared.config.checkpoint.by
    scores = best_record(read_records(workdir / "metrics.jsonl", Scored), by, prepared.task.measures[by])
    if metric not in scores:
        from attnlab.training.loop import best_params

        params, step = best_params(prepared.config, prepared.task, workdir)
        texts, _ = prepared.task.score(params, "valid")
        scores = {**scores, **texts, "step": step}
    if metric not in scores:
        raise UserError(f"select: the validation scores have no {metric!r}; they have {', '.join(scores)}")
    write_atomic(workdir / "valid.json", json.dumps({"split": "valid", **scores}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
