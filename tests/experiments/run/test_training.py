"""A trial's process: what it leaves, when it does nothing, and which validation scores count. And
code and data edited while a sweep is at work: it ends with one line, and no trial of it is a
mixture that nobody asked for.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan import Trial
from attnlab.experiments.run import scoring, training
from attnlab.experiments.run.training import check_code, check_data, failed, write_validation
from attnlab.records import attempts, provenance
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.measures import share
from attnlab.records.provenance import Changed
from attnlab.records.stream import read_records
from attnlab.training.pruning import saved_steps
from attnlab.training.settings import Checkpoint
from tests.experiments import real, stub
from tests.experiments.conftest import DONE, Swept
from tests.experiments.synthetic import lines
from tests.refusals import check_refused


def test_a_trial_leaves_an_ordinary_workdir_and_its_own_records(swept: Swept) -> None:
    """Trained on "train" and "valid" alone; where and for how long it ran; the scores of its
    best step.
    """
    plan = real.plan(swept.directory)
    done = [trial for trial in plan.trials() if trial.candidate.variant in DONE]
    for one in done:
        workdir = one.workdir(swept.directory)
        manifest = Manifest.read(workdir)
        assert manifest is not None and set(manifest.data) == {"train", "valid"}
        assert manifest.config["seed"] == one.seed
        assert (workdir / "checkpoints").is_dir()
        start, end = (one for one in attempts.read(workdir) if one["event"] != "step")
        assert start["step"] == 0 and start["slot"] in (0, 1) and len(start["cores"]) >= 1
        assert (end["state"], end["step"]) == ("done", 12)
        assert 0 < end["first_step_seconds"] < end["seconds"] and end["peak_bytes"] > 1e8
        records = read_records(workdir / "metrics.jsonl")
        valid = [record for record in records if record["split"] == "valid"]
        scores = real.read(workdir / "valid.json")
        assert {one.get("of") for one in scores["measures"].values()} == {None, "tokens"}
        assert scores.pop("measures")
        assert scores == min(valid, key=lambda record: record["loss"])
        log = (workdir / "log.txt").read_text()
        assert "step 12: valid loss" in log and "compiled batches" in log


def test_one_that_fails_keeps_its_last_line_and_its_whole_traceback(swept: Swept) -> None:
    for one in real.plan(swept.directory).trials():
        workdir = one.workdir(swept.directory)
        end = attempts.read(workdir)[-1]
        if one.candidate.variant == "broken":
            assert (end["state"], end["message"]) == ("failed", "RuntimeError: broken on purpose")
            log = (workdir / "log.txt").read_text()
            assert "Traceback" in log and "broken_for_a_test.py" in log
            assert not (workdir / "valid.json").exists()
        if one.candidate.variant == "wild":
            assert end["state"] == "diverged" and "at step" in end["message"]
            assert not (workdir / "valid.json").exists()


def test_a_trial_that_is_done_or_held_is_left_alone(tmp_path: Path) -> None:
    """Neither imports jax, nor leaves a record."""
    plan = stub.planned(tmp_path)
    done, held = plan.trials()[:2]
    stub.finish(done, tmp_path)
    before = (done.workdir(tmp_path) / attempts.FILE).read_bytes()
    assert real.perform(tmp_path, "train", done.name).returncode == 0
    assert (done.workdir(tmp_path) / attempts.FILE).read_bytes() == before
    with RunLock(held.workdir(tmp_path)):
        code = real.perform(tmp_path, "train", held.name).returncode
        assert code == training.HELD == os.EX_TEMPFAIL
    assert attempts.read(held.workdir(tmp_path)) == []


@pytest.mark.full
def test_a_trial_that_is_done_keeps_what_the_plan_says(copy: Path) -> None:
    plan = real.plan(copy)
    trial = next(trial for trial in plan.trials() if trial.candidate.variant in DONE)
    shutil.rmtree(trial.workdir(copy))
    dataclasses.replace(plan, keep="best-params").write(copy)
    assert real.perform(copy, "train", trial.name).returncode == 0
    assert len(saved_steps(trial.workdir(copy) / "params")) == 1
    assert not saved_steps(trial.workdir(copy) / "checkpoints")


class Task:
    """Decodes to one score."""

    measures = {"loss": "min", "accuracy": "max", "exact": share("sentences")}
    examples = "sentences"

    def size(self, split: str) -> int:
        return {"valid": 12}[split]

    def score(self, params: Any, split: str) -> tuple[dict[str, float], list[str]]:
        assert (params, split) == ("best", "valid")
        return {"exact": 0.25}, []


def test_text_scores_are_decoded_only_where_they_select(tmp_path: Path) -> None:
    config = SimpleNamespace(checkpoint=Checkpoint(by="accuracy"))
    run: Any = SimpleNamespace(workdir=tmp_path, config=config, task=Task())
    first = {"step": 3, "split": "valid", "loss": 0.9, "accuracy": 0.4}
    records = [first, {**first, "step": 6, "loss": 1.0, "accuracy": 0.5}]
    lines(tmp_path / "metrics.jsonl", records)
    write_validation(run, "accuracy")
    known: dict[str, Any] = {"loss": {"better": "min"}, "accuracy": {"better": "max"}}
    expected = {"split": "valid", "step": 6, "loss": 1.0, "accuracy": 0.5, "measures": known}
    assert real.read(tmp_path / "valid.json") == expected
    run.updates = SimpleNamespace(best_params=lambda *given: ("best", 6))
    write_validation(run, "exact")
    known["exact"] = {"better": "max", "low": 0.0, "high": 1.0, "of": "sentences", "count": 12}
    found = real.read(tmp_path / "valid.json")
    assert found["exact"] == 0.25 and found["measures"] == known
    words = "the validation scores have no 'blue'; they have step, split, loss, accuracy, exact"
    check_refused(words, write_validation, run, "blue")


@pytest.mark.parametrize(
    ("error", "state", "message", "code"),
    [
        (UserError("two\nlines"), "failed", "two lines", 1),
        (ValueError("a\n  b"), "failed", "ValueError: a b", 1),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt", 130),
    ],
)
def test_how_an_error_is_recorded(
    error: BaseException, state: str, message: str, code: int, tmp_path: Path, capsys: Any
) -> None:
    one = stub.planned(tmp_path).trials()[0]
    workdir = one.workdir(tmp_path)
    workdir.mkdir(parents=True)
    attempt = Attempt.start(workdir, None)
    attempt.at(4)
    assert failed(error, attempt) == code
    end = attempts.read(workdir)[-1]
    assert (end["state"], end["step"], end["message"]) == (state, 4, message)
    assert message.split()[0] in capsys.readouterr().err


MINE = (
    "from attnlab.attention.mechanisms.single import Single\nfrom aid import *\n\n\nclass"
    " Mine(Single):\n    pass\n"
)


def test_a_trial_needs_the_code_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_trial.py").write_text("class Own:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = stub.planned(tmp_path / "sweep")
    config = {**plan.candidates[0].config, "system": {"name": "own_trial:Own"}}
    code = provenance.code(config).digests
    first, *others = plan.candidates
    mine = dataclasses.replace(first, config=config, code=code)
    plan = dataclasses.replace(plan, candidates=(mine, *others))
    plan.write(tmp_path / "sweep")
    assert check_code(plan.trials()[0]).digests == code
    (tmp_path / "own_trial.py").write_text("class Own:\n    x = 1\n")
    own = re.escape(str(tmp_path / "own_trial.py"))
    words = f"{first.id} was planned with other code: {own}; put that back"
    with pytest.raises(Changed, match=words):
        check_code(plan.trials()[0])
    (tmp_path / "own_trial.py").unlink()
    with pytest.raises(Changed, match=r"own_trial \(gone\)"):
        check_code(plan.trials()[0])
    unknown = Trial(dataclasses.replace(plan.candidates[0], code=None), 0)
    assert not check_code(unknown).accept  # the trial's own manifest decides


def test_all_trials_read_the_same_data(tmp_path: Path) -> None:
    """Those of other data, and splits that nobody has read yet, do not matter; a manifest that is
    damaged is told elsewhere.
    """
    plan = stub.planned(tmp_path)
    one, other = plan.trials()[:2]
    data = {"train": "a", "valid": "b"}
    check_data(one, tmp_path, data)
    workdir = other.workdir(tmp_path)
    workdir.mkdir(parents=True)
    Manifest.build(other.config, devices={}, data=data).write(workdir)
    check_data(one, tmp_path, data)
    check_data(one, tmp_path, {"test": "c"})
    words = rf"workdir {re.escape(str(workdir))} has changed since it began \(split valid\)"
    with pytest.raises(Changed, match=words):
        check_data(one, tmp_path, {"train": "a", "valid": "x"})
    (workdir / "look.json").write_text('{"data": {"test": "c"}}')
    with pytest.raises(Changed, match=r"split test"):
        check_data(one, tmp_path, {"test": "d"})
    config = {**one.candidate.config, "data": {"name": "dates"}}
    elsewhere = Trial(dataclasses.replace(one.candidate, config=config), 0)
    check_data(elsewhere, tmp_path, {"train": "x"})
    (workdir / "manifest.json").write_text("{")
    check_data(one, tmp_path, {"train": "x"})


def test_the_last_look_wants_the_vocabulary_and_the_test_split_of_all(copy: Path) -> None:
    """A vocabulary put into a trial; a test split that is not what the other trials were scored
    on.
    """
    plan = real.plan(copy)
    (candidate,) = plan.of("additive")
    trial = plan.trial(candidate.id, 0)
    workdir = trial.workdir(copy)
    manifest = json.loads((workdir / "manifest.json").read_text())
    look = json.loads((workdir / "look.json").read_text())
    assert {*manifest["data"]} == {"train", "valid"} and {*look["data"]} == {"test"}
    assert manifest["vocabulary"]
    other = dict.fromkeys(manifest["vocabulary"], "0" * 64)
    (workdir / "manifest.json").write_text(json.dumps({**manifest, "vocabulary": other}))
    with pytest.raises(Changed, match="is not the one that this run was trained with"):
        scoring._check(trial, copy, look["data"])
    (workdir / "manifest.json").write_text(json.dumps(manifest))
    (workdir / "look.json").write_text(json.dumps({**look, "data": {"test": "0" * 64}}))
    (workdir / "results.json").unlink()
    assert real.perform(copy, "final", trial.name).returncode == training.CHANGED
    last = (workdir / "log.txt").read_text().splitlines()[-1]
    assert "has changed since it began (split test)" in last
    assert not (workdir / "results.json").exists()


@pytest.mark.full
def test_a_module_that_is_edited_in_the_middle_ends_the_sweep(tmp_path: Path) -> None:
    """After the first seed has begun and before the second does; the first one comes to its end."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "aid.py").write_text("ONE = 1\n")
    compare = "compare=rows({'mine': {'system.attention': 'mine:Mine'}})"
    file = real.experiment(tmp_path / "which.py", compare, "seeds=(0, 1)")
    flags = [file, f"--dir={tmp_path / 'sweep'}", "--slots=1", "--no-final"]
    how: dict[str, Any] = {"env": real.environment(), "cwd": tmp_path, "text": True}
    first = subprocess.Popen(real.command("sweep", *flags), stderr=subprocess.PIPE, **how)
    stub.until(lambda: any(tmp_path.glob("sweep/trials/*/seed0/manifest.json")), 200)
    (tmp_path / "aid.py").write_text("ONE = 2\n")
    _, err = first.communicate(timeout=300)
    assert first.returncode == 2, err
    last = err.splitlines()[-1]
    assert "was planned with other code: " in last and "aid.py; put that back" in last
    assert "--accept-changed-code" in last
    trials = real.plan(tmp_path / "sweep").trials()
    zero, one = (trial.workdir(tmp_path / "sweep") for trial in trials)
    assert (zero / "valid.json").exists() and not (one / "manifest.json").exists()
    again = real.launch("sweep", *flags, cwd=tmp_path)
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (2, "", 1)
    words = f"aid.py has changed (as it was: {zero / 'code' / 'aid.py'})"
    assert f"{zero} was made with other code: {words}" in again.stderr
