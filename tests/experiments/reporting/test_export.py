"""`report.json` and `report.csv`: strict JSON, numbers that read back as they were, one a line."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.reporting.contents import gather
from attnlab.experiments.reporting.export import ALL, HEAD, as_csv, as_json
from tests.experiments.synthetic import SCORES, sweep


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.quick
def test_json_holds_rows_verdict_and_trials(tmp_path: Path) -> None:
    contents = gather(sweep(tmp_path))
    found = strict(as_json(contents))
    assert found["complete"] is True and found["basis"] == {"split": "test", "metric": "exact", "mode": "max"}
    rows = {row["variant"]: row for row in found["rows"]}
    assert rows["general"]["values"] == {str(seed): value for seed, value in enumerate(SCORES["general"])}
    assert rows["additive"]["difference"] is None and rows["location"]["difference"]["p"] < 0.001
    assert rows["general"]["interval"] == list(contents.comparison.rows[1].summary.interval or ())
    assert (found["verdict"]["outcome"], found["verdict"]["sentence"]) == ("supported", "supported (4 seeds)")
    assert len(found["trials"]) == 12 and found["trials"][0]["scores"]["test"]["exact"] == 0.91


def test_json_of_one_seed_and_of_losses_has_null_where_nothing_is(tmp_path: Path) -> None:
    found = strict(as_json(gather(sweep(tmp_path / "one", {"additive": (0.9,), "location": (0.1,)}))))
    assert found["rows"][1]["interval"] is None and found["rows"][1]["std"] is None and found["rows"][1]["difference"]["p"] is None
    found = strict(as_json(gather(sweep(tmp_path / "lost", {"additive": (math.nan,), "location": (0.1,)}))))
    assert found["rows"][0]["mean"] is None and found["rows"][0]["missing"] == ["seed 0 diverged"]


@pytest.mark.quick
def test_csv_has_every_score_and_every_figure(tmp_path: Path) -> None:
    lines = list(csv.reader(io.StringIO(as_csv(gather(sweep(tmp_path))))))
    assert tuple(lines[0]) == HEAD and all(len(line) == len(HEAD) for line in lines)
    scores = {(line[0], line[2]): float(line[5]) for line in lines[1:] if (line[3], line[4]) == ("test", "exact")}
    assert scores == {(variant, str(seed)): value for variant, values in SCORES.items() for seed, value in enumerate(values)}
    figures = {(line[0], line[4]): float(line[5]) for line in lines[1:] if line[2] == ALL}
    assert figures["additive", "exact mean"] == 0.925 and figures["location", "exact difference"] == pytest.approx(-0.5)
    assert figures["general", "parameters"] == 12352 and ("additive", "exact adjusted p") not in figures
