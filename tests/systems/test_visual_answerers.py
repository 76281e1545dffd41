"""Systems that answer questions about images, beyond what their oracles hold: an image for several
questions, maps that lie over it, places, and statistics of batches.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.systems.tiny import seldom
from tests.systems.visual_answerers import GRID, SPECS, answered, batch, make, prepared

IMAGES, QUESTIONS = batch()


@pytest.mark.parametrize("name", seldom(SPECS, "stacked_attention"))
def test_an_image_is_given_once_for_all_questions_about_it(name: str) -> None:
    """Logits are those of a batch that has it beside each of them."""
    call, params = prepared(SPECS[name])
    images = IMAGES[:2]
    beside = call(params, np.repeat(images, 2, axis=0), QUESTIONS)[0]
    once = answered(SPECS[name], images, QUESTIONS)
    np.testing.assert_allclose(once, beside, rtol=1e-9, atol=1e-11)


def test_places_know_their_row_and_their_column() -> None:
    """Half of the numbers of a scheme on a grid are those of the row, half those of the column."""
    spec = {**SPECS["cross_attention"], "image_positions": "sinusoidal_2d", "image_layers": 0}
    system = make(spec)
    shapes = jax.eval_shape(system.init, jax.random.key(0), IMAGES, QUESTIONS)
    nothing = jax.tree.map(lambda one: np.zeros(one.shape, one.dtype), shapes)
    look = jax.jit(functools.partial(system.apply, method="looked_at"))
    places = look(nothing, IMAGES[:1], QUESTIONS[:1])
    row, column = np.split(np.asarray(places).reshape(*GRID, 8), 2, axis=-1)
    np.testing.assert_array_equal(row, np.broadcast_to(row[:, :1], row.shape))
    np.testing.assert_array_equal(column, np.broadcast_to(column[:1], column.shape))
    assert len(np.unique(row[:, 0], axis=0)) == 3 and len(np.unique(column[0], axis=0)) == 4


def test_statistics_are_those_of_rows_that_ask() -> None:
    """In training the image of a row of padding has no part in the norms of the backbone."""
    system = make(SPECS["cnn_lstm"])
    assert system.over_batch
    plain = {**SPECS["cnn_lstm"]["backbone"], "normalisation": "layer_norm"}
    assert not make({**SPECS["cnn_lstm"], "backbone": plain}).over_batch
    _, params = prepared(SPECS["cnn_lstm"])

    @jax.jit
    def seen(images: jax.Array) -> Any:
        return system.apply({"params": params}, images, QUESTIONS, mutable=["statistics"])

    changed = jnp.asarray(IMAGES).at[3].set(9.0)
    (one, left), (other, right) = seen(IMAGES), seen(changed)
    np.testing.assert_array_equal(one[:3], other[:3])
    jax.tree.map(np.testing.assert_array_equal, left, right)
    assert left
