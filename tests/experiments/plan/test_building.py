"""Building candidates: configs checked as `train` checks them, data read once, the same thing
counted once. FLOPs of training steps against unrolled programs, and against XLA's count of the
compiled program.
"""

import functools
import re
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data.corpus import Corpus
from attnlab.experiments.plan import building
from attnlab.experiments.plan.building import Builder, mean_batch, step_flops, step_work
from attnlab.tasks import TASKS
from attnlab.tasks.base import Task
from attnlab.training.updates import Updates
from tests.commands.tiny import SHARED, SMALL
from tests.experiments.plans import BASE
from tests.refusals import check_refused
from tests.tasks.tiny_language import JOINED, load


@pytest.fixture
def builder() -> Builder:
    return Builder("configs/translation.py:rnnsearch", seed=5)


@pytest.mark.quick
def test_a_config_has_the_seed_and_typed_values(builder: Builder) -> None:
    overrides = {"system.attention.score": "general", "batch.buckets": [8, 32], "training.clip": 2}
    config = builder.config({**BASE, **overrides})
    assert config.seed == 5 and config.system.attention.score.name == "general"
    assert config.batch.buckets == (8, 32)
    assert type(config.training.clip) is float


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"system.scoer": "dot"}, "config.system.scoer: no such key; did you mean"),
        ({"system.attention.score": "genral"}, "unknown score 'genral'; did you mean 'general'"),
        ({"training.steps": 0.5}, "config.training.steps='0.5': expected int (now 1000)"),
        ({"system.attention": "multihead", "system.attention.heads": 3}, "not divisible by heads"),
        ({"optimizer.b1": 2.0}, "b1"),
    ],
)
def test_refused_before_data_is_read(
    overrides: dict[str, Any], words: str, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Corpus, "load", None)
    check_refused(re.escape(words), builder.config, overrides)


def test_data_is_read_and_counted_once(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    read, counted = [], []
    load = Corpus.load
    monkeypatch.setattr(Corpus, "load", lambda *a: read.append(1) or load(*a))  # type: ignore[func-returns-value]
    monkeypatch.setattr(building, "step_flops", lambda *a: counted.append(1) or 3.0)  # type: ignore[func-returns-value]
    first = builder.config(BASE)
    assert builder.count(first, "flops") == 3.0
    free = {"schedule.peak": 1e-2, "training.steps": 50, "decoding.method": "beam"}
    builder.count(builder.config({**BASE, **free}), "flops")
    assert (len(read), len(counted)) == (1, 1)
    builder.count(builder.config({**BASE, "system.decoder": 12}), "flops")
    assert (len(read), len(counted)) == (1, 2)
    builder.task(builder.config({**BASE, "data.seed": 1}))
    assert len(read) == 2


def test_parameters_are_counted_with_the_true_vocabulary(builder: Builder) -> None:
    """One more unit of the embeddings E: two tables [V,E], the words' share of two encoder cells,
    the decoder cell and the output.
    """
    one, more = (builder.config({**BASE, "system.embedding": size}) for size in (8, 9))
    vocabulary, sizes = builder.task(one).vocabularies[0].size, one.system
    added = 2 * vocabulary + 2 * 3 * sizes.encoder + 3 * sizes.decoder + 2 * sizes.maxout
    assert builder.count(more, "parameters") - builder.count(one, "parameters") == added
    assert vocabulary > 40


def test_examples_of_a_step_are_the_mean_over_an_epoch(builder: Builder) -> None:
    """20 in batches of 16: one is full and one has 4, and rows of PAD are no examples. Running text
    has none.
    """
    assert builder.examples(builder.config({**BASE, "data.examples": 20})) == 10.0
    text = Builder("configs/language_modelling.py:lstm", seed=0)
    few = {"data.examples": 60, "data.valid": 8, "system.width": 4, "batch.texts": "joined"}
    assert text.examples(text.config(few)) is None


def test_batches_that_cannot_be_cut_are_refused(builder: Builder) -> None:
    words = "config.batch.size=16 is not divisible by 3"
    check_refused(words, lambda: builder.task(builder.config({**BASE, "training.accumulate": 3})))


def test_parameters_need_no_batches(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    config, made, batches = builder.config(BASE), [], Task.batches
    monkeypatch.setattr(Task, "batches", lambda *a: made.append(1) or batches(*a))  # type: ignore[func-returns-value]
    builder.count(config, "parameters")
    assert not made
    builder.task(config)
    builder.examples(config)
    assert len(made) == 1


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
