"""Scores of one's own: their mean and rows beside those of a task, and functions that give none."""

import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import attnlab
from attnlab.analysis.heads import HeadStatistics
from attnlab.analysis.results import resampled, scores
from attnlab.errors import UserError
from attnlab.tasks.metrics import HEAD_STATISTICS, path_of, with_metrics
from tests.analysis.planted import copier, loaded
from tests.commands.tiny import Runs, arguments, run_command
from tests.refusals import check_refused
from tests.tasks.tiny import loader

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
    check_refused("has no answer for each of its", loader(config, overrides))


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
    for name, count in (("classification.py:self_attentive", 40), ("image_classification.py", 200)):
        small = [f"data.examples={count}", "data.valid=6", "training.metrics=right_metric:right"]
        task = loader(name, small)()
        params = task.init(jax.random.key(0))
        results, _ = scores(task, params, "valid")
        assert results["right"] == pytest.approx(results["accuracy"])


def test_statistics_of_heads_are_scores_of_evaluation() -> None:
    """Of the planted heads one looks at the token before, the other at the token itself."""
    planted = "system=tests.analysis.planted:Copier", "training.output_bias=zeros"
    task = loaded("lstm", *planted, "training.metrics=previous_argmax,distance")
    params = copier().params
    expected = {f"previous_argmax_{x}": y for x, y in (("mean", 0.5), ("max", 1.0))}
    scored = task.evaluate(params, "test")
    assert {name: scored[name] for name in expected} == expected and scored["distance_mean"] > 0.4
    assert task.measures["previous_argmax_max"] == "max" and scored["loss"] > 0
    assert set(expected.items()) < set(scores(task, params, "test")[0].items())
    assert not expected.keys() & task.score(params, "test")[0].keys()  # computed once
    without = jax.tree.map(np.zeros_like, params)  # both look anywhere
    both = jax.tree.map(lambda *x: np.stack(x), params, without)
    first, second = task.evaluate_stacked(both, "test")
    assert first == pytest.approx(scored) and second["distance_max"] == second["distance_mean"]


def test_every_column_of_the_numbers_of_heads_can_be_named() -> None:
    statistics = HeadStatistics(frequencies={})
    statistics.add("0", np.eye(3)[None], list("abc"))
    beside = ["map", "kind", "head", "queries", "best_offset", "best_offset_share"]
    assert [x for x in statistics.records()[0] if x not in beside] == [*HEAD_STATISTICS]


def test_a_run_records_statistics_and_names_those_without_a_number(tmp_path: Path) -> None:
    """Between two texts there is no distance."""
    words = arguments("rnnsearch", tmp_path / "run", "training.metrics=entropy,distance")
    ended = run_command(words)
    assert (
        ended.code == 1
        and "metric distance: no head has a number on the test split; leave it" in ended.err
    )
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 0 < results["entropy_mean"] <= results["entropy_max"] and "entropy" in ended.out
    assert "distance_mean" not in results and {*results["failed_metrics"]} == {"distance"}
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    valid = [x for x in map(json.loads, lines) if x["split"] == "valid"]
    run = attnlab.load(tmp_path / "run", accept_changed_code=True)
    heads = run.analyse("valid", 64).heads
    assert valid[-1]["step"] == run.step  # the last is the best
    assert valid[-1]["entropy_mean"] == pytest.approx(np.mean([x["entropy"] for x in heads]))


@pytest.mark.parametrize(
    ("config", "names", "words"),
    [
        ("decoder", "entropi", "unknown metric 'entropi'; did you mean 'entropy'"),
        ("decoder", "entropy,entropy", "there is a score 'entropy_max' already"),
        ("lstm", "entropy", "'entropy': lstm_lm has no attention"),
    ],
)
def test_a_bad_statistic_is_refused_before_training(config: str, names: str, words: str) -> None:
    check_refused(words, loaded, config, f"training.metrics={names}")


@pytest.mark.quick
def test_a_function_has_a_place(functions: str) -> None:
    assert path_of(with_metrics) == "attnlab.tasks.metrics:with_metrics"
    check_refused("no function with a name of its own", path_of, lambda answers, rows: [])
