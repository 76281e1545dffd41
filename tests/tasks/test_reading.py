"""Reading in pieces: what is known after one is what the next begins with, unless a text begins."""

from __future__ import annotations

import jax
import numpy as np

from attnlab.data.vocabulary import PAD
from attnlab.tasks.reading import of_tokens, state_before
from tests.tasks.tiny_language import apart, passed


def test_pieces_are_what_the_whole_text_is_and_a_fresh_row_knows_nothing() -> None:
    task, params = apart()
    source = np.array([[1, 4, 5, 6, 7, 4], [1, 5, 5, 4, 6, 7]], np.int32)
    target = np.roll(source, -1, axis=1)
    whole, after = of_tokens(task.system, params, {"source": source, "target": target}, None)
    assert after is None
    state = state_before(task.system, jax.eval_shape(lambda: params), 2)
    assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(state))
    found = []
    for piece, fresh in ((slice(0, 3), [1, 1]), (slice(3, 6), [0, 1])):
        batch = {"source": source[:, piece], "target": target[:, piece], "fresh": np.array(fresh)}
        each, state = of_tokens(task.system, params, batch, state)
        found.append(np.asarray(each["loss"]))
    np.testing.assert_allclose(np.concatenate(found, axis=1)[0], whole["loss"][0], atol=1e-5)
    np.testing.assert_allclose(found[0][1], whole["loss"][1, :3], atol=1e-5)
    anew = passed(params, source[1, 3:])[0]
    wanted = [-anew[place, token] for place, token in enumerate(target[1, 3:])]
    np.testing.assert_allclose(found[1][1], wanted, atol=1e-5)
    assert abs(np.asarray(wanted) - np.asarray(whole["loss"])[1, 3:]).max() > 1e-2


def test_padding_counts_nowhere() -> None:
    task, params = apart()
    batch = {
        "source": np.array([[1, 4, PAD, PAD]], np.int32),
        "target": np.array([[4, 2, PAD, PAD]], np.int32),
        "recalled": np.array([[0, 1, 0, 0]], np.int32),
    }
    each, _ = of_tokens(task.system, params, batch, None)
    assert np.asarray(each["tokens"]).tolist() == [[True, True, False, False]]
    assert not np.asarray(each["loss"])[0, 2:].any() and np.asarray(each["loss"])[0, :2].all()
    assert np.asarray(each["asked"]).tolist() == [[False, True, False, False]]
