"""A label that training does not have is answered wrong."""

from __future__ import annotations

import dataclasses
import runpy
import shlex

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data import labelled
from attnlab.tasks.classification import Classification
from tests.tasks.test_classification import Model


def test_a_label_that_training_does_not_have_is_answered_wrong() -> None:
    """Two of the 9 test examples get such labels: wrong, left out of the loss, and together one
    class of F1 0 that costs the others.
    """
    model = Model(1)
    data = model.task.data
    test = [
        (texts, {0: "new", 4: "newer"}.get(number, label))
        for number, (texts, label) in enumerate(data.rows["test"])
    ]
    examples = {"test": labelled.encode(data.learned, test, "test")}
    changed = dataclasses.replace(data, rows={"test": test}, examples=examples)
    task = Classification(model.task.config, changed)
    scores, lines = task.score(model.params, "test")
    labels, answers = zip(*(line.split("\t") for line in lines), strict=True)
    known = [number for number in range(9) if number not in (0, 4)]
    losses = [
        -model.log_probs(*test[number][0])[data.learned.classes.index(labels[number])]
        for number in known
    ]
    f1 = []
    for name in {*labels, *answers} & {*data.learned.classes}:
        hits = sum(one == other == name for one, other in zip(labels, answers, strict=True))
        f1.append(2 * hits / (labels.count(name) + answers.count(name)))
    found = task.evaluate(model.params, "test")
    expected = {
        "loss": np.mean(losses),
        "accuracy": sum(labels[n] == answers[n] for n in known) / 9,
        "macro_f1": np.mean([*f1, 0.0]),
    }
    assert found == pytest.approx(expected, rel=1e-5) and found["accuracy"] > 0
    stacked = jax.tree.map(lambda leaf: leaf[None], model.params)
    assert task.evaluate_stacked(stacked, "test")[0] == pytest.approx(expected, rel=1e-5)
    assert list(scores["confusion"]) == [*data.learned.classes, "new", "newer"]
    assert sum(scores["confusion"]["new"].values()) == scores["confusion"]["newer"][answers[4]] == 1


def test_the_command_for_data_without_test_labels_is_sound() -> None:
    """What the top of the config file says: three splits that have labels, no two the same."""
    text = runpy.run_path("configs/classification.py")["__doc__"]
    flags = shlex.split(text[text.index("--config.data=tfds") :].split("\n\n")[0])
    config = configs.load("configs/classification.py", [x.removeprefix("--config.") for x in flags])
    wanted = ("train[:95%]", "train[95%:]", "validation")
    assert (config.data.train, config.data.valid, config.data.test) == wanted
    expected = ("glue/sst2", "label", "")
    assert (config.data.dataset, config.data.label, config.data.target) == expected
