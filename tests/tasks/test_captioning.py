"""Captioning scores captions and where it looks as loops do, samples places, and answers files."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments.losses import uncovered
from attnlab.tasks.captioning import Captioning
from attnlab.tasks.localisation import named, sums
from attnlab.tasks.maps import attention_maps, overlays, stored_labels
from tests.refusals import check_refused
from tests.tasks.tiny import check_items, fixtures, image_files, loader, log_softmax

SMALL = [
    *("data.examples=40", "data.valid=9", "data.test=4", "data.side=24", "data.grid=2"),
    *("data.small=3", "data.large=4", "data.most=2", "data.jitter=1", "batch.size=16"),
    *("batch.buckets=10", "batch.max_length=10", "decoding.max_extra=6", "decoding.batch=8"),
    *("system.backbone.widths=4,6", "system.backbone.layers=1", "system.features=6"),
    *("system.embedding=8", "system.width=10", "system.attention.score.hidden=8"),
    "system.image_positions.length=36",
]
load = loader("captioning.py:show_attend_tell", SMALL)
task, params = fixtures(load, 0.3)


def test_losses_are_those_of_a_loop_over_captions(task: Captioning, params: Any) -> None:
    examples, learned = task.of_split("valid"), task.data.learned
    images = examples.batch(np.arange(9), 10)["source"]
    normalised = (images / 255 - np.array(learned.mean)) / np.array(learned.deviation)
    nats, right, count = 0.0, 0, 0
    call = jax.jit(lambda image, ids: task.system.apply({"params": params}, image, ids)[0])
    for row, target in enumerate(examples.packed("target")):
        read = np.concatenate([[task.special.bos], target, np.full(10 - len(target), 5)])[None, :10]
        log_p = log_softmax(call(normalised[row : row + 1].astype(np.float32), read))
        nats -= log_p[np.arange(len(target)), target].sum()
        right += (log_p[: len(target)].argmax(axis=1) == target).sum()
        count += len(target)
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats / count, rel=1e-5)
    assert actual["accuracy"] == right / count
    assert task.counts("valid")["tokens"] == count


def test_scores_and_what_they_are_made_of(
    task: Captioning, params: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Localisation is that of the maps that are drawn; F1 of names is counted by hand."""
    check_items(task, params, "valid", {*Captioning.measures})
    shown, captions = task.data.extra["valid"], task.data.rows["valid"]
    weights = [
        attention_maps(task, params, example)["attention"].weights[0]
        for example in task.map_examples("valid", 9)
    ]
    assert all(one.shape[1] == 36 for one in weights)
    rows = sums(enumerate(weights), named(captions, shown), shown.objects, (6, 6)).sum(axis=0)
    scores, _ = task.score(params, "valid")
    for column, name in enumerate(("localisation", "localisation_chance", "pointing")):
        assert scores[name] == pytest.approx(rows[column] / rows[4], rel=1e-5)
    answers = ["a red star and a red star", *captions[1:]]
    monkeypatch.setattr(task, "hypotheses", lambda *_: answers)
    before, names = captions[0].split(), shown.named
    hits = sum(min(before.count(word), 2) for word in ("red", "star"))
    size = sum(word in names for text in captions[1:] for word in text.split())
    own = sum(word in names for word in before)
    scores, _ = task.score(params, "valid")
    assert scores["named"] == pytest.approx(2 * (hits + size) / (own + 4 + 2 * size))
    assert scores["exact"] == pytest.approx(8 / 9)


@pytest.mark.full
def test_rows_of_padding_count_for_nothing(task: Captioning, params: Any) -> None:
    """Neither in the loss nor in the statistics of norms."""
    full = task.batches(1)(0)
    assert full["source"].shape == (16, 24, 24, 3)
    short = {name: column[:8] for name, column in full.items()}
    half = {name: np.concatenate([column, np.zeros_like(column)]) for name, column in short.items()}
    loss = jax.jit(lambda batch: task.loss(params, batch, jax.random.key(0)))
    (padded, of_padded), (alone, of_alone) = loss(half), loss(short)
    assert float(padded) == pytest.approx(float(alone), rel=1e-5)
    both = (jax.tree.leaves(sums["statistics"]) for sums in (of_padded, of_alone))
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_files_are_captioned_in_pieces(task: Captioning, params: Any, tmp_path: Path) -> None:
    """A file with the pixels of an image of the split gets the caption of that image, whose
    log-probability is that of a pass.
    """
    examples = task.map_examples("valid", 3)
    names = image_files(tmp_path, [example.image for example in examples])
    answers = task.score(params, "valid")[1][:3]
    written = task.written(params, task.examples_from_lines(names))
    assert [task.text(best) for (best,) in written] == answers
    assert [best.text for (best,) in task.respond(params, names[:1])] == answers[:1]
    assert [*task.partial_answers(params, names[1], 0)][-1] == answers[1]
    assert task.longer_than(1, names) == []
    (own, given) = task.examples_from_text(params, [(names[0], None), (names[1], "a red star")])
    assert (own.label, given.label) == (answers[0], "a red star")
    assert given.shown() == f"{names[1]}  ->  a red star"
    np.testing.assert_array_equal(own.image, examples[0].image)
    ((best,), *_) = written
    read = {"source": examples[0].image[None], "target": best.tokens[None]}
    log_p = log_softmax(jax.jit(task.apply)(params, read)[0])
    expected = log_p[np.arange(len(best.tokens)), best.tokens].sum()
    assert best.log_prob == pytest.approx(expected, rel=1e-4)
    check_refused(r"cannot find .*gone.png", task.respond, params, [str(tmp_path / "gone.png")])


@pytest.mark.full
def test_beams_come_with_their_weights(task: Captioning, params: Any) -> None:
    beams = load("decoding.method=beam", "decoding.beam=2", "decoding.coverage=0.2")
    ((best, *_), *_) = beams.written(params, beams.of_split("valid"), alignment=True)
    assert best.alignment is not None and best.alignment.shape == (len(best.tokens), 36)
    np.testing.assert_allclose(best.alignment.sum(axis=1), 1, rtol=1e-5)


def test_maps_lie_between_words_and_places(task: Captioning, params: Any) -> None:
    (example,) = task.map_examples("valid", 1)
    maps = attention_maps(task, params, example)
    rows, columns = maps["attention"].rows, maps["attention"].columns
    assert " ".join(row.strip("\u2581") for row in rows[:-1]) == example.label
    assert len(columns) == 36
    assert (columns[0], columns[7]) == ("1,1", "2,2")
    assert maps["attention"].weights.shape == (1, len(rows), 36)
    look = overlays(task, params, example, maps)[0]["attention"]  # drawn over it, word by word
    assert look.weights.shape == (len(rows), 6, 6) and list(look.rows) == list(rows)
    np.testing.assert_array_equal(look.weights[1].ravel(), maps["attention"].weights[0, 1])
    assert {*stored_labels(task, example)} == {"target_tokens", "image_patches"}


def test_the_penalty_is_that_of_words_that_are_there(params: Any) -> None:
    """Where it looks everywhere alike."""
    task = load("auxiliary.doubly_stochastic=0.5")
    batch = task.batches(1)(0)
    level = {**params, "attention": jax.tree.map(np.zeros_like, params["attention"])}
    loss, reported = jax.jit(task.loss)(level, batch, jax.random.key(0))
    steps = jnp.asarray(batch["target"]) != task.special.pad
    uniform = uncovered(jnp.full((16, 1, 10, 36), 1 / 36), steps)[steps.any(axis=1)].sum()
    added = float(reported["doubly_stochastic"])
    assert added == pytest.approx(float(uniform), rel=1e-5)
    assert float(loss) == pytest.approx(float(reported["cross_entropy"]) + 0.5 * added, rel=1e-6)


@pytest.mark.full
def test_sampled_places_are_trained(params: Any) -> None:
    task = load("system.attention.alignment=hard")
    batch, carried = task.batches(1)(0), task.carried()
    assert carried["baseline"].shape == (10,)
    gradients = jax.jit(jax.grad(task.loss, has_aux=True))
    slopes, reported = gradients(params, batch, jax.random.key(0), carried=carried)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slopes["attention"]))
    assert reported["choice_entropy"] > 0 and (reported["tracked"]["rewards"] <= 0).all()


def test_captions_that_say_nothing_of_objects_have_no_such_scores(
    task: Captioning, params: Any
) -> None:
    data = dataclasses.replace(task.data, extra={"valid": None})
    scores, _ = Captioning(task.config, data).score(params, "valid")
    assert "bleu" in scores and not {"named", "localisation"} & {*scores}
