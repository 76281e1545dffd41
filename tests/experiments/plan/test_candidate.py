"""The ids of candidates: readable, stable, and of what decides the training."""

from typing import Any

import pytest

from attnlab.experiments import grid, rows
from attnlab.experiments.plan.candidate import Trial, candidate_id, with_code
from tests.experiments.plans import CONFIG, plan


@pytest.mark.quick
def test_an_id_depends_on_the_settings_and_on_nothing_else() -> None:
    one = candidate_id(CONFIG, {"a.b": 1, "c.d": (2, 3)}, ("b=1, d=2x3", ""))
    assert one == candidate_id(CONFIG, {"c.d": [2, 3], "a.b": 1}, ("d=2x3, b=1",))
    new = {"training.precision": "float32", "c.d": [2, 3], "a.b": 1}
    assert one == candidate_id(CONFIG, new, ("b=1, d=2x3",))
    assert one == "b-1-d-2x3-9d1ce85f"  # a folder that a user has on disk
    others = [
        candidate_id(CONFIG, {"a.b": 1, "c.d": (2, 4)}, ("b=1, d=2x3", "")),
        candidate_id(CONFIG, {"a.b": 1.0, "c.d": (2, 3)}, ("b=1, d=2x3", "")),
        candidate_id(CONFIG, {"a.b": 1, "c.d": (2, 3), "e": None}, ("b=1, d=2x3", "")),
        candidate_id(CONFIG + "x", {"a.b": 1, "c.d": (2, 3)}, ("b=1, d=2x3", "")),
    ]
    assert len({one, *others}) == 5


def test_an_id_is_a_folder_name() -> None:
    for name in ("../..", "a/b\\c", "ä", "", "." * 300, "x" * 300, "my.file:Mechanism"):
        found = candidate_id(CONFIG, {}, (name,))
        assert len(found) <= 69 and "/" not in found and "\\" not in found
        assert not found.startswith((".", "-")) and found.isascii()


def test_ids_stay_when_an_experiment_grows_or_is_put_in_another_order() -> None:
    """Variants, seeds and tuned values come and go; what a candidate is stays."""
    small = plan(tune=grid({"schedule.peak": (1e-3,)}))
    variants = {
        "general": {"system.attention.score": "general"},
        "dot": {"system.attention.score": "dot"},
        "additive": {},
    }
    tune = grid({"schedule.peak": (3e-3, 1e-3)})
    other: dict[str, Any] = {"seeds": (5, 0), "baseline": "dot", "question": "Why?"}
    large = plan(compare=rows(variants), tune=tune, **other)
    assert {one.id for one in small.candidates} < {one.id for one in large.candidates}
    assert len(large.candidates) == 6
    first, second = ("a.b", (1, 2)), ("c", (3,))
    swapped = [plan(tune=grid(dict(order))) for order in ([first, second], [second, first])]
    assert {one.id for one in swapped[0].candidates} == {one.id for one in swapped[1].candidates}


def test_a_trial_keeps_its_config_apart_from_the_candidate() -> None:
    candidate = plan().candidates[0]
    Trial(candidate, 1).config["seed"] = 9
    assert candidate.config == {"seed": 0, "training": {"steps": 12}}


def test_code_of_the_users_own_is_part_of_an_id() -> None:
    """Which modules and what is in them; without such code an id is what it was before that was
    kept.
    """
    code = {"mine": "a" * 64, "mine.aid": "b" * 64}
    others = {"mine": "a" * 64}, {**code, "mine": "c" * 64}, {"other": "a" * 64}
    ids = {with_code("a-b-12345678", one) for one in (code, *others)}
    assert len(ids) == 4
    assert all(one.startswith("a-b-") and len(one) == len("a-b-12345678") for one in ids)
    assert with_code("a-b-12345678", dict(reversed(code.items()))) in ids
    assert with_code("a-b-12345678", {}) == "a-b-12345678"
    assert with_code("a-b-12345679", code) not in ids
