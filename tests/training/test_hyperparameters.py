"""Which configs share a program, and what may differ between them."""

from typing import Any

import optax
import pytest

from attnlab import config as configs
from attnlab.training.hyperparameters import numbers, signature
from attnlab.training.optimizers import check_own
from tests.refusals import check_refused
from tests.training.toy import settings

ADAMW = {"optimizer": {"name": "adamw", "b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.01}}


def toy(**changes: Any) -> dict[str, Any]:
    """The toy config as plain values, with AdamW and changes by dotted name with "__" for the
    dot.
    """
    config = settings(**ADAMW)
    config.update_from_flattened_dict({x.replace("__", "."): changes[x] for x in changes})
    return config.to_dict()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({"seed": 3}, True),
        ({"schedule__peak": 0.2, "optimizer__b1": 0.5, "optimizer__weight_decay": 0.0}, True),
        ({"training__clip": 3.0}, True),
        ({"training__clip": 0.0}, False),  # off: another program
        ({"training__ema": 0.9}, False),
        ({"schedule__warmup": 3, "training__steps": 10}, True),
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
        *("schedule.peak", "schedule.warmup", "training.steps"),
        *("training.clip", "training.label_smoothing"),
    }
    for name, value in configs.flat(config).items():
        changed = configs.from_dict(configs.to_dict(config))
        with changed.ignore_type():
            other = value * 2 + 1 if name in free else "another"
            changed.update_from_flattened_dict({name: other})
        assert (signature(changed) == signature(config)) == (name == "seed" or name in free), name


def declaring(learning_rate: Any, b1: float = 0.9, b2: float = 0.99) -> Any:
    """An optimizer of one's own; its `numbers` are set by a test."""
    return optax.lion(learning_rate, b1=b1, b2=b2)


def test_components_of_ones_own_say_which_of_their_fields_are_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"name": f"{__name__}:declaring", "b1": 0.9, "b2": 0.99}
    config, other = ({**toy(), "optimizer": {**own, "b1": b1}} for b1 in (0.9, 0.5))
    for declared in ((), ("b1",), ("b1", "b2")):
        monkeypatch.setattr(declaring, "numbers", declared, raising=False)
        actual = {name[10:] for name in numbers(config) if name.startswith("optimizer.")}
        assert actual == {*declared}
        assert (signature(config) == signature(other)) == ("b1" in declared)
    check_own(own, {"name": "constant"}, steps=3)
    del config["optimizer"]["b1"]
    check_refused("numbers has 'b1'; choose from: b2, steps", numbers, config)


def test_what_is_off_is_no_number() -> None:
    sgd = [{**toy(), "optimizer": {"name": "sgd", "momentum": x}} for x in (0.0, 0.5, 0.9)]
    assert signature(sgd[0]) != signature(sgd[1]) == signature(sgd[2])
    weighed = [{**toy(), "auxiliary": {"hops": value}} for value in (None, 0.1, 1)]
    assert signature(weighed[0]) != signature(weighed[1]) == signature(weighed[2])
