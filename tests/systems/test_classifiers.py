"""All classifiers: promises, whole forward passes against float64 oracles, and what becomes of them
in special cases.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems.classifiers import (
    SOURCE,
    SPECS,
    TARGET,
    batch,
    make,
    parameters,
    prepared,
)


@pytest.mark.parametrize(
    "name", ["attention_pooling", "attention_pooling-multihead", "self_attentive"]
)
def test_maps_of_both_texts(name: str) -> None:
    """A row for each look, hop or head; a text without a token is looked at nowhere."""
    _, params, system = prepared(SPECS[name], 2)
    ids = batch(2)
    _, collected = jax.jit(lambda *ids: system.apply({"params": params}, *ids, mutable=[MAPS]))(
        *ids
    )
    maps = system.maps(collected[MAPS])
    assert {key: (one.query, one.key) for key, one in maps.items()} == {
        "attention": ("hops", "source"),
        "attention_1": ("hops", "target_in"),
    }
    rows = {"attention_pooling": 1, "attention_pooling-multihead": 2, "self_attentive": 3}[name]
    for one, ids_of, lengths in zip(maps.values(), ids, (SOURCE, TARGET), strict=True):
        assert one.weights.shape == (4, 1, rows, ids_of.shape[1])
        np.testing.assert_allclose(
            one.weights.sum(axis=(1, 3)),
            np.broadcast_to((np.array(lengths) > 0)[:, None], (4, rows)),
            atol=1e-6,
        )
        assert (
            np.asarray(one.weights)[
                np.broadcast_to((ids_of == 0)[:, None, None], one.weights.shape)
            ]
            == 0.0
        ).all()


def test_without_scores_attention_is_the_mean() -> None:
    """v = 0 makes every weight of a text the same, and the vectors those of mean pooling, for one
    text and for two.
    """
    for texts in (1, 2):
        call, params, _ = prepared(SPECS["attention_pooling"], texts)
        mean = make(SPECS["bilstm_pooling-mean"])
        flat = {**params, "attention": jax.tree.map(np.zeros_like, params["attention"])}
        ids = batch(texts)
        same = jax.jit(mean.apply)(
            {"params": {name: params[name] for name in ("reader", "verdict")}}, *ids
        )
        np.testing.assert_allclose(call(flat, *ids), same, atol=1e-6)
        assert np.abs(call(params, *ids) - same).max() > 1e-2  # type: ignore[operator]


def test_the_order_of_states_is_no_matter_to_mean_and_max_but_to_the_last() -> None:
    """Without recurrence (U = 0) and with a cell that forgets at once, a state depends on its own
    word alone.
    """
    for how, differs in (("mean", False), ("max", False), ("last", True)):
        call, params, _ = prepared(SPECS[f"bilstm_pooling-{how}"], 1)
        params = jax.tree.map(np.array, params)
        for layer in params["reader"]["lstm"].values():
            layer["cell"]["past"][:] = 0.0
            layer["of_input"]["kernel"]["kernel"][:, 4:8] = 0.0
            layer["of_input"]["bias"][4:8] = -100.0  # forget
        (ids,) = batch(1)
        turned = ids.copy()
        turned[0] = ids[0, ::-1]
        change = np.abs(call(params, ids)[0] - call(params, turned)[0]).max()
        assert (change > 1e-2) == differs and (differs or change < 1e-6)


def test_every_registered_classifier_has_parameters_of_its_own_for_two_texts() -> None:
    """`parameters` finds them by initialising with as many texts as are read."""
    one, two = (parameters(make(SPECS["self_attentive"]), texts) for texts in (1, 2))
    assert set(two) - set(one) == {"gate_source", "gate_target"}
