"""Every subset of the seeds of a sweep, judged by itself."""

from pathlib import Path

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import compare
from benchmarks.subsets import declared, formerly
from tests.experiments.synthetic import sweep


def test_few_seeds_declare_with_the_present_method_what_they_did_not_with_the_former(
    tmp_path: Path,
) -> None:
    scores = {
        "a": (0.90, 0.92, 0.91, 0.93),
        "b": (0.86, 0.83, 0.87, 0.85),
        "c": (0.91, 0.90, 0.92, 0.93),
    }
    comparison = compare(collect(sweep(tmp_path, scores)))
    assert declared(comparison, [0, 1, 2, 3]) == {("a", "b"): 1, ("a", "c"): 0, ("b", "c"): -1}
    assert declared(comparison, [1, 2, 3]) == {("a", "b"): 1, ("a", "c"): 0, ("b", "c"): -1}
    assert set(formerly(comparison, [1, 2, 3]).values()) == {0}
