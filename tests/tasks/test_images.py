"""Images are classified and scored as a loop over them does; they are changed in training alone;
files are answered and looked at.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.tasks.images import ImageClassification
from attnlab.tasks.maps import attention_maps, overlays
from tests.tasks.tiny import check_items, fixtures, image_files, loader, noisy

SMALL = [
    *("data.examples=50", "data.valid=21", "data.test=5", "data.label=shape"),
    *("data.side=12", "data.noise=8", "batch.size=16"),
]
CNN = [*SMALL, "system.widths=4,4"]


load = loader("image_classification.py:cnn", CNN)
task, params = fixtures(load, 0.3)


@pytest.mark.quick
def test_scores_are_those_of_a_loop_over_images(task: ImageClassification, params: Any) -> None:
    learned, images = task.data.learned, task.of_split("valid").batch(np.arange(21), 1)["image"]
    normalised = (images / 255 - np.array(learned.mean)) / np.array(learned.deviation)
    call = jax.jit(lambda x: task.system.apply({"params": params}, x[None])[0])
    logits = np.array([call(one.astype(np.float32)) for one in normalised], np.float64)
    labels = task.data.labels("valid")
    nats = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(21), labels]
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats.mean(), rel=1e-5)
    assert actual["accuracy"] == np.mean(logits.argmax(axis=1) == labels)
    scores, lines = task.score(params, "valid")
    names = learned.classes
    for label, answer in ((0, 0), (1, 2), (3, 1)):
        count = np.sum((labels == label) & (logits.argmax(axis=1) == answer))
        assert scores["confusion"][names[label]][names[answer]] == count
    assert lines[4] == f"{names[labels[4]]}\t{names[logits[4].argmax()]}"
    check_items(task, params, "valid", {"loss", "accuracy"})


def test_images_are_changed_in_training_alone(task: ImageClassification, params: Any) -> None:
    """With windows as large as the image, and without augmentation, losses are those of the images."""
    changing = load("augmentation.crop=2", "augmentation.flip=true")
    batch = task.batches(1)(0)

    def losses(params: Any, batch: Any) -> list[jax.Array]:
        of = [(task, 0), (task, 1), (changing, 0), (changing, 0), (changing, 1)]
        return [one.loss(params, batch, jax.random.key(key))[0] for one, key in of]

    plain, again, one, same, other = map(float, jax.jit(losses)(params, batch))
    assert plain == again and one == same and len({plain, one, other}) == 3
    assert changing.evaluate(params, "valid") == task.evaluate(params, "valid")


def test_files_are_answered(task: ImageClassification, params: Any, tmp_path: Path) -> None:
    """A file with the pixels of an image of the split gets the answer to that image."""
    images = task.of_split("valid").batch(np.arange(3), 1)["image"]
    names = image_files(tmp_path, images)
    answers = [line.split("\t")[1] for line in task.score(params, "valid")[1][:3]]
    actual = task.respond(params, names)
    assert [best.text for (best,) in actual] == answers
    assert all(best.score <= 0 for (best,) in actual) and task.longer_than(1, names) == []
    first, _ = task.map_examples("valid", 2)
    label = task.classes[task.data.labels("valid")[0]]
    assert first.shown() == f"valid image 1  ->  {label}"
    (example,) = task.examples_from_text(params, [(names[0], None)])
    assert example.shown() == f"{names[0]}  ->  {answers[0]}"
    np.testing.assert_array_equal(example.image, images[0])
    with pytest.raises(UserError, match="reads one image, not 'two' beside 'one'"):
        task.examples_from_text(params, [("one", "two")])


def test_gates_and_maps_lie_over_the_image() -> None:
    task = load("system.gate=spatial")
    assert task.system.looks and not load().system.looks
    params = noisy(task)
    (example,) = task.map_examples("valid", 1)
    over, gates = overlays(task, params, example, {})
    expected = {"gate_0": (1, 12, 12), "gate_1": (1, 6, 6)}
    assert {name: one.weights.shape for name, one in over.items()} == expected
    run = jax.jit(lambda x: task.system.apply({"params": params}, x, mutable=["gates"]))
    _, collected = run(task.normalised(example.image[None]))
    gate = collected["gates"]["gate_1"]["gate"][0][0, :, :, 0]
    np.testing.assert_allclose(over["gate_1"].weights[0], gate, rtol=1e-5)
    block = load("system.gate=non_local", "system.gated=1", "system.gate.reduction=1")
    block_params = noisy(block)
    over, gates = overlays(
        block, block_params, example, attention_maps(block, block_params, example)
    )
    assert over["gate_1/attention"].weights.shape == (1, 6, 6) and not gates
