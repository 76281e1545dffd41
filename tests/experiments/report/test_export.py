"""`report.json` and `report.csv`: strict JSON, numbers that read back as they were, one a line. And
`trials.csv`: one row a trial, whatever stands in it, and every number as it was.
"""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report import report
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.export import ALL, HEAD, as_csv, as_json
from tests.experiments.synthetic import SCORES, changing, claim, lines, sweep, workdir


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.quick
def test_json_holds_rows_verdict_and_trials(tmp_path: Path) -> None:
    contents = gather(sweep(tmp_path))
    found = strict(as_json(contents))
    assert found["complete"] is True and found["basis"] == {
        **{"split": "test", "metric": "exact", "mode": "max"},
        "scale": {"low": None, "high": None, "count": None},
    }
    rows = {row["variant"]: row for row in found["rows"]}
    values = {str(seed): value for seed, value in enumerate(SCORES["general"])}
    assert rows["general"]["values"] == values
    assert rows["additive"]["difference"] is None and rows["location"]["difference"]["p"] < 0.001
    assert rows["general"]["interval"] == list(contents.comparison.rows[1].summary.interval or ())
    assert found["verdict"]["outcome"] == "supported"
    assert found["verdict"]["sentence"] == "supported (4 seeds)"
    assert len(found["trials"]) == 12 and found["trials"][0]["scores"]["test"]["exact"] == 0.91


def test_json_of_one_seed_and_of_a_loss_has_null_where_nothing_is(tmp_path: Path) -> None:
    scores = {"additive": (0.9,), "location": (0.1,), "general": (math.nan,)}
    _, one, lost = strict(as_json(gather(sweep(tmp_path, scores))))["rows"]
    assert one["interval"] is one["std"] is one["difference"]["p"] is None
    assert lost["mean"] is None and lost["missing"] == ["seed 0 diverged"]


@pytest.mark.quick
def test_how_many_pairs_and_how_many_together(tmp_path: Path) -> None:
    """Where the baseline lost a seed the difference has an n of its own; costs that are shared have
    the number of trials beside them.
    """
    directory = sweep(tmp_path, {"additive": (0.9, math.nan, 0.8), "location": (0.1, 0.2, 0.3)})
    for seed in range(3):
        pace = {"step": 3, "step_seconds": 0.01, "together": 4}
        lines(workdir(directory, "location", seed) / "timing.jsonl", [pace])
    contents = gather(directory)
    row = strict(as_json(contents))["rows"][1]
    assert (row["n"], row["difference"]["n"], row["together"], row["most_together"]) == (3, 2, 4, 4)
    read = csv.reader(io.StringIO(as_csv(contents)))
    figures = {line[4]: float(line[5]) for line in read if (line[0], line[2]) == ("location", ALL)}
    assert figures["exact n"] == 3 and figures["exact difference n"] == 2
    assert figures["together"] == 4 and figures["most_together"] == 4
    assert (figures["step_seconds"], figures["peak_bytes"]) == (0.01, 300 * 2**20 + 2)


@pytest.mark.quick
def test_csv_has_every_score_and_every_figure(tmp_path: Path) -> None:
    table = list(csv.reader(io.StringIO(as_csv(gather(sweep(tmp_path))))))
    assert tuple(table[0]) == HEAD and all(len(line) == len(HEAD) for line in table)
    of_test = [line for line in table[1:] if (line[3], line[4]) == ("test", "exact")]
    scores = {(line[0], line[2]): float(line[5]) for line in of_test}
    expected = {(name, str(s)): x for name, each in SCORES.items() for s, x in enumerate(each)}
    assert scores == expected
    figures = {(line[0], line[4]): float(line[5]) for line in table[1:] if line[2] == ALL}
    assert figures["additive", "exact mean"] == 0.925
    assert figures["location", "exact difference"] == pytest.approx(-0.5)
    assert figures["general", "parameters"] == 12352
    assert ("additive", "exact adjusted p") not in figures


def table(directory: Path) -> list[dict[str, str]]:
    report.write(directory, stream=io.StringIO())
    with open(directory / "trials.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.mark.quick
def test_a_row_for_every_trial(tmp_path: Path) -> None:
    """Settings that all have alike are left out; what was not chosen is there; numbers are those of
    the records.
    """
    scores = {**SCORES, "general": (0.1 + 0.2, math.nan, 0.92, 0.9)}
    rows = table(sweep(tmp_path, scores, tuned={0.001: 0.5, 0.003: 0.0}))
    assert len(rows) == 24 and {row["chosen"] for row in rows} == {"yes", "no"}
    by = {(row["variant"], row["schedule.peak"], row["seed"]): row for row in rows}
    one = by["general", "0.003", "0"]
    assert (one["state"], one["chosen"], one["steps"]) == ("done", "yes", "12")
    assert (one["system.attention.score"], one["test exact"]) == ("general", repr(0.1 + 0.2))
    assert (one["seconds"], one["peak_bytes"]) == ("30.5", str(300 * 2**20))
    assert (one["parameters"], one["flops"]) == ("12352", "2500000000.0")
    assert float(one["valid loss"]) == 2.0 - (0.1 + 0.2) and one["step_seconds"] == "0.01"
    lost, tried = by["general", "0.003", "1"], by["additive", "0.001", "0"]
    assert lost["state"] == "diverged" and lost["steps"] == "6" and lost["test exact"] == ""
    assert lost["valid loss"] == "" and lost["seconds"] == "30.5"
    assert (tried["chosen"], tried["test exact"]) == ("no", "") and tried["valid exact"]
    assert not {"training.steps", "test bleu_signature"} & set(one)


def test_whatever_stands_in_a_cell(tmp_path: Path) -> None:
    """Quotes, commas, line ends of either kind, lists, None, a component in place of nothing: read
    back as on the command line.
    """
    directory = sweep(tmp_path, {'a "b", c': (0.9, 0.8), "ü": (0.1, 0.2)})
    odd = {"text": 'x,"y"\r\nz', "buckets": [8, 16], "drop": None, "flag": True}
    odd["position"] = {"name": "rotary", "base": 1e4}
    plain = {"text": "x\ry", "buckets": [8, 32], "drop": 0.1, "position": None, "flag": False}
    with changing(directory / "plan.json") as plan:
        for candidate, settings in zip(plan["candidates"], (odd, plain), strict=True):
            candidate["config"]["system"] = settings
    one, _, other, _ = table(directory)
    assert one["variant"] == 'a "b", c' and other["variant"] == "ü"
    names = [f"system.{name}" for name in ("text", "buckets", "drop", "flag")]
    assert [one[name] for name in names] == ['x,"y"\r\nz', "(8, 16)", "None", "true"]
    assert [other[name] for name in names] == ["x\ry", "(8, 32)", "0.1", "false"]
    assert (one["system.position"], one["system.position.base"]) == ("rotary", "10000.0")
    assert (other["system.position"], other["system.position.base"]) == ("None", "")


def test_a_derived_measure_has_its_column(tmp_path: Path) -> None:
    sooner = claim({"a": 1.0, "b": -1.0}, on="steps_to(loss<=1.5)")
    rows = table(sweep(tmp_path, {"a": (0.9, 0.92), "b": (0.41, 0.5)}, claim=sooner))
    assert [row["steps_to(loss<=1.5)"] for row in rows] == ["9", "9", "", "12"]
