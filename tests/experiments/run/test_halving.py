"""Rounds that are cut: where, who goes on, and that nothing but the records decides."""

import dataclasses
import math

import pytest

from attnlab.experiments.run.searching import Course, evaluations, ruling, rungs


def course(name: str, *scores: float, of: int = 9, settled: bool = False) -> Course:
    return Course(name, [10 * number for number in range(1, of + 1)], scores, settled)


def test_evaluations_end_with_the_last_step() -> None:
    assert evaluations({"steps": 400, "evaluate_every": 100}) == [100, 200, 300, 400]
    assert evaluations({"steps": 450, "evaluate_every": 200}) == [200, 400, 450]
    assert evaluations({"steps": 450, "evaluate_every": 0}) == evaluations({"steps": 450}) == [450]


@pytest.mark.parametrize(
    ("trials", "least", "finish", "cuts"),
    [
        (9, 9, 2, 2),  # 9, 3, 2 go on
        (9, 8, 2, 1),  # eight evaluations have no ninth part
        (9, 100, 2, 2),  # later is better: no cut before the one that is needed
        (9, 100, 3, 1),
        (3, 9, 2, 1),
        (2, 9, 2, 0),
        (9, 2, 2, 0),
        (0, 0, 2, 0),
    ],
)
def test_a_round_is_cut_late_and_seldom(trials: int, least: int, finish: int, cuts: int) -> None:
    assert rungs(trials, least, finish) == cuts


def test_the_best_third_goes_on_and_two_to_the_end() -> None:
    names = "abcdefghi"
    begin = ruling([course(name) for name in names], finish=2)
    assert begin.until == dict.fromkeys(names, 10) and not begin.pruned
    first = ruling([course(name, score) for score, name in enumerate(names)], finish=2)
    assert first.until == {"a": 30, "b": 30, "c": 30} and set(first.pruned) == set("defghi")
    assert first.pruned["d"] == "pruned after 1 of 9 evaluations: 3 is not among the best 3 of 9"
    # what comes after the cut changes it no more
    out = [course(name, 5.0, 0.1, settled=True) for name in "defghi"]
    best = {"a": (0.0, 9.0, 9.0), "b": (2.0, 0.5, 9.0), "c": (1.0, 1.0, 0.2)}
    three = [course(name, *scores) for name, scores in best.items()]
    # by the best so far: 0, 0.5, 0.2
    last = ruling([*three, *out], finish=2)
    assert last.until == {"a": None, "c": None} and list(last.pruned) == ["b"]
    three[2] = dataclasses.replace(three[2], settled=True)
    assert ruling([*three, *out], finish=2).until == {"a": None}  # its place is not free


def test_one_that_is_late_is_waited_for_and_one_that_failed_is_not() -> None:
    three = [course(name, *[score] * 3) for name, score in zip("abc", (1.0, 2.0, 3.0), strict=True)]
    waiting = ruling([*three, course("d", 0.5, 0.5)], finish=2)
    assert waiting.until == dict.fromkeys("abcd", 30) and not waiting.pruned
    failed = ruling([*three, course("d", 0.5, 0.5, settled=True)], finish=2)
    assert failed.until == {"a": None, "b": None} and set(failed.pruned) == {"c"}
    diverged_later = ruling([*three, course("d", 0.5, 0.5, 0.5, settled=True)], finish=2)
    # it had its place when the round was cut
    assert diverged_later.until == {"a": None} and set(diverged_later.pruned) == {"b", "c"}


def test_numbers_that_are_none_come_last_and_of_equals_the_first_goes_on() -> None:
    scores = {"a": math.nan, "b": 1.0, "c": 1.0, "d": math.inf}
    rule = ruling([course(name, score, of=3) for name, score in scores.items()], finish=1)
    assert rule.until == {"b": None, "c": None} and set(rule.pruned) == {"a", "d"}


def test_trials_of_other_lengths_are_cut_at_the_same_share() -> None:
    rule = ruling([course("a", of=3), course("b", of=12), course("c", of=6)], finish=2)
    assert rule.until == {"a": 10, "b": 40, "c": 20}
