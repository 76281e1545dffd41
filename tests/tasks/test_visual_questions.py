"""Questions about images are scored as a loop over them does, by group and kind, beside guesses;
files are answered, and maps lie over the image.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.data.images.texts import Prior
from attnlab.tasks.maps import attention_maps, overlays
from attnlab.tasks.visual_questions import VisualQuestions
from tests.refusals import check_refused
from tests.tasks.tiny import check_items, fixtures, image_files, loader

SMALL = [
    *("data.examples=12", "data.valid=3", "data.test=2", "data.side=20", "batch.size=16"),
    *("data.relational=4", "data.non_relational=3", "system.backbone.widths=4,4"),
    *("system.backbone.layers=1", "system.hops=2"),
    *("system.embedding=6", "system.width=6", "system.attention.score.hidden=6"),
]


load = loader("visual_questions.py:stacked_attention", SMALL)
task, params = fixtures(load, 0.5)


def test_scores_are_those_of_a_loop_over_questions(task: VisualQuestions, params: Any) -> None:
    learned, rows = task.data.learned, task.data.rows["valid"]
    batch = task.of_split("valid").batch(np.arange(21), 14)
    normalised = (batch["image"] / 255 - np.array(learned.mean)) / np.array(learned.deviation)
    call = jax.jit(lambda x, ids: task.system.apply({"params": params}, x[None], ids[None])[0])
    pairs = zip(normalised.astype(np.float32), batch["question"], strict=True)
    logits = np.array([call(x, ids) for x, ids in pairs], np.float64)
    label = np.array([learned.classes.index(row.answer) for row in rows])
    nats = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(21), label]
    right = logits.argmax(axis=1) == label
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats.mean(), rel=1e-5)
    assert actual["accuracy"] == right.mean()
    scores, lines = task.score(params, "valid")
    message = learned.classes[logits[4].argmax()]
    assert lines[4] == f"{rows[4].text}\t{rows[4].answer}\t{message}"
    assert scores["confusion"][rows[4].answer][message] >= 1
    check_items(task, params, "valid", {"loss", "accuracy"})

    prior = Prior(task.data.rows["train"])
    for by in ("group", "kind"):
        names = [getattr(row, by) for row in rows]
        assert scores[f"by_{by}"].keys() == set(names)
        for name, cells in scores[f"by_{by}"].items():
            chosen = [number for number, one in enumerate(names) if one == name]
            guessed = [rows[one].answer == prior.guess(rows[one].text) for one in chosen]
            assert cells["questions"] == len(chosen)
            assert cells["accuracy"] == pytest.approx(right[chosen].mean())
            assert cells["question_only"] == pytest.approx(np.mean(guessed))
    assert sum(one["questions"] for one in scores["by_kind"].values()) == 21
    assert {"chance", "majority", "question_only"} <= scores.keys()
    inside = scores["localisation"]
    assert [*inside] == ["attention_0", "attention_1", "chance"]
    assert all(cells.keys() == scores["by_kind"].keys() for cells in inside.values())
    assert inside["chance"].get("shape", 25 / 400) == pytest.approx(25 / 400)
    first = [number for number, row in enumerate(rows) if row.kind == rows[0].kind]
    maps = [
        attention_maps(task, params, one)["attention_1"].weights[0, 0].reshape(5, 5)
        for one in task.map_examples("valid", 21)
    ]
    shares = []
    for number in first:
        pixels = np.kron(maps[number], np.ones((4, 4)) / 16)
        lies = np.zeros((20, 20), bool)
        for top, left, height, width in rows[number].boxes:
            lies[top : top + height, left : left + width] = True
        shares.append(pixels[lies].sum())
    assert inside["attention_1"][rows[0].kind] == pytest.approx(np.mean(shares), rel=1e-5)


def test_a_row_may_be_an_image_with_several_questions(task: VisualQuestions, params: Any) -> None:
    """All questions occur once an epoch, beside their image; loss and sums are those of single rows."""
    rows = load("batch.questions=4", "batch.size=3")
    batches = [rows.batches(1)(number) for number in range(8)]
    assert batches[0]["image"].shape == (3, 20, 20, 3) and batches[0]["label"].shape == (3, 4)
    train = task.of_split("train").batch(np.arange(12 * 7), 14)
    known = {}
    for image, question, label in zip(*train.values(), strict=True):
        known[image.tobytes(), question.tobytes()] = label
    seen = []
    for batch in batches:
        for image, questions, labels in zip(*batch.values(), strict=True):
            for question, label in zip(questions, labels, strict=True):
                key = image.tobytes(), question.tobytes()
                if label:
                    seen.append(key)
                    assert known[key] == label
                else:
                    assert not question.any()
    assert len(seen) == len(set(seen)) == 12 * 7
    few = load("batch.questions=4", "batch.max_length=13").batches(1)
    assert "rows of 4 questions longer than" in few.note


@pytest.mark.full
def test_questions_side_by_side_train_as_single_rows(task: VisualQuestions, params: Any) -> None:
    """Loss, sums and gradients; norms over a batch see each image equally often in both."""
    rows = load("batch.questions=7", "batch.size=3")
    batch, key = rows.batches(1)(0), jax.random.key(0)
    single = {key: batch[key].reshape(21, *batch[key].shape[2:]) for key in ("question", "label")}
    single["image"] = np.repeat(batch["image"], 7, axis=0)
    assert rows.weight(batch) == task.weight(single) == 21
    actual, expected = (
        jax.jit(jax.value_and_grad(one.loss, has_aux=True))(params, read, key)
        for one, read in ((rows, batch), (task, single))
    )
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(actual)]
    pairs = zip(paths, jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    for path, one, other in pairs:
        if "variance" not in path:  # n / (n - 1) of it, and n counts an image once in one of them
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=path)


def test_an_answer_that_training_does_not_have_is_wrong(task: VisualQuestions) -> None:
    """And is no part of the loss, which it would make infinite."""
    batch = {key: np.array(one) for key, one in task.batches(1)(0).items()}
    classes = len(task.data.learned.classes)
    logits = jnp.zeros((16, classes)).at[:, 0].set(2.0)
    batch["label"][:] = 1
    batch["label"][:2] = classes + 1
    batch["label"][2] = 0
    sums = task.summed(logits, batch, 0.0)
    counts = {name: int(sums[name]) for name in ("rows", "known", "correct")}
    assert counts == {"rows": 15, "known": 13, "correct": 13}
    each = np.log(np.exp(2) + classes - 1) - 2
    assert float(sums["loss"]) == pytest.approx(13 * each, rel=1e-5)
    scores = task.averaged({name: np.asarray(one) for name, one in sums.items()})
    assert scores == {"loss": pytest.approx(each, rel=1e-5), "accuracy": pytest.approx(13 / 15)}


def test_files_are_asked_about(task: VisualQuestions, params: Any, tmp_path: Path) -> None:
    """A file with the pixels of an image of the split gets the answers to that image."""
    rows = task.data.rows["valid"]
    images = task.of_split("valid")["image"].block(np.array([0, 20]), 1)
    names = image_files(tmp_path, images)
    lines = [f"{names[0]}\t{rows[0].text}", f"{names[1]}\t{rows[20].text}"]
    lines += [f"{names[0]}\t{rows[1].text}"]
    message = [line.split("\t")[2] for line in task.score(params, "valid")[1]]
    actual = task.respond(params, lines)
    assert [best.text for (best,) in actual] == [message[0], message[20], message[1]]
    assert all(best.score <= 0 for (best,) in actual)
    assert task.longer_than(9, [*lines, f"a.png\t{'red ' * 20}"])[-1] == 3
    for line in ("what", f"{names[0]}\t", "\twhat", f"{names[0]}\twhat\tis"):
        check_refused("expected the name of an image file, a tab and", task.respond, params, [line])


def test_maps_lie_on_the_image(task: VisualQuestions, params: Any, tmp_path: Path) -> None:
    """20 x 20 pixels are 5 x 5 places; a file and an example of a split have the same maps."""
    first, second = task.map_examples("valid", 2)
    assert first.shown().startswith("valid image 1: ") and first.answer in first.shown()
    assert first.record()["target"] == first.answer
    np.testing.assert_array_equal(first.image, second.image)
    maps = attention_maps(task, params, first)
    over, _ = overlays(task, params, first, maps)
    assert set(maps) == {f"attention_{hop}" for hop in range(2)}
    for name, one in maps.items():
        assert one.weights.shape == (1, 1, 25) and len(one.columns) == 25
        assert (list(one.rows), one.columns[7]) == (["hop 1"], "1,2")
        np.testing.assert_allclose(over[name].weights, one.weights.reshape(1, 5, 5), rtol=1e-6)
        assert over[name].rows == ["hop 1"] and over[name].image is first.image
    (path,) = image_files(tmp_path, [first.image])
    (again,) = task.examples_from_text(params, [(path, first.question)])
    assert again.shown() == f"{path}: {first.question}"
    for name, one in attention_maps(task, params, again).items():
        np.testing.assert_array_equal(one.weights, maps[name].weights)
