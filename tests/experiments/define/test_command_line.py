"""Experiments from the words of a command line: the file that they make says the same, and mistakes
are one line. Texts become the values that a file would have, and nothing that a place could read
otherwise.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import Search, choice, grid, integers, log_uniform
from attnlab.experiments.define import Changes, InlineExperiment, definition, load_experiment, spelt
from attnlab.experiments.define.command_line import same
from tests.experiments.plans import CONFIG, EXPERIMENT, FILE
from tests.refusals import check_refused

SCORES = "system.attention.score=dot,additive"


@pytest.mark.quick
def test_the_file_says_what_the_command_line_said(tmp_path: Path) -> None:
    compare = (SCORES, "batch.buckets=(16,32),(64,)", "config.training.label_smoothing=0,0.1")
    words = InlineExperiment(CONFIG, compare, ("schedule.peak=1e-3,3e-3",))
    path = tmp_path / f"{words.name}.py"
    path.write_text(words.file())
    experiment = load_experiment(str(path))
    compared = {
        "system.attention.score": ("dot", "additive"),
        "batch.buckets": ((16, 32), (64,)),
        "training.label_smoothing": (0.0, 0.1),
    }
    assert experiment.compare == grid(compared)
    assert experiment.tune == grid({"schedule.peak": (1e-3, 3e-3)})
    assert experiment.config == CONFIG and experiment.measure == ("bleu", "max")
    assert experiment.select == ("loss", "min")
    assert path.name == "rnnsearch.py" and words.file() == path.read_text()
    command = "sweep --config=configs/translation.py:rnnsearch --grid=system.attention"
    assert command in path.read_text()


def test_ranges_are_searched_for_one_row_or_for_many(tmp_path: Path) -> None:
    search = ("schedule.peak=log_uniform(1e-4, 1e-2)", "system.encoder=integers(8,16)")
    search = (*search, "schedule=choice(cosine,linear)")
    words = InlineExperiment(
        "configs/classification.py", search=search, trials=5, pruner="halving", measure="macro_f1"
    )
    (tmp_path / "own.py").write_text(words.file())
    experiment = load_experiment(str(tmp_path / "own.py"))
    space = {
        "schedule.peak": log_uniform(1e-4, 1e-2),
        "system.encoder": integers(8, 16),
        "schedule": choice("cosine", "linear"),
    }
    assert experiment.search == Search(space, trials=5, pruner="halving")
    assert [dict(one.overrides) for one in experiment.compare] == [{}]
    assert words.name == "classification"
    assert (experiment.measure, experiment.select) == (("macro_f1", "max"), ("accuracy", "max"))
    for config, measure in (
        ("configs/g2p.py", ("phoneme_error_rate", "min")),
        ("configs/language_modelling.py:lstm", ("loss", "min")),
    ):
        file = dataclasses.replace(words, config=config, measure="").file()
        (tmp_path / "own.py").write_text(file)
        assert load_experiment(str(tmp_path / "own.py")).measure == measure


def test_without_gives_the_whole_each_part_taken_out_and_all(tmp_path: Path) -> None:
    words = "system.positions,config.schedule.warmup,training.output_bias=unigram"
    inline = InlineExperiment("configs/translation.py:transformer", without=(words,))
    (tmp_path / "own.py").write_text(inline.file())
    assert f"--without={words}" in inline.file()
    off = {"system.positions": "none", "schedule.warmup": 0, "training.output_bias": "unigram"}
    parts = [(f"without {key.rpartition('.')[2]}", {key: off[key]}) for key in off]
    compare = load_experiment(str(tmp_path / "own.py")).compare
    rows = [("whole", {}), *parts, ("without all", off)]
    assert [(point.name, dict(point.overrides)) for point in compare] == rows
    taken = dataclasses.replace(inline, without=("data.name=off",)).file()
    assert "{'data.name': 'off'}" in taken  # a value like any other
    one = dataclasses.replace(inline, without=("system.positions",)).file()
    assert "rows({'whole': {}, 'without positions': {'system.positions': 'none'}})" in one


def test_a_sweep_is_named_by_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.1" / "maps").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run.1")
    names = [CONFIG, "configs/g2p.py", str(tmp_path / "run.1"), "manifest.json", ".", "maps/../"]
    named = [InlineExperiment(config).name for config in names]
    assert named == ["rnnsearch", "g2p", *["run.1"] * 4]


EXPECTED = "expected a setting and its values, such as system.attention.score=dot,additive"
RANGE = "expected a range, such as schedule.peak=log_uniform(1e-4,1e-2)"
NAMELESS = "no config file 'configs/translatoin.py'; did you mean"
MISTAKES: dict[str, dict[str, Any]] = {
    "nothing is compared or tuned; add --grid KEY=VALUE,VALUE": {},
    f"--grid system: {EXPECTED}": {"grid": ("system",)},
    "--grid a b=1: expected a setting and its values": {"grid": ("a b=1",)},
    "'system.attention.score' is given twice": {"grid": (SCORES, SCORES)},
    "--tune: grid: 'schedule.peak' has a value twice": {"tune": ("schedule.peak=1e-3,0.001",)},
    f"--search schedule.peak=1,2: {RANGE}": {"search": ("schedule.peak=1,2",)},
    "'loguniform'; did you mean 'log_uniform'": {"search": ("schedule.peak=loguniform(1,2)",)},
    "expected two numbers": {"search": ("schedule.peak=uniform(1)",)},
    "low must be above 0": {"search": ("schedule.peak=log_uniform(0,1)",)},
    "did you mean 'halving'?": {"search": ("a=uniform(0,1)",), "pruner": "havling"},
    "search.trials is 0": {"search": ("a=uniform(0,1)",), "trials": 0},
    "--trials and --pruner are of a search": {"grid": (SCORES,), "trials": 3},
    "exact,maximal: 'maximal'; did you mean 'max'": {"grid": (SCORES,), "measure": "exact,maximal"},
    "--grid and --without are both given": {"grid": (SCORES,), "without": ("system.dropout",)},
    "--without: system.dropout is 0 already": {"without": ("system.dropout",)},
    "--without: config.system.drop: no such key; did you mean": {"without": ("system.drop",)},
    "--without seed: 'seed' is given twice; leave one of them out": {"without": ("seed,seed",)},
    "--without : expected a setting": {"without": ("schedule.warmup,",)},
    "--without seed=: expected a setting": {"without": ("seed=",)},
    "--without: system.attention.score lies in system.attention; leave one of them out": {
        "without": ("system.attention.score=dot,system.attention=single",)
    },
    NAMELESS: {"grid": (SCORES,), "config": "configs/translatoin.py"},
}


@pytest.mark.parametrize(("said", "given"), MISTAKES.items())
def test_what_is_no_experiment_is_one_line(said: str, given: dict[str, Any]) -> None:
    check_refused(re.escape(said), InlineExperiment(**{"config": CONFIG, **given}).file)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("key", "own", "given"),
    [
        ("training.steps", 60, "60"),
        ("schedule.peak", 1e-3, "0.001"),
        ("schedule.peak", 1e-3, "1e-3"),
        ("schedule.peak", 1.0, "1"),
        ("vocabulary.lowercase", True, "true"),
        ("batch.buckets", (16, 32), "16,32"),
        ("vocabulary.kind", "word", "word"),
        ("data.name", "60", "60"),
        ("training.steps", "60", "60"),
        ("system.attention.score.hidden", 8, "8"),
    ],
)
def test_a_setting_given_as_in_the_file_is_the_same_candidate(
    key: str, own: Any, given: str
) -> None:
    experiment = dataclasses.replace(EXPERIMENT, base={key: own})
    changes = (Changes(), Changes((f"{key}={given}",)))
    plain, changed = (definition(change.applied(experiment), FILE) for change in changes)
    assert changed == plain


def test_without_the_file_the_config_says_the_type_and_what_nobody_knows_stays_as_it_is() -> None:
    given = ("training.steps=0600", "training.steps=600", "schedule.peak=2e-3")
    given += ("data.directory=1e5", "system.new=7", "system.name=007")
    base = Changes(given).applied(dataclasses.replace(EXPERIMENT, base={})).base
    assert [*base] == [word.partition("=")[0] for word in given[1:]]
    assert [*base.values()] == [600, 2e-3, "1e5", 7, "007"]


def test_the_warmup_of_a_file_gives_way_to_fewer_steps() -> None:
    """That of the experiment or of the config; not what the command line says too."""
    for own in ({}, {"training.steps": 1000, "schedule.warmup": 50}):
        experiment = dataclasses.replace(EXPERIMENT, base=own)
        warmup = own.get("schedule.warmup", 100) * 40 // 1000
        assert Changes(("training.steps=40",)).applied(experiment).base["schedule.warmup"] == warmup
        both = ("training.steps=40", "schedule.warmup=45")
        assert Changes(both).applied(experiment).base["schedule.warmup"] == 45
        pattern = ("training.steps=40", "schedule.**.warmup=45")
        base = Changes(pattern).applied(experiment).base
        assert base.get("schedule.warmup") == own.get("schedule.warmup")


def test_a_setting_that_the_config_file_leaves_out_is_of_the_type_of_its_default() -> None:
    """A file that says only what differs makes the same candidates as one that says it all."""
    given = ("training.clip=2", "decoding.beam=3", "training.compute=bfloat16", "auxiliary.hops=1")
    base = Changes(given).applied(dataclasses.replace(EXPERIMENT, base={})).base
    assert [*base.values()] == [2.0, 3, "bfloat16", 1.0]
    assert [type(value) for value in base.values()] == [float, int, str, float]


def test_what_an_earlier_plan_spelt_as_a_text_is_kept() -> None:
    assert same("60", 60) and same("1e-3", 0.001) and same("true", True) and same("16,32", [16, 32])
    assert same("dot", "dot")
    assert not same("60", 61) and not same("60", True) and not same("1e-3", "0.001")
    assert not same("None", 3)
    found = spelt({"a": 60, "b": 7, "c": "x"}, {"a": "60", "b": "8"})
    assert found == {"a": "60", "b": 7, "c": "x"}
    # a setting that becomes None, or is no longer, has changed
    assert not same(None, "bfloat16") and not same("bfloat16", None) and same(None, None)
    assert same("None", None)
