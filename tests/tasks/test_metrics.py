"""Scores of one's own: their mean and rows beside those of a task, and functions that give none."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlab
from attnlab import config as configs
from attnlab.analysis.results import resampled, scores
from attnlab.errors import UserError
from attnlab.tasks import TASKS
from attnlab.tasks.metrics import path_of, with_metrics
from tests.commands.tiny import Runs, arguments, run_command
from tests.refusals import check_refused

CODE = """
def length(answers, rows):
    return [len(target) - len(answer) for answer, (source, target) in zip(answers, rows)]
length.better = "min"
def raises(answers, rows): return [1 / 0 for row in rows]
def nothing(answers, rows): return None
def few(answers, rows): return [1.0]
def words(answers, rows): return ["one"] * len(rows)
def infinite(answers, rows): return [float("inf")] * len(rows)
def loss(answers, rows): return [1.0] * len(rows)
def others(texts, rows): return [1.0] * len(rows)
def step(answers, rows): return [1.0] * len(rows)
def split(answers, rows): return [1.0] * len(rows)
def bleu_signature(answers, rows): return [1.0] * len(rows)
def sentences(answers, rows): return [1.0] * len(rows)
def most(answers, rows): return [1.0] * len(rows)
most.better = "maximum"
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with functions of all kinds."""
    (tmp_path / "own_metrics.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_metrics", raising=False)
    return "own_metrics"


def test_the_mean_over_rows_is_a_score_with_items(functions: str, runs: Runs) -> None:
    folder, _ = runs("rnnsearch")
    paths = [f"{functions}:length"]
    run = attnlab.load(folder, {"training.metrics": paths}, splits=("valid",))
    results, outputs = scores(run.task, run.params, "valid")
    pairs = zip(outputs, run.task.data.rows["valid"], strict=True)
    expected = [len(target) - len(answer) for answer, (_, target) in pairs]
    assert results["length"] == pytest.approx(np.mean(expected)) and len(expected) == 10
    items = resampled(run.task, run.params, "valid", outputs, results)
    assert items is not None and items.rows["length"][:, 0].tolist() == expected
    assert {"bleu", "loss", "length"} <= {*items.rules}
    assert run.task.measures["length"] == "min" and "length" not in type(run.task).evaluated


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "raises",
            r"metric raises: .*own_metrics.py:5 ZeroDivisionError: division by zero; without",
        ),
        ("nothing", "metric nothing: .*are not 10 finite numbers"),
        ("few", r"metric few: ValueError: \[1.\]... are not 10 finite numbers"),
        ("words", "metric words: ValueError: could not convert"),
        ("infinite", "metric infinite: .* are not 10 finite"),
    ],
)
def test_a_function_that_gives_no_numbers_is_named(
    name: str, words: str, functions: str, runs: Runs
) -> None:
    run = attnlab.load(runs("rnnsearch")[0], {"training.metrics": [f"{functions}:{name}"]})
    check_refused(words, run.evaluate, "valid")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loss", "there is a score 'loss' already"),
        ("step", "there is a score 'step' already"),
        ("split", "there is a score 'split' already"),
        ("bleu_signature", "there is a score 'bleu_signature' already"),
        ("most", "better='maximum'; expected 'min' or 'max'"),
        ("others", "does not take 'answers', which every metric gets"),
        ("lenght", "has no attribute 'lenght'"),
    ],
)
def test_a_bad_name_is_refused_before_training(
    name: str, words: str, functions: str, runs: Runs
) -> None:
    with pytest.raises(UserError, match=words):
        attnlab.load(runs("rnnsearch")[0], {"training.metrics": [f"{functions}:{name}"]})


@pytest.mark.parametrize("config", ["language_modelling.py:lstm", "tagging.py"])
def test_a_task_without_answers_is_refused(config: str, functions: str) -> None:
    overrides = [f"training.metrics={functions}:length", "data.examples=40", "data.valid=4"]
    settings: Any = configs.load(f"configs/{config}", overrides)
    with pytest.raises(UserError, match="has no answer for each of its"):
        TASKS.resolve(settings.task).load(settings, None, ("train", "valid"))


def test_other_scores_outlive_a_metric_that_fails_and_the_same_command_mends_it(
    tmp_path: Path, functions: str, runs: Runs
) -> None:
    """The run was trained without: other metrics than it began with are other code, to be accepted."""
    shutil.copytree(runs("rnnsearch")[0], tmp_path / "run")
    words = arguments("rnnsearch", tmp_path / "run", f"training.metrics={functions}:raises")
    words += ["--accept-changed-code"]
    ended = run_command(words)
    assert ended.code == 1 and ended.err.splitlines()[-1].startswith("error: metric raises: ")
    assert "all other scores are written; correct it, and the same command with --acc" in ended.err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["bleu"] >= 0 and "own_metrics.py:5" in results["failed_metrics"]["raises"]["why"]
    code = tmp_path / "own_metrics.py"
    code.write_text(code.read_text().replace("1 / 0", "1.5"))
    del sys.modules[functions]
    assert run_command(words).code == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["raises"] == 1.5 and "failed_metrics" not in results


def test_rows_are_those_of_the_source_and_answers_the_last_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labelled texts, and images whose rows are no texts."""
    code = "def right(answers, rows): return [a == (r if isinstance(r, str) else r[1]) for a, r in zip(answers, rows)]"
    (tmp_path / "right_metric.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for name, sizes in {
        "classification.py:self_attentive": {"data.examples": 40, "data.valid": 6},
        "image_classification.py": {"data.examples": 200, "data.valid": 6},
    }.items():
        overrides = [f"{key}={value}" for key, value in sizes.items()]
        config: Any = configs.load(
            f"configs/{name}", [*overrides, "training.metrics=right_metric:right"]
        )
        task = TASKS.resolve(config.task).load(config, None, ("train", "valid"))
        import jax

        params = task.init(jax.random.key(0))
        results, _ = scores(task, params, "valid")
        assert results["right"] == pytest.approx(results["accuracy"])


@pytest.mark.quick
def test_a_function_has_a_place(functions: str) -> None:
    assert path_of(with_metrics) == "attnlab.tasks.metrics:with_metrics"
    check_refused("no function with a name of its own", path_of, lambda answers, rows: [])
