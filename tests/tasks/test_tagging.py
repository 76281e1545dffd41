"""Tagging is scored as a loop over words scores it, by spans and with trees; sentences are answered,
and mistakes are named.
"""

import dataclasses
import functools
import logging
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data.grammar import Agreement
from attnlab.data.tagged import Sentence
from attnlab.errors import UserError
from attnlab.tasks.maps import attention_maps
from attnlab.tasks.spans import counts, scores
from attnlab.tasks.tagging import TaggedExample, Tagging, reads_trees
from tests.refusals import check_refused
from tests.tasks.tiny import applied, check_items, noisy

SMALL = ["data.examples=40", "data.valid=9", "data.test=5", "batch.size=8"]
OF = {
    "bilstm": ["system.embedding=6", "system.width=5"],
    "transformer": ["system.width=8", "system.hidden=8", "system.layers=1"],
    "syntax": ["system.width=8", "system.hidden=8", "system.layers=1"],
}


@dataclasses.dataclass(frozen=True)
class Spans(Agreement):
    """The same sentences with spans of nouns; the validation split has a tag of its own, and every
    split may have a stray one.
    """

    own: str = "B-XX"
    stray: str = ""

    def tagged(self, split: str) -> list[Sentence]:
        actual = []
        for one in super().tagged(split):
            tags, before = [], False
            for each in one.tags:
                inside = each.startswith(("NOUN", "ADJ"))
                tags.append(("I-NP" if before else "B-NP") if inside else "O")
                before = inside
            actual.append(Sentence(one.words, tuple(tags), None))
        if split == "valid":
            actual[0] = Sentence(actual[0].words, (self.own, *actual[0].tags[1:]), None)
        if self.stray:
            actual[1] = Sentence(actual[1].words, (self.stray, *actual[1].tags[1:]), None)
        return actual


def load(system: str, *overrides: str) -> Tagging:
    config = configs.load(f"configs/tagging.py:{system}", [*SMALL, *OF[system], *overrides])
    return Tagging.load(config, None, ("train", "valid"))


def outputs(task: Tagging, params: Any, row: int) -> np.ndarray:
    """The logits of a sentence of the validation split at its words; all are read as 24 tokens."""
    read, _ = task.model_inputs(task.map_examples("valid", row + 1)[row])
    read = [np.pad(one, [(0, 0), *[(0, 24 - one.shape[1])] * (one.ndim - 1)]) for one in read]
    actual: Any = applied(task)({"params": params}, *read)
    target = task.of_split("valid").packed("target")[row]
    return np.asarray(actual[0], np.float64)[: len(target)][target > 0]


@pytest.mark.parametrize(
    "system",
    ["syntax", *(pytest.param(name, marks=pytest.mark.full) for name in ("bilstm", "transformer"))],
)
def test_scores_are_those_of_a_loop_over_words(system: str) -> None:
    task = load(system, "data.valid=5")
    params, names = noisy(task, 0.2), list(task.tags)
    nats, right, words = 0.0, 0, 0
    for row, one in enumerate(task.data.rows["valid"]):
        logits = outputs(task, params, row)
        for at, tag in enumerate(one.tags):
            nats -= logits[at, names.index(tag)] - np.logaddexp.reduce(logits[at])
            right += int(logits[at].argmax() == names.index(tag))
            words += 1
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats / words, rel=1e-5)
    assert actual["perplexity"] == pytest.approx(np.exp(nats / words), rel=1e-5)
    assert actual["accuracy"] == right / words and task.counts("valid") == {"words": words}
    more, lines = task.score(params, "valid")
    assert more == {} and sum(map(bool, lines)) == words and "f1" not in task.measures
    assert sum(line.split("\t")[1] == line.split("\t")[2] for line in lines if line) == right
    check_items(task, params, "valid", {"loss", "perplexity", "accuracy"})


def test_the_tree_is_read_where_a_scheme_reads_it() -> None:
    task = load("syntax")
    params, batch = noisy(task, 0.2), task.batches(1)(0)
    apply = jax.jit(task.apply)
    before = apply(params, batch)
    flat = {**batch, "heads": np.full_like(batch["heads"], -1)}
    assert np.abs(before - apply(params, flat)).max() > 1e-3
    plain = load("transformer")
    apply = jax.jit(functools.partial(plain.apply, noisy(plain, 0.2)))
    actual = [apply(one) for one in (batch, flat)]
    np.testing.assert_array_equal(*actual)
    assert reads_trees({"a": {"positions": {"name": "syntax_relative"}}})
    assert not reads_trees({"a": {"positions": "rope"}, "b": 3})


def test_gradients_come_from_words_alone() -> None:
    task = load("bilstm")
    params, batch = noisy(task, 0.2), task.batches(1)(0)

    @jax.jit
    def loss(params: Any, batch: Any) -> Any:
        return jax.value_and_grad(lambda p: task.loss(p, batch, jax.random.key(0))[0])(params)

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(loss(params, batch)[1]))
    none = {**batch, "target": np.zeros_like(batch["target"])}
    assert float(loss(params, none)[0]) == 0.0


def test_spans_are_scored_and_a_tag_of_its_own_is_wrong() -> None:
    own = f"data={__name__}:Spans"
    config = configs.load("configs/tagging.py:bilstm", [own, *SMALL, *OF["bilstm"]])
    task = Tagging.load(config, None, ("train", "valid"))
    params = noisy(task, 0.2)
    assert task.tags == ("B-NP", "I-NP", "O") and "f1" in task.measures
    more, lines = task.score(params, "valid")
    rows, message, right = task.data.rows["valid"], [], np.zeros(3, int)
    for block in "\n".join(lines).split("\n\n"):
        message.append([line.split("\t")[2] for line in block.strip("\n").split("\n")])
    for one, tags in zip(rows, message, strict=True):
        right += counts(one.tags, tags)
    assert more == scores(*map(int, right)) and np.isfinite(task.evaluate(params, "valid")["loss"])
    check_refused("its positions read dependency trees, which config.data", load, "syntax", own)


def test_a_tag_of_no_scheme_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """In training it costs the scores of spans, and a line says so; elsewhere it is refused."""
    own, words = (f"data={__name__}:Spans", "http are of no scheme of spans that is known (IOB")
    with caplog.at_level(logging.WARNING):
        assert "f1" in load("bilstm", own, "data.stray=E-NP").measures and not caplog.text
        assert "f1" not in load("bilstm", own, "data.stray=http").measures and words in caplog.text
    with pytest.raises(UserError, match="valid split has the tag 'http', .* of the scheme IOB"):
        load("bilstm", own, "data.own=http")


def test_answers_and_maps() -> None:
    task = load("transformer")
    params = noisy(task, 0.2)
    ((answer,),) = task.respond(params, ["the big foxes"])
    assert [one.partition("/")[0] for one in answer.text.split()] == ["the", "big", "foxes"]
    assert all(one.partition("/")[2] in task.tags for one in answer.text.split())
    maps = attention_maps(task, params, TaggedExample(("the", "fox")))
    assert {one.weights.shape for one in maps.values()} == {(4, 4, 4)}
    (example,) = task.examples_from_text(params, [("the fox", None)])
    assert example.shown() == "the fox" and example.record()["source"] == "the fox"


@pytest.mark.parametrize(
    ("system", "line", "told"),
    [
        ("transformer", " ", "expected words with blanks between them"),
        ("syntax", "the fox", "reads dependency trees, which a typed line does not have"),
    ],
)
def test_lines_that_cannot_be_tagged(system: str, line: str, told: str) -> None:
    check_refused(told, load(system).examples_from_lines, [line])
    with pytest.raises(UserError, match="a tagger reads one sentence"):
        load("bilstm").examples_from_text(None, [("the fox", "a fox")])
