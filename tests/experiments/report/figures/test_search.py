"""The search: its history, and what the tuned settings explain."""

import itertools
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report.collect import Records, collect
from attnlab.experiments.report.comparison import compare
from attnlab.experiments.report.figures import search
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.search import importance, importances, searched, tried
from attnlab.pages.svg import Look
from tests.experiments.report.tabled import drawn
from tests.experiments.synthetic import end, lines, sweep

PEAKS = {0.001 * place: 0.1 * abs(place - 5) for place in range(1, 10)}


def tuned(directory: Path, peaks: dict[float, float] = PEAKS) -> Records:
    return collect(sweep(directory, {"a": (0.9, 0.8), "b": (0.7, 0.6)}, tuned=peaks, claim=None))


def pictures(records: Records, styles: Sequence[Look] = ()) -> str:
    """The figure of the search as HTML."""
    return drawn(search.search(records, searched(records), styles))


@pytest.mark.quick
def test_every_setting_has_its_score_and_the_best_is_the_chosen(tmp_path: Path) -> None:
    """The loss on validation is 2 - score, and what `PEAKS` adds."""
    found = tried(tuned(tmp_path), "a")
    assert [one.number for one in found] == list(range(1, 10))
    assert [one.chosen for one in found].index(True) == 4
    assert [one.score for one in found] == pytest.approx([1.15 + added for added in PEAKS.values()])


def test_one_that_was_stopped_has_the_last_score_it_had_and_does_not_count(tmp_path: Path) -> None:
    records = tuned(tmp_path)
    folder = tmp_path / "trials" / records.plan.of("a")[0].id / "seed0"
    begin = json.loads((folder / "events.jsonl").read_text().splitlines()[0])
    costs = {"peak_bytes": None, "first_step_seconds": None}
    why = {"state": "interrupted", "step": 6, "message": "pruned after 2 evaluations"}
    lines(folder / "events.jsonl", [begin, end(130.5, 30.5, **why, **costs)])
    metrics = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in metrics[:4]))
    for seed in ("seed0", "seed1"):
        (folder.with_name(seed) / "valid.json").unlink()
    (folder.with_name("seed1") / "metrics.jsonl").unlink()
    records = collect(tmp_path)
    first = tried(records, "a")[0]
    # at step 6 of 12
    assert first.stopped and first.score == pytest.approx(2 - 0.9 + 0.4 + 0.1 * 6)
    comparison = compare(records)
    text = pictures(records, looks(comparison, "a"))
    # before the choice no row of the table is meant
    assert set(re.findall(r'data-row="(-?\d+)"', pictures(records))) == {"-1", "-2"}
    assert text.count('class="cross"') == 1 and "when stopped" in text
    assert "A cross is one that was stopped" in text


@pytest.mark.quick
def test_a_panel_a_variant_with_the_best_so_far(tmp_path: Path) -> None:
    records = tuned(tmp_path)
    text = pictures(records, looks(compare(records), "a"))
    assert text.count("<figure>") == 2 and text.count("best so far</title>") == 2
    assert text.count('class="ring"') == 2
    assert "no importance" not in text
    assert "5: loss 1.150, peak=0.005" in text and "A cross" not in text
    plain = collect(sweep(tmp_path / "plain"))
    assert search.search(plain, searched(plain), []) is None
    some = tuned(tmp_path / "few", {0.1: 0.0, 0.2: 0.1, 0.3: 0.2})
    few = pictures(some)
    assert few.count("<figure>") == 2 and importances(searched(some)) is None
    assert "no importance of settings is given" in few


GRID = list(itertools.product((1, 2, 3), ("x", "y", "z")))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("values", "scores", "share"),
    [
        ([one for one, _ in GRID], [float(one) for one, _ in GRID], 1.0),
        ([other for _, other in GRID], [float(one) for one, _ in GRID], 0.0),
        ([1] * 9, [float(one) for one, _ in GRID], None),
        ([one for one, _ in GRID], [1.0] * 9, None),
        (list("abcdefghi"), [float(place) for place in range(9)], None),
        ([0.01 * i for i in range(20)], [*map(float, range(19)), 1e9], 1 - (40 / 16) / (665 / 19)),
    ],
)
def test_importance(values: list[Any], scores: list[float], share: float | None) -> None:
    """All, nothing, and nothing to tell by. Twenty numbers are cut into four groups of five, worked
    out by hand.
    """
    assert importance(values, scores) == pytest.approx(share)


def test_importance_of_noise_is_near_nothing() -> None:
    """Without the adjustment three groups of nine values explain a quarter of any noise (2 of 8
    degrees of freedom).
    """
    chance = random.Random(0)
    sizes = [one for one, _ in GRID]
    shares = [importance(sizes, [chance.random() for _ in GRID]) for _ in range(400)]
    assert sum(share or 0.0 for share in shares) / 400 < 0.16


def test_the_table_needs_eight_finished_settings(tmp_path: Path) -> None:
    """The loss is highest at both ends, so that groups of neighbours explain most of it."""
    records = tuned(tmp_path)
    table = importances(searched(records))
    assert table is not None and table.columns == ("variant", "settings", "peak")
    assert table.rows[0][:2] == ("a", "9")
    assert 30 < float(table.rows[0][2].removesuffix(" %")) < 100
    assert importances({"a": tried(records, "a")[:7]}) is None
