"""Runs that train a part of the parameters learn the same on several devices, in microbatches, stopped
and gone on with, and several as one program.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import backend
from attnlab.training.settings import Lora, Parallel
from attnlab.training.step import make_step
from attnlab.training.trained import Trained
from attnlab.training.updates import Updates, best_params
from attnlab.weights.names import flat
from tests.training.test_stacked import Lines, check_trained_both_ways
from tests.training.toy import FEATURES, Line, last_state, points, run, settings, steps_on

FROZEN = {"training__freeze": ("layer_1",), "training__rates": ("b$=0.5",)}
ADAPTED = {"lora": {"rank": 2, "alpha": 4.0, "dropout": 0.0, "on": ("layer_0",), "also": ("b$",)}}
DROPPED = {"lora": {**ADAPTED["lora"], "dropout": 0.3}}
PARTLY = pytest.mark.parametrize(
    "which", [pytest.param(FROZEN, marks=pytest.mark.full), DROPPED], ids=["frozen", "dropped"]
)


def set_to(**changes: Any) -> Any:
    """A config of 9 steps with the settings above, which those of the line have not."""
    nodes = {name: changes.pop(name) for name in ("lora",) if name in changes}
    own = {name: changes.pop(name) for name in list(changes) if name in FROZEN}
    config = settings(**changes)
    for name, value in own.items():
        config.training[name.partition("__")[2]] = value
    config.lora = Lora(**nodes.get("lora", {}))
    return config


class Deep(Lines):
    """y = (x W_0) w_1 + b."""

    def init(self, key: jax.Array) -> Any:
        first, other = jax.random.split(key)
        return {
            "layer_0": {"kernel": jax.random.normal(first, (FEATURES, FEATURES))},
            "layer_1": {"kernel": jax.random.normal(other, (FEATURES,))},
            "b": jnp.zeros(()),
        }

    def loss(self, params: Any, batch: Any, key: jax.Array) -> Any:
        assert set(params) == {"layer_0", "layer_1", "b"}  # the model knows nothing of LoRA
        w = params["layer_0"]["kernel"] @ params["layer_1"]["kernel"]
        return Line.loss(self, {"w": w, "b": params["b"]}, batch, key)


@pytest.mark.parametrize("which", [FROZEN, ADAPTED], ids=["frozen", "adapted"])
@pytest.mark.parametrize(
    ("name", "devices", "accumulate"), [("pmap", 4, 1), ("pmap", 2, 2), ("mesh", 4, 2)]
)
def test_the_same_everywhere(name: str, devices: int, accumulate: int, which: Any) -> None:
    """Parameters, moving averages and norms after some steps, on however many devices."""
    config = set_to(training__ema=0.5, **which)
    trained = Trained.of(config)
    optimizer, _ = build_optimizer(config.optimizer, config.schedule, steps=9, clip=1.0)

    def after(name: str, devices: int, accumulate: int) -> Any:
        place, task = backend(Parallel(backend=name, devices=devices)), Deep()
        options = {"accumulate": accumulate, "ema": 0.5, "trained": trained}
        step = make_step(task.loss, task.weight, optimizer, **options)
        batches = [points(3 * number + 2) for number in range(3)]
        *_, after = steps_on(place, step, Updates.of(config).first_states(task)(0), batches)
        return tuple(map(place.fetch, after))

    (actual, told), (expectation, expected) = after(name, devices, accumulate), after("mesh", 1, 1)
    assert float(told["grad_norm"]) == pytest.approx(float(expected["grad_norm"]), rel=1e-5)
    for one, other in (actual.params, expectation.params), (actual.ema, expectation.ema):
        for path, leaf in flat(one).items():
            np.testing.assert_allclose(leaf, flat(other)[path], atol=2e-6, err_msg=path)


@PARTLY
def test_stopped_and_resumed_equals_uninterrupted(which: Any, tmp_path: Path) -> None:
    config, task = set_to(training__ema=0.5, training__log_every=1, **which), Deep()
    run(tmp_path / "whole", config, task)
    assert run(tmp_path / "cut", config, task, stop=5).state == "interrupted"
    assert run(tmp_path / "cut", config, task).state == "done"
    states = [last_state(tmp_path / name, config, task).tree for name in ("whole", "cut")]
    jax.tree.map(np.testing.assert_array_equal, *states)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "cut")]
    assert metrics[0] == metrics[1]
    begun, still = flat(Updates.of(config).first_states(task)(0).params), {"layer_1/kernel"}
    still |= {"layer_0/kernel"} if "lora" in which else set()
    for path, leaf in flat(states[0].params).items():
        assert np.array_equal(leaf, begun[path]) == (path in still), path
    used, _ = best_params(config, task, tmp_path / "whole")
    assert set(flat(used)) == {"layer_0/kernel", "layer_1/kernel", "b"}
    if "lora" in which:  # what is used is what was evaluated: the sum, of the moving averages
        assert not np.array_equal(flat(used)["layer_0/kernel"], begun["layer_0/kernel"])


@PARTLY
def test_several_as_one_program(which: Any, tmp_path: Path) -> None:
    configs = [
        set_to(seed=seed, schedule__peak=peak, training__ema=0.5, **which)
        for seed, peak in ((0, 0.1), (1, 0.03))
    ]
    stacked, _ = check_trained_both_ways(tmp_path, configs, Deep())
    assert [outcome.state for outcome in stacked] == ["done", "done"]
