"""The table of what was tuned: every setting, the chosen one, and what a search did."""

import json
from pathlib import Path

from attnlab.experiments.report import tables
from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import compare
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.tuning import tried
from tests.experiments.report.tabled import part
from tests.experiments.synthetic import edit, sweep


def test_tuning_lists_every_setting_and_the_chosen_one(tmp_path: Path) -> None:
    table = tried(collect(sweep(tmp_path / "tuned", tuned={0.001: 0.5, 0.003: 0.0})), "model")
    assert table is not None and table.strong == {1, 3, 5}
    assert table.notes == ("Each variant had 2 settings tried.",)
    expected = [("additive", "peak=0.001", "4", "1.575"), ("additive", "peak=0.003", "4", "1.075")]
    assert [row[:4] for row in table.rows[:2]] == expected
    assert [row[-1] for row in table.rows] == ["", "chosen"] * 3
    assert tried(collect(sweep(tmp_path / "plain")), "model") is None


def test_tuning_says_how_many_settings_trained(tmp_path: Path) -> None:
    directory = sweep(tmp_path, tuned={0.001: 0.5, 0.003: 0.0})
    chosen = json.loads((directory / "choice.json").read_text())["chosen"]
    lost = {"general-1/seed0": "OSError: no space left"}
    chosen["general"] |= {"settings": 2, "trained": 1, "accepted": lost}
    chosen["additive"] |= {"settings": 2, "trained": 2, "accepted": {}}
    edit(directory / "choice.json", chosen=chosen)
    table = tried(collect(directory), "t")
    assert table is not None and table.notes[0] == "Each variant had 2 settings tried."
    without = "chosen without general-1/seed0 (OSError: no space left)"
    assert table.notes[1:] == (f"general: 1 of 2 settings trained; {without}.",)


def test_tuning_makes_its_intervals_like_the_rest(tmp_path: Path) -> None:
    """Of the validation losses of additive, 1.075 on average: a bootstrap interval stays inside
    them, that of t does not.
    """
    directory = sweep(tmp_path, tuned={0.001: 0.5, 0.003: 0.0})
    for method, expected in (("model", "[1.0506, 1.0994]"), ("bootstrap", "[1.0650, 1.0850]")):
        tuning = part(gather(directory, method), "Tuning, on the validation split")
        assert tuning.rows[1][:5] == ("additive", "peak=0.003", "4", "1.075", expected)


def test_a_search_is_described(tmp_path: Path) -> None:
    """Before the end of a search only its first seeds are trials, and a sweep without any candidate
    yet has empty tables.
    """
    search = {"sampler": "tpe", "trials": 2, "pruner": None, "at_once": 2, "seed": 0, "space": {}}
    records = collect(
        sweep(tmp_path / "some", tuned={0.001: 0.5, 0.003: 0.0}, search=search, final=False)
    )
    assert {record.seed for record in records.trials} == {0} and len(records.trials) == 6
    table = tried(records, "model")
    assert table is not None and "searched for (sampler=tpe, trials=2" in table.notes[0]
    assert {row[2] for row in table.rows} == {"1"}
    assert table.notes[0].endswith(
        "Of them, additive: 2 done, 24 steps; general: 2 done, 24 steps; location: 2 done, 24"
        " steps."
    )
    records = collect(sweep(tmp_path / "none", search=search, candidates=[]))
    comparison = compare(records)
    assert comparison.rows == ()
    assert tables.results(records, comparison).rows == tables.trials(records).rows == ()
