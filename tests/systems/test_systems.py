"""Every registered system computes what its float64 oracle computes, and keeps the promises of its
kind, those that `--system` puts one of somebody's own through.

An oracle reads no padding and no later word, so logits that equal its own depend on neither, in
every setting. The rest is tested of the first setting of each system, and in the full mode of all.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.systems import SYSTEMS
from tests.systems import (
    captioners,
    checks,
    classifiers,
    image_systems,
    language_models,
    visual_answerers,
)
from tests.systems.oracles import ORACLES
from tests.systems.own import KINDS, check_slots, promises
from tests.systems.tiny import check_equal, kind_of

ROOMS: list[Any] = list(dict.fromkeys(KINDS.values()))
FLOAT64 = (captioners, image_systems, visual_answerers)  # where the systems compute in it too
NUMBER = {
    **{"transformer": 6, "transformer-by-layer": 3, "transformer-bart": 4, "convs2s": 2},
    **{"lstmn_seq2seq": 3, "transformer-t5": 6, "transformer-post-additive": 6},
    "convs2s-heads": 2,
}
"""Of maps; one without."""
BY_ITS_ORACLE = (
    *("rnnsearch-previous", "rnnsearch-released", "pointer_generator-uncovered"),
    *("lstm_lm-shared", "attention_lm-key_value", "ngram_rnn-2", "lstmn_lm-word"),
    *("decoder-post", "decoder-rezero", "decoder-res_post"),
)
"""Settings that differ from others in what their oracle holds alone."""
ALONE = ("cached decoding", "pieces", "language_models: padding", "what it reads")
"""Promises that no oracle holds, since each reads one text, and that at once."""
READS = "the oracle reads every parameter"
LEARNING = ("seq2seq", "ngram_rnn", "encoder", "perceptron", "segmenter")  # by default
DEAR = ("resnet", "segmenter", "detr", "glimpses")  # oracles that are slow


def texts_of(room: Any, setting: str) -> list[dict[str, int]]:
    """Of classifiers of texts how many are read; else nothing."""
    return [{"texts": n} for n in room.TEXTS[setting]] if room is classifiers else [{}]


def label(setting: str, of: dict[str, int]) -> str:
    return "-".join([setting, *map(str, of.values())])


COMPARED = {
    label(setting, of): (room, spec, of)
    for room in ROOMS
    for setting, spec in room.COMPARED.items()
    for of in texts_of(room, setting)
}


@functools.cache
def actual_and_expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of its oracle."""
    room, spec, of = COMPARED[case]
    return room.compared(spec, ORACLES[spec["name"]], spec, **of)


QUICK = {room: case for case, (room, _, _) in reversed(COMPARED.items())}.values()
"""The first setting of each kind of system."""


def settings(case: str) -> dict[str, Any]:
    """For the draw: the entries of a setting are parts of it, those of each system its own."""
    _, spec, of = COMPARED[case]
    return {spec["name"]: {**spec, **{name: str(number) for name, number in of.items()}}}


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(settings(case), id=case, marks=[pytest.mark.quick] if case in QUICK else [])
        for case in COMPARED
    ],
)
def test_logits_equal_the_papers(setting: Any, request: pytest.FixtureRequest) -> None:
    """In float32 to 1e-6 of the largest, and to 1e-9 where both compute in float64."""
    case = request.node.callspec.id
    actual, expected = actual_and_expected(case)
    check_equal(actual, expected, 1e-9 if COMPARED[case][0] in FLOAT64 else 1e-6)
    assert np.ptp(expected, axis=-1).min() > 1e-6  # classes, words and queries differ


@pytest.mark.full
@pytest.mark.parametrize("room", [checks, language_models, image_systems])
def test_settings_change_the_formula_so_that_oracles_can_tell(room: Any) -> None:
    """No two settings have the same logits."""
    of_room = [actual_and_expected(case)[1] for case in COMPARED if COMPARED[case][0] is room]
    for one, other in itertools.combinations(of_room, 2):
        assert one.shape != other.shape or np.abs(one - other).max() > 1e-3


@pytest.mark.quick
def test_every_system_has_an_oracle_and_settings() -> None:
    compared = {spec["name"] for _, spec, _ in COMPARED.values()}
    assert set(SYSTEMS.names()) == set(ORACLES) == compared
    assert compared == {spec["name"] for room in ROOMS for spec in room.SPECS.values()}


def check_empty_source(spec: dict[str, Any]) -> None:
    """A source without words gives finite logits and gradients, and changes no other row."""
    call, _ = checks.prepared(spec)
    source, target = checks.batch()
    empty = np.where(np.arange(3)[:, None] == 1, 0, source)
    logits = np.asarray(call(empty, target))
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[::2], np.asarray(call(source, target))[::2], atol=1e-6)
    slopes, _ = checks.passed(spec, target, source=empty)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def of_kind(room: Any) -> str:
    """The name of the file with the promises of a kind."""
    return str(room.__name__.rpartition(".")[2])


def cases() -> Iterator[tuple[str, str, Callable[[], None], bool]]:
    """A setting, a promise of its kind, what to call, and whether only the full mode does."""
    known = set()
    settings = [(room, *item) for room in ROOMS for item in room.SPECS.items()]
    for room, setting, spec in settings:
        system, oracle = SYSTEMS.resolve(spec["name"]), ORACLES[spec["name"]]
        kind, first = kind_of(system), spec["name"] not in known
        known.add(spec["name"])
        checked = dict(promises(kind, system, oracle))
        dropped = ["the oracle", *(() if first else ("dropout", READS))]
        dropped += ["causality", "padding"] if setting in BY_ITS_ORACLE else []
        for promise in {*dropped} & {*checked}:
            del checked[promise]
        for of, (promise, check) in itertools.product(texts_of(room, setting), checked.items()):
            several = promise == "maps" and room is checks
            number = {"number": NUMBER.get(setting, 1)} if several else {}
            call = functools.partial(check, spec, **number, **of)
            dear = not first or (promise == READS and spec["name"] in DEAR)
            dear |= promise == "dropout" and room is checks  # by its places: test_parameters.py
            dear |= of not in texts_of(room, setting)[:1]
            yield label(setting, of), f"{of_kind(room)}: {promise}", call, dear
        more = {"slots and shapes": check_slots} if first else {}
        if room is checks and spec["name"] != "transformer":
            more["an empty source"] = check_empty_source
        for promise, check in more.items():
            case = label(setting, texts_of(room, setting)[0])
            yield case, f"{of_kind(room)}: {promise}", functools.partial(check, spec), not first
        if setting in (larger := getattr(room, "LARGER", {})):
            call = functools.partial(room.check_learning, {**spec, **larger[setting]})
            yield setting, f"{of_kind(room)}: learning by heart", call, setting not in LEARNING


CALLS = {f"{setting}-{promise}": call for setting, promise, call, _ in cases()}


def every(alone: bool) -> list[Any]:
    """The cases of promises of which the draw takes some, or of those in `ALONE`."""
    return [
        pytest.param(
            *([f"{setting}-{promise}"] if alone else [setting, promise]),
            id=f"{setting}-{promise}",
            marks=[pytest.mark.full] * dear,
        )
        for setting, promise, _, dear in cases()
        if promise.endswith(ALONE) == alone
    ]


@pytest.mark.parametrize(("setting", "promise"), every(alone=False))
def test_promise(setting: str, promise: str) -> None:
    check = CALLS[f"{setting}-{promise}"]
    check()


@pytest.mark.parametrize("case", every(alone=True))
def test_promise_that_no_oracle_holds(case: str) -> None:
    check = CALLS[case]
    check()
