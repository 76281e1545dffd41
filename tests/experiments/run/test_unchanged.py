"""Code and data edited while a sweep is at work: it ends with one line, and no trial of it is a
mixture that nobody asked for.
"""

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.plan.candidate import Trial
from attnlab.experiments.run import scoring, unchanged
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from attnlab.records.provenance import Changed
from tests.experiments import real, stub

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
    assert unchanged.check_code(plan.trials()[0]).digests == code
    (tmp_path / "own_trial.py").write_text("class Own:\n    x = 1\n")
    own = re.escape(str(tmp_path / "own_trial.py"))
    words = f"{first.id} was planned with other code: {own}; put that back"
    with pytest.raises(Changed, match=words):
        unchanged.check_code(plan.trials()[0])
    (tmp_path / "own_trial.py").unlink()
    with pytest.raises(Changed, match=r"own_trial \(gone\)"):
        unchanged.check_code(plan.trials()[0])
    unknown = Trial(dataclasses.replace(plan.candidates[0], code=None), 0)
    assert not unchanged.check_code(unknown).accept  # the trial's own manifest decides


def test_all_trials_read_the_same_data(tmp_path: Path) -> None:
    """Those of other data, and splits that nobody has read yet, do not matter; a manifest that is
    damaged is told elsewhere.
    """
    plan = stub.planned(tmp_path)
    one, other = plan.trials()[:2]
    data = {"train": "a", "valid": "b"}
    unchanged.check_data(one, tmp_path, data)
    workdir = other.workdir(tmp_path)
    workdir.mkdir(parents=True)
    Manifest.build(other.config, devices={}, data=data).write(workdir)
    unchanged.check_data(one, tmp_path, data)
    unchanged.check_data(one, tmp_path, {"test": "c"})
    words = rf"workdir {re.escape(str(workdir))} has changed since it began \(split valid\)"
    with pytest.raises(Changed, match=words):
        unchanged.check_data(one, tmp_path, {"train": "a", "valid": "x"})
    (workdir / "look.json").write_text('{"data": {"test": "c"}}')
    with pytest.raises(Changed, match=r"split test"):
        unchanged.check_data(one, tmp_path, {"test": "d"})
    config = {**one.candidate.config, "data": {"name": "dates"}}
    elsewhere = Trial(dataclasses.replace(one.candidate, config=config), 0)
    unchanged.check_data(elsewhere, tmp_path, {"train": "x"})
    (workdir / "manifest.json").write_text("{")
    unchanged.check_data(one, tmp_path, {"train": "x"})


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
    assert real.perform(copy, "final", trial.name).returncode == unchanged.CHANGED
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
