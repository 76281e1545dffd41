"""A trial's process: what it leaves, when it does nothing, and which validation scores count."""

import dataclasses
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.run import training
from attnlab.experiments.run.training import failed, write_validation
from attnlab.records import attempts
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.measures import share
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
