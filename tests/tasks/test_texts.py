"""A task of texts as in the guide has the sums, scores and answers of NumPy, keeps its run, and
names every mistake.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.records.measures import Measure, declared, share
from attnlab.training.run import check, check_scores
from tests.refusals import check_refused
from tests.tasks.tiny import check_items, noisy

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SMALL = [
    *("task=regression:Regression", "checkpoint.by=loss", "system.embedding=6", "system.width=4"),
    "system.hidden=6",
]
SMALL += [
    *("batch.size=8", "batch.buckets=4,12", "batch.max_length=12", "data=table", "data.target=0"),
    "data.label=2",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of digits and their mean; the example can be imported."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("valid", 9), ("test", 7)):
        rows = [rng.integers(0, 10, rng.integers(1, 10)) for _ in range(count)]
        (tmp_path / f"{split}.tsv").write_text(
            "".join(f"{' '.join(map(str, row))}\t{row.mean()}\n" for row in rows)
        )
    return tmp_path


def load(folder: Path, *overrides: str, system: str = "bilstm_pooling", workdir: Any = None) -> Any:
    from attnlab.tasks import TASKS

    config = configs.load(
        f"configs/classification.py:{system}", [*SMALL, f"data.directory={folder}", *overrides]
    )
    kind = TASKS.resolve(config.task)
    check(kind, config)
    return kind.load(config, workdir, ("train", "valid", "test"))


def test_scores_are_those_of_numpy(folder: Path) -> None:
    """Over batches with rows of padding, alone and stacked; the loss of a batch is summed and
    weighed by its examples.
    """
    task = load(folder)
    params = noisy(task)
    _, lines = task.score(params, "valid")
    truth, guess = np.array([line.split("\t") for line in lines], np.float64).T
    scores = task.evaluate(params, "valid")
    assert list(scores) == ["loss", "absolute_error", "correlation"] == list(task.evaluated)
    assert scores["loss"] == pytest.approx(np.mean((guess - truth) ** 2), abs=1e-3)
    assert scores["absolute_error"] == pytest.approx(np.mean(np.abs(guess - truth)), abs=1e-3)
    assert scores["correlation"] == pytest.approx(np.corrcoef(guess, truth)[0, 1], abs=1e-2)
    stacked = task.evaluate_stacked(jax.tree.map(lambda x: np.stack([x, x]), params), "valid")
    assert [one["loss"] for one in stacked] == pytest.approx([scores["loss"]] * 2, rel=1e-6)
    batch = task.batches(1)(0)
    run = jax.jit(lambda x: (*task.loss(params, x, jax.random.key(1)), task.sums(params, x)))
    loss, sums, plain = run(batch)
    assert task.weight(batch) == sums["rows"] == (batch["source"][:, 0] != 0).sum()
    assert sums["tokens"] == (batch["source"] != 0).sum()
    assert float(loss) == pytest.approx(float(plain["loss"]), rel=1e-6)
    # What stands in a record of training is a count, no sum under the name of a score.
    assert set(sums) == {"tokens", "rows"}


def test_a_task_of_ones_own_says_what_its_scores_are_made_of(folder: Path) -> None:
    task = load(folder)
    items = check_items(task, noisy(task), "test", {"loss", "absolute_error"})
    assert len(items) == 7 and declared(task)["correlation"] == Measure("max")
    assert task.counts("test") == {}
    task.averaged = lambda totals: {
        "loss": float(totals["loss"]),
        "absolute_error": float(totals["absolute_error"]) ** 0.5,
    }
    assert task.items(noisy(task), "test", []) is None  # sums, roots: no means


def test_correlation_of_labels_far_from_zero_is_that_of_numpy(folder: Path) -> None:
    """Sums of squares in float32 have lost what such labels differ by; guesses far from them all
    have no correlation beyond rounding.
    """
    rng = np.random.default_rng(1)
    for middle in (0.0, 2000.0, -1e5):
        for split in ("train", "valid", "test"):
            (folder / f"{split}.tsv").write_text(
                "".join(f"1 2\t{label}\n" for label in rng.normal(middle, 1.0, 150))
            )
        task = load(folder)
        truth = task.data.examples["valid"]["label"].values.astype(np.float64)
        task.apply = lambda _, batch, middle=middle, **how: (
            batch["label"] + 0.3 * jnp.sin(9 * (batch["label"] - middle))
        )[:, None]
        expected = np.corrcoef(truth, truth + 0.3 * np.sin(9 * (truth - middle)))[0, 1]
        assert task.evaluate({}, "valid")["correlation"] == pytest.approx(expected, abs=1e-3)
    task = load(folder)
    task.apply = lambda _, batch, **how: 0.01 * (batch["label"] + 1e5)[:, None]
    assert abs(task.evaluate({}, "valid")["correlation"]) <= 1.0


def test_a_run_is_kept_and_lines_are_answered(folder: Path, tmp_path: Path) -> None:
    task = load(folder)
    task.save(tmp_path / "run")
    again = load(folder, workdir=tmp_path / "run")
    params = noisy(again)
    (one,), (other,) = again.respond(params, ["1 2 3", "9"])
    assert float(one.text) != float(other.text) and again.size("valid") == 9
    assert again.notes(again.batches(1))[1].startswith("valid: 9 texts, ")
    assert "1.0" not in again.notes(again.batches(1))[0]
    check_refused("expected one text", again.respond, params, ["1\t2"])


def test_measures_that_say_nothing_are_named_before_data_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regression import Regression

    monkeypatch.setattr(Regression, "measures", {"loss": "least"})
    words = "^measures: of 'loss', 'least' is better; write 'min' or 'max'$"
    check_refused(words, load, folder / "nowhere")
    monkeypatch.setattr(Regression, "measures", {"loss": share("letters")})
    words = (
        "^measures: 'loss' is a share of 'letters', which the task does not count; choose from:"
        " examples$"
    )
    check_refused(words, check_scores, load(folder))


def test_what_does_not_fit_is_named(folder: Path) -> None:
    for label in ("many", "nan"):
        (folder / "valid.tsv").write_text(f"1\t1.0\n1 2\t{label}\n")
        words = f"example 2 of the valid split: the label '{label}' is no number"
        check_refused(words, load, folder)
    for override, system, words in (
        ("checkpoint.by=loss", "self_attentive", "which task=.*Regression does not train"),
        ("auxiliary.hops=0.1", "bilstm_pooling", "hops=0.1: nothing in this system hands out such"),
        ("checkpoint.by=accuracy", "bilstm_pooling", "'accuracy'; .*_error, correlation, loss"),
    ):
        check_refused(words, load, folder, override, system=system)
