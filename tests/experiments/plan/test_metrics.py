"""Scores that a task does not have, or has too late, are refused while planning."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan.plan import Plan
from attnlab.experiments.plan.process import made
from tests.experiments.plan.planning import SCORES, SEARCH, refused
from tests.experiments.plans import experiment_file
from tests.refusals import check_refused

LSTM, ONE = "configs/language_modelling.py:lstm", {"a": {}}
pytestmark = pytest.mark.usefixtures("uncounted")


def planned(folder: Path, base: Any, *lines: str, config: str = LSTM, compare: Any = ONE) -> Plan:
    """The plan of an experiment that compares these rows; `lines` are further arguments."""
    lines = (f"compare=rows({compare!r})", *lines)
    file = experiment_file(folder / "which.py", *lines, imports=SEARCH, config=config, base=base)
    return made(file, folder / "sweep")


def base_of_texts(folder: Path) -> dict[str, Any]:
    """The settings of a small system on texts of two words, which it writes."""
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("a b a b\nb a b a\n")
    return {"data": "text", "data.directory": str(folder), "system.width": 4}


def test_a_measure_that_the_data_cannot_give_is_refused(tmp_path: Path) -> None:
    """Plain text does not tell which words can be recalled."""
    with pytest.raises(UserError, match="measure: unknown metric 'recall'"):
        planned(tmp_path, base_of_texts(tmp_path), "measure=('recall', 'max')")


DIFFERING = {
    "char": "vocabulary.kind",
    "half": "data.train",
    "cut": "batch.max_length",
    "low": "vocabulary.lowercase",
}
CASE = "vocabulary.lowercase or normaliser"
SAME = "compares them only if they have the same"
TOLD = {
    "loss": {
        "char": f": loss {SAME} vocabulary; bits_per_character does in any case",
        "half": f": loss {SAME} test examples and vocabulary",
        "cut": f": loss {SAME} test examples and vocabulary",
        "low": f": loss {SAME} vocabulary; no other measure does in any case",
    },
    "bits_per_character": {
        "char": ", on which bits_per_character does not depend: it compares them",
        "half": f": bits_per_character {SAME} test examples",
        "cut": f": bits_per_character {SAME} test examples",
        "low": f": bits_per_character {SAME} {CASE}; no other measure does in any case",
    },
}


@pytest.mark.parametrize("measure", TOLD)
def test_what_may_not_be_compared_is_said_before_anything_is_trained(
    measure: str, tmp_path: Path, capsys: Any
) -> None:
    """Variants that differ in nothing but the system have no line."""
    values = {"char": "char", "half": "train.txt[:50%]", "cut": 3, "low": True}
    variants: dict[str, Any] = {"word": {}, "wide": {"system.width": 8}}
    variants |= {name: {key: values[name]} for name, key in DIFFERING.items()}
    planned(tmp_path, base_of_texts(tmp_path), f"measure=({measure!r}, 'min')", compare=variants)
    told = TOLD[measure].items()
    said = {f"note: {name} and word differ in {DIFFERING[name]}{line}" for name, line in told}
    assert set(capsys.readouterr().err.splitlines()) == said


PRUNED = (
    "search=Search({'schedule.peak': choice(1e-3, 3e-3)}, sampler='random', trials=2,"
    " pruner='halving')"
)


@pytest.mark.parametrize(
    ("config", "metric"),
    [
        ("configs/classification.py", "macro_f1"),
        ("configs/language_modelling.py:lstm", "recall"),
        ("configs/language_modelling.py:lstm", "bits_per_character"),
    ],
)
def test_a_pruner_looks_at_any_score_known_while_training(
    config: str, metric: str, tmp_path: Path
) -> None:
    base = {"data.examples": 60, "data.valid": 8, "system.width": 4}
    mode = "min" if metric.startswith("bits") else "max"
    select = f"select=({metric!r}, {mode!r})"
    plan = planned(tmp_path, base, select, PRUNED, config=config)
    assert (plan.search["pruner"], plan.select["metric"]) == ("halving", metric)


def test_a_pruner_is_refused_a_score_that_only_decoding_gives(tmp_path: Path, quick: None) -> None:
    words = "search.pruner needs a score that is known while a trial trains, not 'exact'; choose"
    assert words in refused(tmp_path, SCORES, PRUNED, "select=('exact', 'max')", imports=SEARCH)
    assert not (tmp_path / "sweep").exists()


def test_a_pruner_needs_three_evaluations(tmp_path: Path, quick: None) -> None:
    words = "training.evaluate_every=6 of 12 steps makes fewer than three"
    assert f"{words}; set it to 4 or less" in refused(tmp_path, SCORES, PRUNED, imports=SEARCH)


@pytest.mark.parametrize(
    ("metric", "key", "told"),
    [
        ("loss", "kind", r"vocabulary.kind tunes.* select by bits_per_character, or"),
        ("bits_per_character", "kind", ""),
        ("loss", "lowercase", r"vocabulary.lowercase tunes.* select by another score, or"),
        ("bits_per_character", "lowercase", r"vocabulary.lowercase tunes.* by another score, or"),
    ],
)
def test_a_score_that_depends_on_the_vocabulary_does_not_choose_one(
    metric: str, key: str, told: str, tmp_path: Path
) -> None:
    """Nats per token of characters are fewer than of words, and bits per character of lower-cased
    texts than of others, whichever model is better.
    """
    values = ("word", "char") if key == "kind" else (False, True)
    tune = f"tune=grid({ {f'vocabulary.{key}': values}!r})"
    lines = (base_of_texts(tmp_path), tune, f"select=({metric!r}, 'min')")
    if told:
        check_refused(told, planned, tmp_path, *lines)
    else:
        assert len(planned(tmp_path, *lines).candidates) == 2
