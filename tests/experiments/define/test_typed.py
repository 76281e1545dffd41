"""Texts of a command line become the values that a file would have, and nothing that a place could
read otherwise.
"""

import dataclasses
from typing import Any

import pytest

from attnlab.experiments.define import Changes, definition
from attnlab.experiments.define.typed import same, spelt
from tests.experiments.plans import EXPERIMENT, FILE


@pytest.mark.quick
@pytest.mark.parametrize(
    ("key", "own", "given"),
    [
        ("training.steps", 60, "60"),
        ("schedule.peak", 1e-3, "0.001"),
        ("schedule.peak", 1e-3, "1e-3"),
        ("schedule.peak", 1.0, "1"),
        ("vocabulary.lowercase", True, "true"),
        ("batch.buckets", (16, 32), "16,32"),
        ("vocabulary.kind", "word", "word"),
        ("data.name", "60", "60"),
        ("training.steps", "60", "60"),
        ("system.attention.score.hidden", 8, "8"),
    ],
)
def test_a_setting_given_as_in_the_file_is_the_same_candidate(
    key: str, own: Any, given: str
) -> None:
    experiment = dataclasses.replace(EXPERIMENT, base={key: own})
    changes = (Changes(), Changes((f"{key}={given}",)))
    plain, changed = (definition(change.applied(experiment), FILE) for change in changes)
    assert changed == plain


def test_without_the_file_the_config_says_the_type_and_what_nobody_knows_stays_as_it_is() -> None:
    given = ("training.steps=0600", "training.steps=600", "schedule.peak=2e-3")
    given += ("data.directory=1e5", "system.new=7", "system.name=007")
    base = Changes(given).applied(dataclasses.replace(EXPERIMENT, base={})).base
    assert [*base] == [word.partition("=")[0] for word in given[1:]]
    assert [*base.values()] == [600, 2e-3, "1e5", 7, "007"]


def test_the_warmup_of_a_file_gives_way_to_fewer_steps() -> None:
    """That of the experiment or of the config; not what the command line says too."""
    for own in ({}, {"training.steps": 1000, "schedule.warmup": 50}):
        experiment = dataclasses.replace(EXPERIMENT, base=own)
        warmup = own.get("schedule.warmup", 100) * 40 // 1000
        assert Changes(("training.steps=40",)).applied(experiment).base["schedule.warmup"] == warmup
        both = ("training.steps=40", "schedule.warmup=45")
        assert Changes(both).applied(experiment).base["schedule.warmup"] == 45
        pattern = ("training.steps=40", "schedule.**.warmup=45")
        base = Changes(pattern).applied(experiment).base
        assert base.get("schedule.warmup") == own.get("schedule.warmup")


def test_a_setting_that_the_config_file_leaves_out_is_of_the_type_of_its_default() -> None:
    """A file that says only what differs makes the same candidates as one that says it all."""
    given = ("training.clip=2", "decoding.beam=3", "training.compute=bfloat16", "auxiliary.hops=1")
    base = Changes(given).applied(dataclasses.replace(EXPERIMENT, base={})).base
    assert [*base.values()] == [2.0, 3, "bfloat16", 1.0]
    assert [type(value) for value in base.values()] == [float, int, str, float]


def test_what_an_earlier_plan_spelt_as_a_text_is_kept() -> None:
    assert same("60", 60) and same("1e-3", 0.001) and same("true", True) and same("16,32", [16, 32])
    assert same("dot", "dot")
    assert not same("60", 61) and not same("60", True) and not same("1e-3", "0.001")
    assert not same("None", 3)
    found = spelt({"a": 60, "b": 7, "c": "x"}, {"a": "60", "b": "8"})
    assert found == {"a": "60", "b": 7, "c": "x"}
    # a setting that becomes None, or is no longer, has changed
    assert not same(None, "bfloat16") and not same("bfloat16", None) and same(None, None)
    assert same("None", None)
