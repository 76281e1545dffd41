"""FLOPs of training steps against unrolled programs, and against XLA's count of the compiled program."""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.experiments.plan import building
from attnlab.experiments.plan.flops import mean_batch, step_flops, step_work
from attnlab.tasks import TASKS
from attnlab.training.updates import Updates
from tests.commands.tiny import SHARED, SMALL
from tests.tasks.tiny_language import JOINED, load


@functools.cache
def tiny(system: str, *overrides: str) -> tuple[Any, Any]:
    small = [*SMALL[system], *SHARED, "data.examples=32", *overrides]
    config = configs.load(f"configs/translation.py:{system}", small)
    return config, TASKS.resolve(config.task).load(config, None, ("train", "valid"))


@functools.cache
def rnnsearch_flops() -> float:
    return step_flops(*tiny("rnnsearch"))


class Batches(SimpleNamespace):
    """Batches [rows, width] of texts, with a picture each and five questions about it."""

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        rows, width = self.shapes[step >= self.counts[0]]
        sizes = {"source": (rows, width), "image": (rows, 5, 9, 3)}
        sizes |= {"question": (rows, 5, width), "label": (rows, 5)}
        return {name: np.zeros(size, np.int32) for name, size in sizes.items()}


def test_the_mean_batch_is_weighted_by_use() -> None:
    """Only tokens are as long as a batch is wide, whatever else has 5 or 9 of something."""
    questions = mean_batch(Batches(shapes=((2, 5), (2, 9)), counts=(1, 2)), 3)
    shapes = {"source": (3, 8), "image": (3, 5, 9, 3), "question": (3, 5, 8), "label": (3, 5)}
    assert {name: one.shape for name, one in questions.items()} == shapes
    batches = Batches(shapes=((8, 16), (4, 32), (2, 64)), counts=(3, 1, 0))
    found = mean_batch(batches, 1)
    shapes = {"source": (6, 20), "image": (6, 5, 9, 3), "question": (6, 5, 20), "label": (6, 5)}
    assert {name: one.shape for name, one in found.items()} == shapes
    assert {one.dtype for one in found.values()} == {np.dtype(np.int32)}
    assert 6 * 20 <= 128 < 7 * 20  # every batch has 128 positions
    assert mean_batch(batches, 4)["source"].shape == (8, 20)
    one_width = Batches(shapes=((8, 16), (4, 32)), counts=(3, 0))
    assert mean_batch(one_width, 1)["source"].shape == (8, 16)


def test_a_step_without_loops_counts_like_the_compiled_one() -> None:
    config, task = tiny("transformer", "system.width=64", "system.hidden=256")
    updates, batch = Updates.of(config), mean_batch(task.batches(1), 1)
    lowered = jax.jit(updates.step(task)).lower(updates.state_like(task), batch)
    compiled = lowered.compile().cost_analysis()
    assert step_flops(config, task) == pytest.approx(compiled["flops"], rel=0.05)


@pytest.mark.full
def test_accumulation_is_no_work() -> None:
    """The same rows in more passes."""
    in_four = step_flops(*tiny("rnnsearch", "training.accumulate=4"))
    assert in_four == pytest.approx(rnnsearch_flops(), rel=0.05)


def test_a_language_model_counts_with_the_lanes_that_it_remembers() -> None:
    """Four times the lanes are four times the work, but for the update, which is small beside 40
    lanes.
    """
    few, many = (load(*JOINED, f"batch.size={size}") for size in (40, 160))
    assert step_flops(many.config, many) == pytest.approx(4 * step_flops(few.config, few), rel=0.1)


def test_work_has_exponentials_loops_and_idle_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Additive scores take a tanh for each hidden unit of each pair where general ones take
    none.
    """
    config, task = tiny("rnnsearch")
    additive = step_work(config, task)
    monkeypatch.setitem(
        SMALL, "rnnsearch", [one for one in SMALL["rnnsearch"] if "score" not in one]
    )
    general = step_work(*tiny("rnnsearch", "system.attention.score=general"))
    batch = mean_batch(task.batches(1), 1)["source"]
    positions, width = batch.shape[0] * batch.shape[1], batch.shape[1]
    hidden = config.system.attention.score.hidden
    more = additive.transcendentals - general.transcendentals
    assert more == pytest.approx(positions * width * hidden, rel=0.05)
    assert additive.loops == general.loops == 0 and additive.idle == general.idle == ()
    assert additive.flops == rnnsearch_flops()

    loss = task.loss
    still = lambda params: {**params, "out_word": jax.lax.stop_gradient(params["out_word"])}
    monkeypatch.setattr(task, "loss", lambda params, *given: loss(still(params), *given))
    assert step_work(config, task).idle == ("out_word/kernel",)


def test_running_averages_are_not_idle() -> None:
    """The norms of a network of convolutions have means and variances, which the step moves."""
    few = ["data.examples=300", "data.side=16", "batch.size=4", "system.widths=4"]
    config = configs.load("configs/image_classification.py:cnn", few)
    task = TASKS.resolve(config.task).load(config, None, ("train", "valid"))
    params = jax.eval_shape(task.init, jax.random.key(0))
    paths = {jax.tree_util.keystr(one) for one, _ in jax.tree_util.tree_leaves_with_path(params)}
    assert any("variance" in path for path in paths)
    assert step_work(config, task).idle == ()


def test_parameters_are_counted_without_computing_any() -> None:
    """Other tests of plans take this count from shapes that were traced before."""
    task = load(*JOINED)
    params = task.init(jax.random.key(0))
    assert building._parameters(task) == sum(leaf.size for leaf in jax.tree.leaves(params))
