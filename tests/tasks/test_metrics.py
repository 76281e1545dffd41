"""Scores of one's own: their mean and rows beside those of a task, and functions that give none."""

from __future__ import annotations

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
from tests.commands.tiny import Runs

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
    wanted = [len(target) - len(answer) for answer, (_, target) in pairs]
    assert results["length"] == pytest.approx(np.mean(wanted)) and len(wanted) == 10
    items = resampled(run.task, run.params, "valid", outputs, results)
    assert items is not None and items.rows["length"][:, 0].tolist() == wanted
    assert {"bleu", "loss", "length"} <= {*items.rules}
    assert run.task.measures["length"] == "min" and "length" not in type(run.task).evaluated


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "raises",
            r"metric raises: .*own_metrics.py:5 ZeroDivisionError: division by zero; nothing",
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
    with pytest.raises(UserError, match=words):
        run.evaluate("valid")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loss", "there is a score 'loss' already"),
        ("others", "does not take 'answers', which every metric gets"),
        ("lenght", "has no attribute 'lenght'"),
    ],
)
def test_a_bad_name_is_refused_before_training(
    name: str, words: str, functions: str, runs: Runs
) -> None:
    with pytest.raises(UserError, match=words):
        attnlab.load(runs("rnnsearch")[0], {"training.metrics": [f"{functions}:{name}"]})


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
    with pytest.raises(UserError, match="no function with a name of its own"):
        path_of(lambda answers, rows: [])
