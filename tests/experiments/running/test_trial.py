"""A trial's process: what it leaves, when it does nothing, and which validation scores count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.experiments.running import attempts, trial
from attnlab.experiments.running.attempts import Attempt
from attnlab.experiments.running.trial import failed, write_validation
from attnlab.training import loop
from attnlab.training.manifest import Manifest
from attnlab.training.records import RunLock, Status, read_records
from tests.experiments import real, stub
from tests.experiments.conftest import Swept


def called(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """The module as a process."""
    line = [sys.executable, "-m", "attnlab.experiments.running.trial", *map(str, argv)]
    return subprocess.run(line, capture_output=True, text=True, env=real.environment(), check=False)


def test_a_trial_leaves_an_ordinary_workdir_and_its_own_records(swept: Swept) -> None:
    """Trained on "train" and "valid" alone; where and for how long it ran; the scores of its best step."""
    done = [one for one in real.plan(swept.directory).trials() if one.candidate.variant in ("additive", "general")]
    for one in done:
        workdir = one.workdir(swept.directory)
        manifest = Manifest.read(workdir)
        assert manifest is not None and set(manifest.data) == {"train", "valid"} and manifest.config["seed"] == one.seed
        assert (Status.read(workdir) or {})["state"] == "done" and (workdir / "checkpoints").is_dir()
        start, end = attempts.read(workdir)
        assert start["step"] == 0 and start["slot"] in (0, 1) and len(start["cores"]) >= 1
        assert (end["state"], end["step"]) == ("done", 12) and 0 < end["first_step_seconds"] < end["seconds"] and end["peak_bytes"] > 1e8
        valid = [record for record in read_records(workdir / "metrics.jsonl") if record["split"] == "valid"]
        assert real.read(workdir / "valid.json") == min(valid, key=lambda record: record["loss"])
        log = (workdir / "log.txt").read_text()
        assert "step 12: valid loss" in log and "compiled batches" in log


def test_one_that_fails_keeps_its_last_line_and_its_whole_traceback(swept: Swept) -> None:
    for one in real.plan(swept.directory).trials():
        workdir = one.workdir(swept.directory)
        end = attempts.read(workdir)[-1]
        if one.candidate.variant == "broken":
            assert (end["state"], end["message"]) == ("failed", "RuntimeError: broken on purpose")
            log = (workdir / "log.txt").read_text()
            assert "Traceback" in log and "broken_for_a_test.py" in log and not (workdir / "valid.json").exists()
        if one.candidate.variant == "wild":
            assert end["state"] == "diverged" and "at step" in end["message"] and not (workdir / "valid.json").exists()


def test_a_trial_that_is_done_or_held_is_left_alone(tmp_path: Path) -> None:
    """Neither imports jax, nor leaves a record."""
    plan = stub.planned(tmp_path)
    done, held = plan.trials()[:2]
    stub.finish(done, tmp_path)
    before = (done.workdir(tmp_path) / attempts.FILE).read_bytes()
    assert called(tmp_path, done.candidate.id, 0).returncode == 0
    assert (done.workdir(tmp_path) / attempts.FILE).read_bytes() == before
    with RunLock(held.workdir(tmp_path)):
        assert called(tmp_path, held.candidate.id, 0).returncode == trial.HELD == os.EX_TEMPFAIL
    assert attempts.read(held.workdir(tmp_path)) == []


def test_what_is_no_trial_is_one_line(tmp_path: Path) -> None:
    stub.planned(tmp_path / "sweep")
    for argv, words in (
        ((tmp_path, "x", 0), "holds no sweep"),
        ((tmp_path / "sweep", "additiv", 0), "the plan has no candidate 'additiv'; choose from: additive-"),
        ((tmp_path / "sweep", real.plan(tmp_path / "sweep").candidates[0].id, 7), "the plan has no seed 7; its seeds: 0, 1"),
    ):
        ended = called(*map(str, argv))
        assert ended.returncode == 2 and words in ended.stderr and ended.stderr.count("\n") == 1


class Task:
    """Decodes to one score."""

    measures = {"loss": "min", "accuracy": "max", "exact": "max"}

    def score(self, params: Any, split: str) -> tuple[dict[str, float], list[str]]:
        assert (params, split) == ("best", "valid")
        return {"exact": 0.25}, []


def test_text_scores_are_decoded_only_where_they_select(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: Any = SimpleNamespace(workdir=tmp_path, config=ConfigDict({"checkpoint": {"by": "accuracy"}}), task=Task())
    records = ({"step": step, "split": "valid", "loss": loss, "accuracy": score} for step, loss, score in ((3, 0.9, 0.4), (6, 1.0, 0.5)))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    write_validation(prepared, "accuracy")
    assert real.read(tmp_path / "valid.json") == {"split": "valid", "step": 6, "loss": 1.0, "accuracy": 0.5}
    monkeypatch.setattr(loop, "best_params", lambda *given: ("best", 6))
    write_validation(prepared, "exact")
    assert real.read(tmp_path / "valid.json")["exact"] == 0.25
    with pytest.raises(UserError, match="select: the validation scores have no 'blue'; they have step, split, loss, accuracy, exact"):
        write_validation(prepared, "blue")


@pytest.mark.parametrize(
    ("error", "state", "message", "code"),
    [
        (UserError("two\nlines"), "failed", "two lines", 1),
        (ValueError("a\n  b"), "failed", "ValueError: a b", 1),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt", 130),
    ],
)
def test_how_an_error_is_recorded(
    error: BaseException, state: str, message: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stub.planned(tmp_path).trials()[0]
    workdir = one.workdir(tmp_path)
    workdir.mkdir(parents=True)
    attempt = Attempt.start(workdir, None)
    Status(workdir, stub.STEPS).update("running", 4)
    assert failed(error, attempt, one) == code
    end, status = attempts.read(workdir)[-1], Status.read(workdir) or {}
    assert (end["state"], end["step"], end["message"]) == (state, 4, message) and (status["state"], status["message"]) == (state, message)
    assert message.split()[0] in capsys.readouterr().err


def test_the_log_takes_every_letter(tmp_path: Path) -> None:
    """Where the terminal takes ascii alone, a trial must not fail over the name of its data."""
    code = "import pathlib, sys; from attnlab.experiments.running.trial import write_output_to as to; to(pathlib.Path('log'))"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    line = [sys.executable, "-c", code + r"; print('\xfc\ud800')"]
    done = subprocess.run(line, env={**real.environment(), **ascii_only}, cwd=tmp_path, check=False)
    assert done.returncode == 0 and (tmp_path / "log").read_text(encoding="utf-8") == "ü\\ud800\n"
