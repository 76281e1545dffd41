"""Accuracies by group, as `benchmarks.groups` reads them."""

import pytest

from attnlab.errors import UserError
from benchmarks.groups import of_scores, spread_text

pytestmark = pytest.mark.quick


def test_groups_are_found_in_the_scores_of_a_trial() -> None:
    by = {"2": {"accuracy": 0.5, "questions": 4}, "16": {"accuracy": 1.0, "questions": 2}}
    assert of_scores({"loss": 1.0, "by_pairs": by}, "x") == ("pairs", {2: 0.5, 16: 1.0})
    with pytest.raises(UserError, match="results.json: its scores are not split up"):
        of_scores({"loss": 1.0}, "results.json")


def test_the_least_and_the_largest_are_named_where_seeds_differ() -> None:
    assert [spread_text([]), spread_text([0.5, 0.502]), spread_text([0.25, 0.75])] == [
        "",
        "0.50",
        "0.50 (0.25 to 0.75)",
    ]
