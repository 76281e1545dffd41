"""The process of a job: it trains a trial, or several as one program, or evaluates a chosen
candidate on the test split.

Exit code 0: done, now or before; 1: one failed or diverged, or an error ended all; 2: nothing was
begun, and one line on stderr says why; 75: another process is at one of them; 76: and the locks do
not hold; 78: code or data is not what the sweep was planned with; 128 + n: stopped by signal n.
"""

import sys
from pathlib import Path

from attnlab.errors import UserError, one_line
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run import scoring, training
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.training import UNLOCKED
from attnlab.experiments.run.unchanged import CHANGED
from attnlab.records.locks import Unlocked
from attnlab.records.provenance import Changed


def named(directory: Path, name: str) -> Trial:
    """Returns the trial called "additive-3f2a9c1b/seed0", for example, in the plan of a sweep
    folder; raises `UserError` if there is none.

    Raises:
      UserError: a name of another form, no plan, no such trial.
    """
    plan = Plan.of_sweep(directory)
    candidate, _, seed = name.partition("/seed")
    if not seed.isdecimal():
        raise UserError(f"{name!r} is no trial: expected CANDIDATE/seedN")
    return plan.trial(candidate, int(seed))


def perform(directory: Path, job: Job, slot: Slot | None = None) -> int:
    """Trains the trials of a job, or evaluates its candidate, in this process and returns the exit
    code, that of `training.run` or `scoring.run`, or after an error of the user's, printed on
    stderr, `CHANGED`, `UNLOCKED` or 2.
    """
    try:
        if job.kind == "final":
            return scoring.run(directory, job.trials[0].candidate.id)
        return training.run(directory, job.trials, slot)
    except Changed as error:
        print(f"error: {error}", file=sys.stderr)
        return CHANGED
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return UNLOCKED if isinstance(error, Unlocked) else 2
