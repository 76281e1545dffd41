"""Which configs share a program, and what may differ between them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.training.hyperparameters import differing, numbers, signature
from tests.training.toy import settings

ADAMW = {"optimizer": {"name": "adamw", "b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.01}}


def toy(**changes: Any) -> dict[str, Any]:
    """The toy config as plain values, with AdamW and changes by dotted name with "__" for the
    dot.
    """
    tree = {**settings().to_dict(), **json.loads(json.dumps(ADAMW))}
    for name, value in changes.items():
        *path, last = name.split("__")
        node = tree
        for key in path:
            node = node[key]
        node[last] = value
    return tree


@pytest.mark.quick
@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({"seed": 3}, True),
        ({"schedule__peak": 0.2, "optimizer__b1": 0.5, "optimizer__weight_decay": 0.0}, True),
        ({"training__clip": 3.0}, True),
        ({"training__clip": 0.0}, False),  # off: another program
        ({"training__ema": 0.9}, False),
        ({"schedule__warmup": 3}, False),  # a whole number
        ({"training__steps": 10}, False),
        ({"training__compute": "bfloat16"}, False),
        ({"schedule__name": "cosine"}, False),
        ({"optimizer__name": "adam"}, False),
    ],
)
def test_what_shares_a_program(changes: dict[str, Any], alike: bool) -> None:
    assert (signature(toy()) == signature(toy(**changes))) == alike


def test_all_settings_of_a_real_config_are_told_apart_but_the_numbers() -> None:
    """Whatever leaf is changed, the signature changes with it, unless it is one of the numbers or
    the seed.
    """
    config = configs.load("configs/translation.py:transformer", ["training.label_smoothing=0.1"])
    free = numbers(config)
    assert set(free) == {f"optimizer.{name}" for name in ("b1", "b2", "eps")} | {
        "schedule.peak"
    } | {f"training.{name}" for name in ("clip", "ema", "label_smoothing")}
    for name, value in configs.flat(config).items():
        changed = configs.from_dict(json.loads(json.dumps(configs.to_dict(config))))
        node = changed
        *path, last = name.split(".")
        for key in path:
            node = node[key]
        with changed.ignore_type():
            node[last] = value * 2 + 1 if type(value) is float and value else "another"
        if name != "training.ema":  # 0, and "another" is not
            assert (signature(changed) == signature(config)) == (name == "seed" or name in free), (
                name
            )


def test_components_of_ones_own_and_switches() -> None:
    own = {"optimizer": {"name": "my_package.mine:Mine", "rate": 0.1}}
    assert set(numbers({**toy(), **own})) == {"schedule.peak", "training.clip", "training.ema"}
    assert signature({**toy(), **own}) != signature(
        {**toy(), "optimizer": {**own["optimizer"], "rate": 0.2}}
    )
    sgd = [
        {**toy(), "optimizer": {"name": "sgd", "momentum": value, "nesterov": False}}
        for value in (0.0, 0.5, 0.9)
    ]
    assert signature(sgd[0]) != signature(sgd[1]) == signature(sgd[2])


def test_differing() -> None:
    assert differing([toy(seed=1), toy(seed=2)]) == {}
    found = differing([toy(), toy(schedule__peak=0.2), toy(optimizer__b2=0.5)])
    assert found == {"optimizer.b2": [0.999, 0.999, 0.5], "schedule.peak": [0.1, 0.2, 0.1]}
