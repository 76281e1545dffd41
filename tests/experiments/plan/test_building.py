"""Building candidates: configs checked as `train` checks them, data read once, the same thing
counted once.
"""

import re
from typing import Any

import pytest

from attnlab.data.corpus import Corpus
from attnlab.errors import UserError
from attnlab.experiments.plan import building
from attnlab.experiments.plan.building import Builder
from attnlab.tasks.base import Task
from tests.experiments.plans import BASE
from tests.refusals import check_refused


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
    with pytest.raises(UserError, match=r"config.batch.size=16 is not divisible by 3"):
        builder.task(builder.config({**BASE, "training.accumulate": 3}))


def test_parameters_need_no_batches(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    config, made, batches = builder.config(BASE), [], Task.batches
    monkeypatch.setattr(Task, "batches", lambda *a: made.append(1) or batches(*a))  # type: ignore[func-returns-value]
    builder.count(config, "parameters")
    assert not made
    builder.task(config)
    builder.examples(config)
    assert len(made) == 1
