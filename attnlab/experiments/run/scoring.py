"""The one evaluation of a chosen candidate on the test split, all its seeds in one process: they
share the compiled programs.

Needs the frozen choice. Seeds with results are not evaluated again; missing pictures are drawn.
"""

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run.output import write_output_to
from attnlab.experiments.run.selection import Choice, note_test
from attnlab.experiments.run.state import recorded
from attnlab.experiments.run.training import HELD, check_code, check_data
from attnlab.records.files import timestamp, write_atomic
from attnlab.records.locks import Held, RunLock, Unlocked
from attnlab.records.manifest import LOOK, Manifest
from attnlab.records.provenance import Changed
from attnlab.records.sealed import check_test_split


def due(plan: Plan, choice: Choice, directory: Path) -> dict[str, list[Trial]]:
    """Returns {candidate id: trials} of the chosen candidates' trials that are done but lack test
    results or pictures; leaves out candidates without any.
    """
    chosen = {choice.candidate(variant) for variant in plan.variants}
    trials_due: dict[str, list[Trial]] = {}
    for candidate in plan.candidates:
        trials = [Trial(candidate, seed) for seed in plan.seeds if candidate.id in chosen]
        done = [trial for trial in trials if recorded(trial, directory).state == "done"]
        if lacking := [trial for trial in done if is_left(trial, directory)]:
            trials_due[candidate.id] = lacking
    return trials_due


def is_left(trial: Trial, directory: Path) -> bool:
    """Returns whether a trial lacks test results or pictures."""
    return not (has_results(trial, directory) and drawn(trial.workdir(directory)))


def has_results(trial: Trial, directory: Path) -> bool:
    """Returns whether a trial has been evaluated on the test split."""
    return (trial.workdir(directory) / "results.json").exists()


def drawn(workdir: Path) -> bool:
    """Returns whether the pictures of a run were drawn, or their drawing failed; False if the
    process was killed before that.
    """
    return (workdir / "curves.png").exists() or (workdir / "pictures_failed.txt").exists()


def run(directory: Path, candidate: str) -> int:
    """Evaluates on the test split those trials of a chosen candidate, given by its id, that lack
    test results or pictures, after it has recorded that in `looks.jsonl`; returns the exit code (0,
    1 or `HELD`); raises `UserError` without a frozen choice.

    Raises:
      UserError: no plan, the choice is not frozen, or another candidate was chosen.
      Changed: code, vocabulary or test split has changed since the trials were trained, or others
        were scored.
    """
    plan, choice = Plan.read(directory), Choice.read(directory)
    if plan is None or choice is None:
        raise UserError(
            f"{directory} has no frozen choice: the test split stays closed until all trials have"
            " settled"
        )
    trials = due(plan, choice, directory).get(candidate, [])
    if not trials:
        check_test_split(plan.trial(candidate, plan.seeds[0]).workdir(directory))
        return 0
    write_output_to(trials[0].workdir(directory) / "log.txt")
    try:
        seeds = [trial.seed for trial in trials if not has_results(trial, directory)]
        note_test(directory, plan, candidate, seeds)
        return _evaluate(trials, directory)
    except (Changed, Unlocked):
        raise
    except (Exception, SystemExit) as error:
        traceback.print_exception(error)
        return 1


def _evaluate(trials: Sequence[Trial], directory: Path) -> int:
    """Scores on the test split, read once, the trials that lack results and draws missing pictures
    (maps of one seed alone), with output going to each trial's log.txt; returns 1 if one failed,
    else `HELD` if another process works on one, else 0; raises `Changed` or `Unlocked`, which stops
    the rest.
    """
    from attnlab import config as configs
    from attnlab.analysis.results import draw_all, report
    from attnlab.tasks import TASKS
    from attnlab.training.devices import use_precision
    from attnlab.training.run import start_jax
    from attnlab.training.updates import Updates, best_params

    start_jax()
    task: Any = None
    codes = [0]
    for trial in trials:
        workdir = trial.workdir(directory)
        write_output_to(workdir / "log.txt")
        check_code(trial)  # before it is imported
        config = configs.prepare(configs.from_dict(trial.config))
        code = check_code(trial)
        # maps are drawn of one seed, which a report shows: they take most of the time
        drawings = workdir.parent.glob("seed*/maps/*.png")
        pictures = all(workdir in path.parents for path in drawings)
        try:
            with RunLock(workdir):
                if not is_left(trial, directory):  # another process was faster
                    continue
                use_precision(config.training.precision)
                kind = TASKS.resolve(config.task)
                task = task or kind.load(config, workdir, ("test",))  # the same for all seeds
                _check(trial, directory, task.data.fingerprints)
                if has_results(trial, directory):
                    draw_all(task, best_params(config, task, workdir)[0], workdir, pictures)
                else:
                    updates = Updates.for_reading(config)
                    scored = report(updates, task, workdir, code, pictures=pictures)
                    codes.append(int(not scored))
            if not drawn(workdir):  # the disk is full: not even the reason can be written
                codes.append(1)
        except Held:
            codes.append(HELD)
        except (Changed, Unlocked):
            raise
        except (Exception, SystemExit) as error:  # the other seeds can be evaluated all the same
            traceback.print_exception(error)
            codes.append(1)
    return 1 if 1 in codes else max(codes)


def _check(trial: Trial, directory: Path, digests: Mapping[str, str]) -> None:
    """Raises `Changed` unless the vocabulary and the test split (`digests`: split to hash) are
    those of the trial and of the sweep's other trials; then records in the trial's folder that the
    split was read.
    """
    workdir = trial.workdir(directory)
    manifest = Manifest.read(workdir)
    if manifest is not None:
        manifest.check_vocabulary(workdir)
    check_data(trial, directory, digests)
    look = {"time": timestamp(), "data": dict(digests)}
    write_atomic(workdir / LOOK, json.dumps(look, indent=1) + "\n")
