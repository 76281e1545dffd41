"""The process of a job: it trains a trial, or several as one program, or evaluates a chosen
candidate on the test split.

    python -m attnlab.experiments.run DIR train additive-3f2a9c1b/seed0 [additive-3f2a9c1b/seed1 ...]
    python -m attnlab.experiments.run DIR final additive-3f2a9c1b

Exit code 0: done, now or before; 1: one failed or diverged, or an error ended all; 2: nothing was
begun, and one line on stderr says why; 75: another process is at one of them; 78: code or data is
not what the sweep was planned with; 128 + n: stopped by signal n.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.errors import UserError, one_line
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run import scoring, training
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.slots import Slot, usable_cores, with_planned_cores
from attnlab.experiments.run.unchanged import CHANGED
from attnlab.records.provenance import Changed


def main(argv: Sequence[str] | None = None) -> int:
    """Do the job that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m attnlab.experiments.run", description=__doc__)
    parser.add_argument("directory", type=Path, help="the sweep's folder")
    parser.add_argument("kind", choices=("train", "final"))
    parser.add_argument(
        "names",
        nargs="+",
        metavar="CANDIDATE[/seedN]",
        help="trials of one group; of a final, the candidate alone",
    )
    chosen = parser.parse_args(argv)
    try:
        job = Job(
            chosen.kind, tuple(named(chosen.directory, name, chosen.kind) for name in chosen.names)
        )
        plan = Plan.read(chosen.directory)
        cores = None if plan is None else plan.cores
        (slot,) = with_planned_cores([Slot(0, tuple(usable_cores()))], cores)
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    if cores is not None:
        slot.enter()
    return perform(chosen.directory, job)


def named(directory: Path, name: str, kind: str = "train") -> Trial:
    """The trial called "additive-3f2a9c1b/seed0" in the plan of a sweep folder; for a "final" the
    candidate's first is meant.

    Raises:
      UserError: a name of another form, no plan, no such trial.
    """
    plan = Plan.of_sweep(directory)
    if kind == "final":
        return plan.trial(name, plan.seeds[0])
    candidate, _, seed = name.partition("/seed")
    if not seed.isdecimal():
        raise UserError(f"{name!r} is no trial: expected CANDIDATE/seedN")
    return plan.trial(candidate, int(seed))


def perform(directory: Path, job: Job, slot: Slot | None = None) -> int:
    """Do a job in this process; the exit code, see the top of this file."""
    try:
        if job.kind == "final":
            return scoring.run(directory, job.trials[0].candidate.id)
        return training.run(directory, job.trials, slot)
    except Changed as error:
        print(f"error: {error}", file=sys.stderr)
        return CHANGED
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
