"""Which configs share a program, and what may differ between them."""

from typing import Any

import optax
import pytest

from attnlab import config as configs
from attnlab.training.hyperparameters import numbers, signature
from attnlab.training.optimizers import check_own
from tests.refusals import check_refused
from tests.training.toy import settings

TOY = settings().to_dict()


def test_all_settings_of_a_real_config_are_told_apart_but_the_numbers() -> None:
    """Whatever leaf is changed, the signature changes with it, unless it is one of the numbers or
    the seed.
    """
    overrides = ["training.label_smoothing=0.1", "optimizer=adamw"]
    config = configs.load("configs/translation.py:transformer", overrides)
    free = numbers(config)
    assert set(free) == {f"optimizer.{name}" for name in ("b1", "b2", "eps", "weight_decay")} | {
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
    config, other = ({**TOY, "optimizer": {**own, "b1": b1}} for b1 in (0.9, 0.5))
    for declared in ((), ("b1",), ("b1", "b2")):
        monkeypatch.setattr(declaring, "numbers", declared, raising=False)
        actual = {name[10:] for name in numbers(config) if name.startswith("optimizer.")}
        assert actual == {*declared}
        assert (signature(config) == signature(other)) == ("b1" in declared)
    check_own(own, {"name": "constant"}, steps=3)
    del config["optimizer"]["b1"]
    check_refused("numbers has 'b1'; choose from: b2, steps", numbers, config)


@pytest.mark.quick
def test_what_is_off_is_no_number() -> None:
    for off, on, other in (
        [{**TOY, "optimizer": {"name": "sgd", "momentum": x}} for x in (0.0, 0.5, 0.9)],
        [{**TOY, "auxiliary": {"hops": value}} for value in (None, 0.1, 1)],
        [settings(training__clip=norm) for norm in (0.0, 1.0, 3.0)],
        [settings(training__ema=decay) for decay in (0.0, 0.9, 0.99)],
    ):
        assert signature(off) != signature(on) == signature(other)
