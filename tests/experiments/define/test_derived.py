"""The names of measures that are no scores."""

import re

import pytest

from attnlab.experiments.define import derived
from attnlab.experiments.define.derived import Reached, check_derived, forms, is_derived, reached
from tests.refusals import check_refused

MEASURES = {"loss": "min", "accuracy": "max", "bleu": "max"}


def test_names_in_parts() -> None:
    assert reached("steps_to(loss<=1.5)") == Reached("steps_to", "loss", "<=", 1.5)
    assert reached("seconds_to( accuracy >= 9e-1 )") == Reached("seconds_to", "accuracy", ">=", 0.9)
    assert all(is_derived(name) for name in forms()) and [
        name for name in forms() if derived.is_timed(name)
    ] == ["step_seconds", "seconds", "seconds_to(loss<=1.5)"]


@pytest.mark.parametrize(
    "name",
    [
        "loss",
        "steps_to",
        "steps_to(loss)",
        "steps_to(loss<1)",
        "steps_to(loss<=1e)",
        "hours_to(loss<=1)",
    ],
)
def test_what_is_no_derived_measure(name: str) -> None:
    assert reached(name) is None and not is_derived(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("steps_to(los<=1)", "not 'los'; did you mean 'loss'?"),
        ("steps_to(bleu>=30)", "a run trains, not 'bleu'; choose from: accuracy, loss"),
        ("steps_to(accuracy<=0.9)", "to get worse; write 'steps_to(accuracy>=0.9)'"),
    ],
)
def test_what_a_task_cannot_give(name: str, words: str) -> None:
    given = ("measure", name, MEASURES, ("loss", "accuracy"))
    check_refused(f"^measure: .*{re.escape(words)}", check_derived, *given)
    check_derived("measure", "steps_to(loss<=1)", MEASURES, ("loss", "accuracy"))
    check_derived("measure", "peak_bytes", MEASURES, ())
