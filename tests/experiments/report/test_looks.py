"""How often the test split was read, what was added in between, and the level that is left."""

from pathlib import Path

import pytest

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.looks import level
from attnlab.experiments.report.statistics.planned import spent
from tests.experiments.report.tabled import warned
from tests.experiments.synthetic import claim, end, lines, look, start, sweep, workdir

TWO = {"a": (0.9, 0.8, 0.85, 0.87), "b": (0.5, 0.4, 0.45, 0.42)}
CLAIM = claim({"a": 1.0, "b": -1.0}, 0.1)
LATER = 1.9e9  # seconds since 1970, after 2026
LAST = look(seeds=[0, 1, 2, 3], time="2027-01-01T00:00:00+00:00")


def later(directory: Path, variant: str, seed: int) -> None:
    """Let a trial have begun after the first look."""
    records = [start(LATER), end(LATER + 9, 9.0)]
    lines(workdir(directory, variant, seed) / "events.jsonl", records)


@pytest.mark.quick
def test_seeds_added_until_satisfied_are_told(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO, claim=CLAIM)
    lines(directory / "looks.jsonl", [look(seeds=[0, 1]), look(seeds=[0, 1]), LAST])
    for variant in TWO:
        for seed in (2, 3):
            later(directory, variant, seed)
    first, more = warned(gather(directory), "looks")
    words = "Seeds 2, 3 were added after the test split was first read (2026-01-01T00:00:00+00:00)."
    assert first == words
    assert more == (
        "The test split was judged 2 times, with seeds 0, 1; then 0, 1, 2, 3, and 1 was planned:"
        " a chance finding is likelier than 5 %. Looks planned ahead (looks=2 in the experiment)"
        " keep it there."
    )
    assert gather(directory).comparison.alpha == 0.05


def test_planned_looks_are_tested_at_the_level_that_is_left(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO, claim=CLAIM, looks=2)
    lines(directory / "looks.jsonl", [look(seeds=[0, 1]), LAST])
    records = collect(directory)
    assert level(records) == spent(2, 2) < 0.05
    contents = gather(directory)
    assert contents.comparison.alpha == spent(2, 2) and contents.verdict is not None
    assert contents.verdict.alpha == spent(2, 2)
    words = f"tested at a level of {spent(2, 2):.3g} in place of 0.05."
    assert warned(contents, "looks") == [f"Look 2 of 2 that were planned: {words}"]
    lines(directory / "looks.jsonl", [look(seeds=list(range(n))) for n in (1, 2, 4)])
    contents = gather(directory)
    assert contents.comparison.alpha == spent(2, 2)  # one more than planned has no level of its own
    assert any("judged 3 times" in text for text in warned(contents, "looks"))
    one = sweep(tmp_path / "one", TWO, looks=2)
    lines(one / "looks.jsonl", [look(seeds=[0, 1, 2, 3])])
    assert level(collect(one)) == spent(1, 2)
    assert level(collect(sweep(tmp_path / "plain", TWO))) == 0.05


def test_variants_added_in_the_light_of_test_scores_are_told(tmp_path: Path) -> None:
    """Also in a sweep of version 1, which may have no record of looks: the choice was made then."""
    directory = sweep(tmp_path, TWO)
    for seed in range(4):
        later(directory, "b", seed)
    (text,) = warned(gather(directory), "looks")
    lines(directory / "looks.jsonl", [look(seeds=[0, 1, 2, 3], time="2031-01-01T00:00:00+00:00")])
    assert warned(gather(directory), "looks") == [text]  # as it goes on
    words = "Variants b were added after the test split was first read (2026-01-01T00:00:00+00:00)."
    assert text == words
    assert warned(gather(sweep(tmp_path / "none", TWO)), "looks") == []


def test_a_choice_alone_is_no_look(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    frozen = look("choice", chosen={"a": "a-0a1b2c3d"})
    lines(directory / "looks.jsonl", [frozen, LAST])
    assert warned(gather(directory), "looks") == []
