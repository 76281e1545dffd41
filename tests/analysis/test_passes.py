"""Passes with changes: places, values and gradients of examples."""

import numpy as np
import pytest

from attnlab.analysis.passes import filled, real_positions, terms_of
from attnlab.errors import UserError
from tests.analysis.planted import batch, decoder


def test_places_have_layers_heads_and_kinds() -> None:
    model = decoder()
    places = model.places(batch(model))
    assert [(x.name, x.layer, x.heads) for x in places[:4]] == [
        ("embed/embedding", -1, 1),
        ("layer_0/attention/weights", 0, 2),
        ("layer_0/attention/heads", 0, 2),
        ("layer_0/attention/layer", 0, 1),
    ]
    assert len(places) == 7 and places[-1].layer == 1 and not any(x.stepwise for x in places)


def test_positions_that_a_loss_depends_on_are_the_real_ones() -> None:
    model = decoder()
    rows = batch(model)
    _, slope = model.gradients(rows, ("weights", "heads"))["layer_1/attention/heads"]
    np.testing.assert_array_equal(real_positions(slope), rows["target"] != model.task.special.pad)


def test_rows_of_padding_are_filled_with_examples() -> None:
    ((count, rows),) = filled([(np.array([4, -1, 3]), {"x": np.array([1, 2, 3])})])
    assert count == 2 and rows["x"].tolist() == [1, 3, 1]
    with pytest.raises(UserError, match="there are no examples"):
        filled([(np.array([-1]), {"x": np.array([1])})])
    with pytest.raises(UserError, match="'bleu' is no ratio of sums; choose from: accuracy, loss"):
        terms_of(decoder().task, "bleu")
