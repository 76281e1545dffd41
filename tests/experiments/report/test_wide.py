"""`trials.csv`: one row a trial, whatever stands in it, and every number as it was."""

import csv
import io
import math
from pathlib import Path

import pytest

from attnlab.experiments.report import report
from tests.experiments.synthetic import SCORES, changing, claim, sweep


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
