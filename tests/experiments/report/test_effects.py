"""Effects of crossed settings and of parts that are taken out: against statsmodels, and in words."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.effects import Effect, crossed, effects, one_at_a_time, table
from attnlab.experiments.report.report import show
from attnlab.experiments.report.statistics.family import Family
from tests.experiments.report.statistics import golden_effects
from tests.experiments.synthetic import sweep

SCORES: dict[str, Any] = {
    "whole": (0.90, 0.91, 0.92, 0.91),
    "a": (0.80, 0.82, 0.82, 0.81),
    "b": (0.86, 0.86, 0.87, 0.86),
    "both": (0.60, 0.62, 0.62, 0.61),
}
NORM, RESIDUAL = {"system.norm": "none"}, {"system.residual": False}
TWO = {"whole": {}, "a": NORM, "b": RESIDUAL, "both": {**NORM, **RESIDUAL}}
CLIP = {"training.clip": 0.0}
PARTS = {**TWO, "both": CLIP, "all": {**NORM, **RESIDUAL, **CLIP}}
BASE = {"system.norm": "layer", "system.residual": True, "training.clip": 1.0}
LOSSES = {"whole": 0.0, "a": 0.05, "b": 0.10, "both": 0.0, "all": 0.30}
NOISE = np.random.default_rng(1).normal(size=(5, 4))
PART_SCORES = {n: (0.9 - LOSSES[n] + 0.004 * NOISE[i]).tolist() for i, n in enumerate(PARTS)}


def made(
    directory: Path, design: Any = TWO, scores: Any = SCORES, **changes: Any
) -> tuple[Effect, ...]:
    """The effects of a sweep whose variants have these settings beside the base."""
    names = [key for key in BASE if any(key in own for own in design.values())]
    settings = {name: {key: {**BASE, **own}[key] for key in names} for name, own in design.items()}
    plan = {"variants": {name: {} for name in design}, "claim": None, **changes}
    records = collect(sweep(directory, scores, settings=settings, **plan))
    return effects(records, compare(records))


@pytest.mark.quick
@pytest.mark.parametrize("name", golden_effects.DESIGNS)
def test_effects_are_those_of_statsmodels(name: str) -> None:
    """Also where trials are lost: then least squares is of what is there."""
    values = golden_effects.drawn(name)
    settings = {str(cell): {str(i): str(x) for i, x in enumerate(cell)} for cell in values}
    design = crossed(settings, str(next(iter(values))))
    family = Family({str(cell): each for cell, each in values.items()})
    expected = json.loads(golden_effects.FILE.read_text())[name]
    assert [effect.name for effect in design] == list(expected)
    judged = family.effects({effect.name: effect.weights for effect in design})
    for effect in design:
        mean, error, freedom, p = expected[effect.name]
        estimate = family.model.estimate(effect.weights)
        assert estimate.freedom == freedom and estimate.error == pytest.approx(error, rel=1e-9)
        assert estimate.value == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert 2 * stats.t.sf(abs(mean) / error, freedom) == pytest.approx(p, rel=1e-9)
        if not judged[effect.name].own:
            half = error * stats.t.ppf(0.975, freedom)
            assert judged[effect.name].alone == pytest.approx((mean - half, mean + half), abs=1e-9)


def test_two_settings_and_their_interaction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    norm, _, both = found = made(tmp_path)
    assert [effect.weights["both"] for effect in found] == [0.5, 0.5, 1.0]
    begin = "norm=none in place of norm=layer, on average: exact -0.1738 [-0.1889, -0.1586]"
    assert norm.sentence == f"{begin}, adjusted p < 0.001; worse."
    assert both.name == "norm=none with residual=false"
    assert both.sentence.endswith("; not additive, worse than the sum.")
    assert all(effect.decided and effect.n == 4 for effect in found)
    rows = table(found)
    assert rows is not None and "share" not in rows.columns and rows.rows[0][2] == "-0.1738"
    show(gather(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(norm.sentence)
    assert lines[at + 2] == both.sentence


def test_what_is_lost_or_alone_decides_nothing(tmp_path: Path) -> None:
    lost = {**SCORES, "b": (0.86, 0.86, 0.87, math.nan)}
    one = {name: values[:1] for name, values in SCORES.items()}
    same = {name: row.tolist() for name, row in zip(SCORES, NOISE, strict=False)}
    for place, (changes, said) in enumerate(
        (
            ({"scores": lost}, "undecided, for not every seed has a number (b: seed 3 diverged)."),
            ({"scores": {**SCORES, "b": (math.nan,) * 4}}, "no number to compare (b: seed 0 div"),
            ({"test_data": dict.fromkeys(SCORES, "1") | {"b": "2"}}, "(other test data)."),
            ({"scores": one}, "; no test, for one seed has no spread."),
            ({"scores": same}, " found."),
        )
    ):
        found = made(tmp_path / str(place), **changes)
        assert len(found) == 3 and all(said in effect.sentence for effect in found)
        assert not any(effect.decided for effect in found)
    assert made(tmp_path / "open", final=False) == ()
    less = {"measure": {"metric": "exact", "mode": "min"}}
    assert made(tmp_path / "less", **less)[0].sentence.endswith("; better.")


def test_parts_have_shares_of_what_all_do_and_the_largest_is_first(tmp_path: Path) -> None:
    found = made(tmp_path, PARTS, PART_SCORES)
    assert [effect.name for effect in found[:4]] == ["b", "a", "both", "all"]
    comparison = compare(collect(tmp_path))
    for effect in found[:3]:
        assert effect.share is not None and " of the change by all; " in effect.sentence
        for end in effect.share[1]:  # there the sum "part - end x all" is just told from 0
            both = {effect.name: 1.0, "all": -end, "whole": end - 1.0}
            at = comparison.family.model.estimate(both)
            t = abs(at.value) / (at.error or 0.0)
            assert t == pytest.approx(stats.t.ppf(0.975, at.freedom))
    assert found[4].weights == {"whole": 2.0, "all": 1.0, "a": -1.0, "b": -1.0, "both": -1.0}
    assert found[4].sentence.endswith("not additive, worse than the sum.")
    flat = {name: row.tolist() for name, row in zip(PARTS, NOISE, strict=True)}
    assert all(effect.share is None for effect in made(tmp_path / "flat", PARTS, flat))
    unlike = {**PART_SCORES, "all": (0.95, 0.45, 0.85, 0.50)}  # judged by its own spread too
    found = made(tmp_path / "unlike", PARTS, unlike)
    assert found[3].kind == "all" and not found[3].decided
    assert all(effect.share is None for effect in found)


def test_an_effect_that_is_lost_makes_no_other_more_certain(tmp_path: Path) -> None:
    """p is adjusted for all effects of the design, as the note says."""
    cells = itertools.product((False, True), ("layer", "rms", "none"))
    design = {f"{n}{r}": {"system.norm": n, "system.residual": r} for r, n in cells}
    scores = {name: (0.9 + 0.02 * NOISE[place % 5]).tolist() for place, name in enumerate(design)}
    scores["noneTrue"] = [math.nan] * 4
    found = made(tmp_path, design, scores, baseline="layerFalse")
    known = [effect for effect in found if effect.difference is not None]
    assert len(found) == 5 and len(known) == 2
    family = compare(collect(tmp_path)).family
    for effect in known:
        five = family.effects({str(place): effect.weights for place in range(5)})
        assert effect.difference == five["0"]


def test_only_a_design_has_effects() -> None:
    def named(rows: Any) -> dict[str, dict[str, str]]:
        return {f"v{n}": {str(i): str(x) for i, x in enumerate(row)} for n, row in enumerate(rows)}

    def count(*sizes: int) -> int:
        return len(crossed(named(itertools.product(*map(range, sizes))), "v0"))

    grid = list(itertools.product((0, 1), repeat=3))
    half, one = [row for row in grid if sum(row) % 2 == 0], [row for row in grid if sum(row) < 2]
    for rows in (grid[:7], half, grid[:2], [*grid, grid[0]], one, [*one[:3], grid[7]], [()]):
        assert crossed(named(rows), "v0") == () == one_at_a_time(named(rows), "v0")
    assert len(one_at_a_time(named([*one, grid[7]]), "v0")) == 5
    # settings that change together are one; of many effects only the main ones are given
    together = crossed(named((x, x, y) for x, y in itertools.product((0, 1), repeat=2)), "v0")
    assert [effect.name for effect in together] == ["0=1, 1=1", "2=1", "0=1, 1=1 with 2=1"]
    counts = [count(2, 2, 2), count(3, 20), count(4, 16), count(2, 62)]
    assert counts == [6, 2 + 19 + 38, 3 + 15, 0]
