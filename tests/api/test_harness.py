"""The evaluation harness finds of a folder what its own back end finds, where it is installed."""

import json
from pathlib import Path

import pytest

import attnlab
from attnlab.api import harness
from attnlab.commands import main
from attnlab.errors import UserError
from tests.weights import models


@pytest.mark.parametrize("name", models.SCORED)
def test_measures_and_answers_are_those_of_its_own_back_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python and by the command; a task that is not there is refused by name."""
    pytest.importorskip("lm_eval")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    folder, include = models.tokenized(name, tmp_path / name), str(tmp_path / "tasks")
    names = models.tasks(tmp_path / "tasks")
    golden = json.loads((models.GOLDEN / "scores" / f"{name}.json").read_text())["tasks"]
    run = attnlab.load_pretrained(folder)
    found = harness.evaluate(run, names, include, bootstrap_iters=0)
    for task in names:
        measures = golden[task]["measures"]
        results = {key: found["results"][task][key] for key in measures}
        assert results == pytest.approx(measures, rel=1e-5)
    answers = [sample["resps"] for sample in found["samples"]["local_written"]]
    assert json.loads(json.dumps(answers)) == golden["local_written"]["answers"]
    out = tmp_path / "found.json"
    words = ["score", str(folder), f"--tasks={names[0]}", f"--include={include}", f"--out={out}"]
    assert main(words) == 0
    results = json.loads(out.read_text())["results"]
    assert results[names[0]]["acc,none"] == found["results"][names[0]]["acc,none"]
    with pytest.raises(UserError, match="no task 'local_choise'; did you mean 'local_choice'"):
        harness.evaluate(run, ["local_choise"], include)


def test_without_the_harness_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "find_spec", lambda name: None)
    models.tokenized("gpt2", tmp_path)
    words = r"the harness needs lm-eval: pip install 'attnlab\[harness\]'"
    with pytest.raises(UserError, match=words):
        harness.evaluate(attnlab.load_pretrained(tmp_path), ["x"])
