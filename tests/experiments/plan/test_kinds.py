"""What stands below the fields of a plan has the kinds that its readers count on."""

import json
import re
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from tests.experiments.plan.test_plan import plan


def changed(path: str, value: Any) -> dict[str, Any]:
    """The fields of a plan with another value at a dotted path."""
    fields: dict[str, Any] = json.loads(plan().to_json())
    *above, last = path.split(".")
    place: Any = fields
    for key in above:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    return fields


def test_a_plan_fits() -> None:
    assert Plan.from_json(plan().to_json(), "here") == plan()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("select.metric", 3, "select.metric is 3, expected a text"),
        ("measure.mode", "most", "measure.mode is \"most\", expected 'min' or 'max'"),
        ("candidates.0.config", {"training": {"steps": -1}}, "config.training.steps is -1"),
        (
            "claim",
            {"statement": "x", "contrasts": [{"weights": {"a": "1"}, "at_least": 0.0}]},
            "claim.contrasts[0].weights.a is",
        ),
        ("search", {"sampler": "random"}, "search.trials is missing"),
    ],
)
def test_another_kind_is_told_with_its_place(path: str, value: Any, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        Plan.from_json(json.dumps(changed(path, value)), "here")
