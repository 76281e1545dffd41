"""`report.json` and `report.csv`: strict JSON, numbers that read back as they were, one a line."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.export import ALL, HEAD, as_csv, as_json
from tests.experiments.synthetic import SCORES, lines, sweep, workdir


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
