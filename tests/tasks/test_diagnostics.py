"""Task "diagnostics" is scored, by groups, as in a loop; no answer sees a later word."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.tasks.maps import attention_maps
from tests.refusals import check_refused
from tests.tasks.tiny import check_items, loader, noisy

SMALL = [
    *("data.examples=40", "data.valid=9", "data.test=5", "data.length=12", "data.pairs=3"),
    *("data.symbols=12", "batch.size=8", "batch.buckets=16", "batch.max_length=16"),
    *("system.width=8", "system.hidden=8", "system.layers=1"),
]


load = loader("diagnostics.py:multihead", SMALL)


@pytest.mark.parametrize("mixer", ["multihead", pytest.param("recurrent", marks=pytest.mark.full)])
def test_scores_are_those_of_a_loop_over_texts(mixer: str) -> None:
    task = load(system=mixer)
    params, vocabulary = noisy(task, 0.3), task.data.vocabulary
    apply = jax.jit(lambda source: task.system.apply({"params": params}, source))
    nats, right, asked, whole = 0.0, 0, 0, 0
    groups: dict[int, list[bool]] = {}
    for row in task.data.rows["valid"]:
        (ids,) = task.examples_from_lines([" ".join(row.words)]).packed("source")
        logits = np.asarray(apply(jnp.asarray(ids[None])), np.float64)[0]
        fine = []
        for at, answer in enumerate(row.answers, start=1):
            if answer:
                (expected,) = next(iter(vocabulary.encode_stream([answer])))
                nats += np.logaddexp.reduce(logits[at]) - logits[at, expected]
                fine.append(bool(logits[at].argmax() == expected))
        for group, one in zip(row.groups, fine, strict=True):
            groups.setdefault(group, []).append(one)
        right, asked, whole = right + sum(fine), asked + len(fine), whole + all(fine)
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats / asked, rel=1e-5)
    assert actual["accuracy"] == right / asked
    assert task.counts("valid") == {"questions": asked == 27 and 27}
    assert actual["exact"] == whole / 9
    more, lines = task.score(params, "valid")
    assert more["by_distance"] == {
        str(group): {"accuracy": np.mean(fine), "questions": len(fine)}
        for group, fine in sorted(groups.items())
    }
    assert more["a value of the text"] == 1 / 3 and 0 < more["chance"] <= more["majority"] < 1
    message = [line.split("\t") for line in lines]
    pairs = [zip(one.split(), other.split(), strict=True) for _, one, other in message]
    assert sum(one == other for pair in pairs for one, other in pair) == right
    check_items(task, params, "valid", {"loss", "accuracy", "exact"})


def test_gradients_come_from_questions_alone_and_answers_see_no_later_word() -> None:
    task = load()
    params, batch = noisy(task, 0.3), task.batches(1)(0)
    none = {**batch, "target": np.zeros_like(batch["target"])}

    @jax.jit
    def loss(batch: Any) -> Any:
        return jax.value_and_grad(lambda p: task.loss(p, batch, jax.random.key(0))[0])(params)

    assert float(loss(none)[0]) == 0.0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(loss(batch)[1]))
    apply = jax.jit(task.apply)
    before = np.asarray(apply(params, batch))
    other = {**batch, "source": batch["source"].copy()}
    other["source"][:, 9:] = other["source"][:, 5:12][:, ::-1]
    after = np.asarray(apply(params, other))
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert np.abs(before[:, 9:] - after[:, 9:]).max() > 1e-3


def test_answers_maps_and_a_second_text() -> None:
    task = load()
    params = noisy(task, 0.3)
    ((answer,),) = task.respond(params, ["k1 v2 k1"])
    assert [one.partition("/")[0] for one in answer.text.split()] == ["k1", "v2", "k1"]
    (example,) = task.examples_from_text(params, [("k1 v2 k1", None)])
    maps = attention_maps(task, params, example)
    assert {one.weights.shape for one in maps.values()} == {(4, 4, 4)}
    check_refused("leave out the second, 'k1'", task.examples_from_text, params, [("k1", "k1")])
    check_refused("expected words with blanks", task.examples_from_lines, [" "])
