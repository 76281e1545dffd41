"""A real sweep with a failing and a diverging variant, as a user starts it, and what may be done
with it afterwards.
"""

import json
from pathlib import Path

import pytest

from attnlab.commands import session
from attnlab.errors import UserError
from attnlab.experiments.run import Choice, launcher
from tests.commands.tiny import refused
from tests.experiments import real
from tests.experiments.conftest import DONE, ENDS, Swept


def test_the_rest_is_finished_both_are_told_and_the_exit_code_says_so(swept: Swept) -> None:
    plan = real.plan(swept.directory)
    assert swept.code == 1, swept.err
    states = {one.trial.name: one.state for one in launcher.course(swept.directory)}
    assert states == {trial.name: ENDS[trial.candidate.variant] for trial in plan.trials()}
    assert swept.err.count("failed at step 0: RuntimeError: broken on purpose") >= 2
    assert ("diverged at step" in swept.err) == ("wild" in ENDS) and "Traceback" not in swept.err
    assert "exact on the test split" in swept.out and "report: " in swept.out
    for ending in ("md", "csv", "html", "json"):
        assert (swept.directory / f"report.{ending}").stat().st_size
    choice = Choice.read(swept.directory)
    for variant in plan.variants:
        chosen = plan.of(variant)[0].id if variant in DONE else None
        assert choice.candidate(variant) == chosen


def test_the_same_command_again_touches_nothing_that_is_done(swept: Swept, copy: Path) -> None:
    """Only the report is written anew, the same to the byte."""
    files = [path for path in copy.rglob("*") if path.is_file()]
    kept = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    again = real.launch("sweep", swept.file, f"--dir={copy}", "--slots=2", cwd=swept.cwd)
    assert again.returncode == 1 and "starts" not in again.stderr, again.stderr
    changed = [path for path, (when, _) in kept.items() if path.stat().st_mtime_ns != when]
    expected = {".lock", "report.md", "report.csv", "report.html", "report.json", "trials.csv"}
    assert {path.name for path in changed} <= expected
    assert all(path.read_bytes() == kept[path][1] for path in changed if path.name != ".lock")


def test_failed_trials_run_again_on_request_and_no_others(swept: Swept, copy: Path) -> None:
    """From where they were, in attempts of their own; those that diverged would diverge again."""
    flags = (f"--dir={copy}", "--slots=2", "--retry-failed")
    again = real.launch("sweep", swept.file, *flags, cwd=swept.cwd)
    assert again.returncode == 1 and "2 failed trials are run again" in again.stderr
    started = [line.split()[2] for line in again.stderr.splitlines() if line.endswith(" starts")]
    trials = real.plan(copy).trials()
    broken = {one.name for one in trials if one.candidate.variant == "broken"}
    assert {*started} == broken and len(started) == 2
    assert {one.attempts for one in launcher.course(copy) if one.trial.name in broken} == {2}


def test_a_dry_run_writes_nothing(swept: Swept) -> None:
    before = {path: path.stat().st_mtime_ns for path in swept.directory.rglob("*")}
    shown = real.launch("sweep", swept.file, f"--dir={swept.directory}", "--dry-run", cwd=swept.cwd)
    assert shown.returncode == 0 and f"{2 * len(ENDS)} trials: seeds 0, 1" in shown.stdout
    for candidate in real.plan(swept.directory).candidates:
        assert candidate.id in shown.stdout and f"{candidate.parameters:,}" in shown.stdout
    assert before == {path: path.stat().st_mtime_ns for path in swept.directory.rglob("*")}


def asked(workdir: Path, split: str) -> str:
    """The line of an `evaluate` that is refused."""
    return refused("evaluate", f"--workdir={workdir}", f"--split={split}")


def test_the_test_split_of_trials_is_guarded(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open for what was chosen; closed for the rest, and for all before the choice. The validation
    split is open.
    """

    def read(*given: object) -> None:
        raise UserError("it would be read now")

    monkeypatch.setattr(session, "start_jax", read)
    plan, choice = real.plan(copy), real.read(copy / "choice.json")
    workdir = plan.trial(plan.of("additive")[0].id, 0).workdir(copy)
    assert asked(workdir, "test").endswith("error: it would be read now\n")
    choice["chosen"]["additive"]["candidate"] = None
    (copy / "choice.json").write_text(json.dumps(choice))
    assert asked(workdir, "valid").endswith("error: it would be read now\n")
    assert "was not chosen in the sweep" in asked(workdir, "test")
    # nor under another split's name
    renamed = refused("evaluate", f"--workdir={workdir}", "--split=valid", "--config.data.seed=1")
    assert "cannot change after training; these can: decoding.*, parallel.*" in renamed
    (copy / "choice.json").unlink()
    closed = "whose choice is not frozen yet: its test split stays closed"
    assert closed in asked(workdir, "test")
    assert asked(workdir, "valid").endswith("error: it would be read now\n")


def test_nobody_trains_on_in_a_trials_folder(copy: Path) -> None:
    plan = real.plan(copy)
    workdir = plan.trials()[0].workdir(copy)
    trained = refused("train", f"--config={plan.config}", f"--workdir={workdir}")
    assert "is a trial of the sweep" in trained and "'sweep' trains it" in trained


@pytest.mark.full
def test_a_chosen_trial_is_a_run_like_any_other(swept: Swept) -> None:
    """`evaluate` gives the scores that the sweep has written."""
    plan = real.plan(swept.directory)
    workdir = plan.trial(plan.of("additive")[0].id, 1).workdir(swept.directory)
    ended = real.launch("evaluate", f"--workdir={workdir}", "--json", cwd=swept.cwd)
    results = real.read(workdir / "results.json")
    del results["measures"]
    assert ended.returncode == 0, ended.stderr
    expected = {**results, "decoding_seconds": 0, "parameters": 0}
    assert {**json.loads(ended.stdout), "decoding_seconds": 0, "parameters": 0} == expected


def test_stopping_before_the_choice(swept: Swept, copy: Path) -> None:
    """`--no-final` on finished trials: a report, no choice."""
    for path in [copy / "choice.json", *copy.rglob("results.json")]:
        path.unlink()
    ended = real.launch("sweep", swept.file, f"--dir={copy}", "--no-final", cwd=swept.cwd)
    assert ended.returncode == 1 and not (copy / "choice.json").exists()
    assert not list(copy.rglob("results.json"))
    assert (copy / "report.html").is_file()
