"""Experiment files: found, run, checked; every mistake is one line that names the file."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import Budget, Claim, Contrast, Search, better, grid, rows, uniform
from attnlab.experiments.define.loading import Changes, check, definition_hash, load_experiment
from tests.experiments.plans import EXPERIMENT, defined, experiment_file
from tests.experiments.synthetic import budget
from tests.refusals import check_refused

COMPARE = "compare=rows({'additive': {}, 'general': {'system.attention.score': 'general'}})"
SEARCH = Search({"schedule.peak": uniform(1e-3, 1e-2)})


@pytest.mark.quick
def test_the_argument_reaches_the_file(tmp_path: Path) -> None:
    file = experiment_file(tmp_path / "which.py", COMPARE, "baseline=argument")
    assert load_experiment(f"{file}:general").baseline == "general"


def test_a_file_that_is_not_there() -> None:
    words = "no experiment file 'configs/translatoin.py'; did you mean 'configs/translation.py'"
    check_refused(words, load_experiment, "configs/translatoin.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "no function get_experiment(argument) in this file"),
        ("def get_experiment(argument):\n    return 3\n", "get_experiment returned int, expected"),
        ("def get_experiment(argument):\n    return 1 / 0\n", ":2: ZeroDivisionError"),
        ("def get_experiment(argument)\n", ":1: SyntaxError"),
        ("from attnlab.experiments import grid as get_experiment\n", ": grid: expected"),
    ],
)
def test_a_file_that_is_none(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "which.py").write_text(text)
    file = f"{tmp_path}/which.py"
    check_refused(f"^{re.escape(file)}.*{re.escape(words)}", load_experiment, file)


SCORE = "system.attention.score"
BUDGETS: list[tuple[dict[str, Any], str]] = [
    ({"match": "parameter"}, "match is 'parameter'; did you mean 'parameters'?"),
    ({"knob": ""}, "knob is ''; the full name of a whole number is needed"),
    ({"within": 1.5}, "within is 1.5; a share of at least 0 and below 1"),
    ({"to": "generl"}, "to is 'generl'; did you mean 'general'?"),
    ({"knobs": "a.b"}, "knobs is 'a.b'; variants and their knobs are needed"),
    ({"knobs": {"general": ""}}, "knobs['general'] is ''; the full name of a whole number"),
    ({"knobs": {"generl": "a"}}, "knobs: the variant is 'generl'; did you mean 'general'?"),
]
CONTRASTS: dict[str, Any] = {
    "('a', 'b') is no contrast; make it with better(": ("a", "b"),
    "the variant of a contrast is 'genral'; did you mean 'general'?": better("additive", "genral"),
    "the weights {'additive': 1.0} add up to 1; they must add up to 0": Contrast({"additive": 1.0}),
    "and not all be 0": Contrast({"additive": 0.0}),
    "has something in it that is no finite number": better("additive", "general", by=float("nan")),
    "did you mean 'step_seconds' or 'seconds'?": better("additive", "general", on="step_second"),
}


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("question", " ", "question is ' '; a text is needed"),
        ("config", "configs/translatoin.py:a", "no config file 'configs/translatoin.py'; did you"),
        ("looks", 0, "looks is 0; a whole number from 1 to 20 is needed"),
        ("looks", True, "looks is True; a whole number from 1 to 20 is needed"),
        ("compare", (), "compare is empty"),
        ("compare", {"a": {}}, "compare is {'a': {}}; make it with grid, zipped, rows or cross"),
        ("compare", rows({"a": {}}) + rows({"a": {"x": 1}}), "compare has two points called 'a'"),
        ("compare", rows({"a": {}, "b": {}}), "compare: 'a' and 'b' are the same settings"),
        ("tune", grid({SCORE: ("dot",)}), f"'{SCORE}' is both compared and tuned"),
        ("search", Search({SCORE: uniform(0, 1)}), f"'{SCORE}' is both compared and tuned"),
        ("search", SEARCH, "tune and search are both given; take one of them"),
        ("search", {"schedule.peak": 1}, "make it with attnlab.experiments.define.search.Search"),
        ("base", {"seed": 3}, "'seed' is set like any other setting; name the seeds in seeds=(0"),
        ("base", {"a b": 3}, "base: 'a b' is not the dotted name of a setting"),
        ("seeds", (0, 0), "seeds is (0, 0); different whole numbers of at least 0 are needed"),
        ("seeds", (), "seeds is ()"),
        ("seeds", 3, "seeds is 3"),
        ("seeds", (-1,), "seeds is (-1,)"),
        ("baseline", "aditive", "baseline is 'aditive'; did you mean 'additive'?"),
        ("select", "loss", "select is 'loss'; a metric and a mode are needed"),
        ("measure", ("exact", "maximum"), "the mode of measure is 'maximum'; did you mean 'max'?"),
        ("budget", "parameters", "make it with Budget("),
        *(
            ("budget", Budget(**{"match": "flops", "knob": "a.b", **fields}), f"budget.{words}")
            for fields, words in BUDGETS
        ),
        ("claim", "additive wins", "make it with Claim("),
        ("claim", Claim("one", ()), "make it with Claim("),
        *(("claim", Claim("one", (contrast,)), words) for words, contrast in CONTRASTS.items()),
    ],
)
def test_refused(setting: str, value: Any, words: str) -> None:
    tune = grid({"a": (1,)}) if value is SEARCH else EXPERIMENT.tune
    changed = dataclasses.replace(EXPERIMENT, **{"tune": tune, setting: value})
    check_refused(re.escape(words), check, changed)


def test_differences_of_differences_are_contrasts() -> None:
    variants = rows({name: {"x": name} for name in "abcd"})
    four = Contrast({"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}, 0.1)
    claim = Claim("more", (four, Contrast({"a": 0.3, "b": -0.1, "c": -0.2})))
    check(dataclasses.replace(EXPERIMENT, compare=variants, claim=claim))


def test_what_is_left_out_is_filled_in() -> None:
    found = defined(budget=Budget("flops", "system.decoder"), search=SEARCH)
    assert (found["name"], found["baseline"]) == ("which", "additive")
    assert found["budget"] == budget("additive", match="flops", within=0.02)
    wide = defined(budget=Budget("parameters", "system.decoder", 0.05, "general"))
    assert wide["budget"]["within"] == 0.05
    assert found["search"] == SEARCH.to_dict()
    assert found["select"] == {"metric": "loss", "mode": "min"}


def test_the_hash_knows_what_defines_the_experiment(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text("one\n")
    shared: dict[str, Any] = {"config": str(config)}
    first = definition_hash(defined(**shared))
    assert len(first) == 12 and definition_hash(defined(**shared)) == first
    without = {key: value for key, value in defined(**shared).items() if key != "looks"}
    assert definition_hash(without) == first  # as it was without them
    changes: list[dict[str, Any]] = [{"seeds": (0, 1, 2)}, {"base": {}}, {"question": "Why?"}]
    changes += [{"claim": None}, {"measure": ("exact", "max")}, {"looks": 2}]
    changes += [{"compare": EXPERIMENT.compare[::-1]}, {"tune": grid({"a": (1,)})}]
    changes += [{"budget": Budget("flops", "system.decoder")}]
    hashes = {first, *(definition_hash(defined(**shared, **change)) for change in changes)}
    assert len(hashes) == len(changes) + 1
    config.write_text("two\n")
    assert definition_hash(defined(**shared)) != first


def test_patterns_of_the_command_line_and_what_an_experiment_varies(tmp_path: Path) -> None:
    line = "compare=grid({'system.*attention': ('linear', 'multihead')})"
    how: Any = {"config": "configs/translation.py:transformer", "base": {"system.dropout": 0.2}}
    file = experiment_file(tmp_path / "mine.py", line, **how)
    changed = load_experiment(file, Changes(base=("system.**.dropout=1e-1",)))
    names = [point.name for point in changed.compare]
    assert names == ["*attention=linear", "*attention=multihead"]
    assert list(changed.base.items()) == [("system.dropout", 0.2), ("system.**.dropout", 0.1)]
    for override in ("system.encoder_attention=linear", "system.*=linear"):
        changes = Changes(base=(override,))
        check_refused("is compared in the experiment", load_experiment, file, changes)
