"""Passes with changes: places, values and gradients of examples; costs, importance and patches against
systems that are changed by hand.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.analysis.ablation import ablation_table, head_importance, patch, prune_heads
from attnlab.analysis.passes import (
    Passes,
    filled,
    log_probability,
    loss_per_target,
    real_positions,
    terms_of,
)
from attnlab.attention.interventions import Change
from attnlab.errors import UserError
from tests.analysis.planted import batch, batches, copier, decoder


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


PLACE = "layer_1/attention/heads"
DEAD = "layer_0/attention/heads"  # its head 1


@functools.cache
def costs() -> dict[Any, float]:
    model = decoder()
    table = ablation_table(model, batches(model))
    for row in table:
        assert row.interval[0] <= row.cost <= row.interval[1] and row.examples == 4
    return {(row.place, row.head, row.kind): row.cost for row in table}


def loss(model: Passes, **changes: Change) -> float:
    """Of the batch, with the same change in every row."""
    every = {name.replace("__", "/"): change for name, change in changes.items()}
    rows, weight, total = batch(model), 0.0, 0.0
    for n in range(len(rows["source"])):
        row = {name: x[n] for name, x in rows.items()}
        total -= float(model.judge(row, every, log_probability)[0])
        weight += float(model.task.weight({name: x[None] for name, x in row.items()}))
    return total / weight


def test_a_head_that_is_off_is_a_head_without_its_rows_of_the_projection() -> None:
    model = decoder()
    params = jax.tree.map(np.copy, model.params)
    params["layer_1"]["attention"]["out"]["kernel"][:4] = 0
    expected = loss(Passes(model.task, params)) - loss(model)
    assert costs()[PLACE, 0, "zero"] == pytest.approx(expected, rel=1e-4)
    assert abs(expected) > 1e-3


def test_a_mean_is_that_of_the_real_positions() -> None:
    model = decoder()
    rows = batch(model)
    values, real = np.asarray(model.values(rows)[PLACE]), rows["target"] != model.task.special.pad
    mean = values[:, 1].astype(np.float64)[real].mean(axis=0)
    shift = np.stack([np.zeros_like(mean), mean])[:, None]
    moved = loss(model, layer_1__attention__heads=Change(np.array([1.0, 0.0]), shift))
    expected = moved - loss(model)
    assert costs()[PLACE, 1, "mean"] == pytest.approx(expected, rel=1e-3)


def test_what_nobody_reads_costs_nothing_and_has_no_importance() -> None:
    model = decoder()
    for kind in ("zero", "mean", "resample"):
        assert costs()[DEAD, 1, kind] == 0.0 != costs()[DEAD, 0, kind]
    assert costs()["layer_0/attention/weights", 1, "uniform"] == 0.0
    scores = head_importance(model, batches(model), normalised=False)
    assert scores[DEAD][1] == 0.0 < scores[DEAD][0]
    unit = head_importance(model, batches(model))[PLACE]
    np.testing.assert_allclose(unit, scores[PLACE] / np.linalg.norm(scores[PLACE]), rtol=1e-6)


def test_importance_is_the_slope_in_a_gate_before_the_mean() -> None:
    model, step = decoder(), 0.02
    rows = batch(model)

    def moved(gate: Any) -> Any:
        run = lambda row: model.judge(row, {PLACE: Change(gate)}, loss_per_target)[0]
        return jax.vmap(run)(rows)

    gates = np.array([1.0, 1.0]), np.array([step, 0.0])
    slope = jax.jit(lambda a, b: (moved(a + b) - moved(a - b)) / (2 * step))(*gates)
    assert len(set(np.sign(slope))) == 2  # so that the absolute value of a mean is another
    scores = head_importance(model, batches(model), normalised=False)
    assert scores[PLACE][0] == pytest.approx(float(np.abs(slope).mean()), rel=5e-3)


def test_pruning_begins_with_what_nobody_reads_and_ends_without_heads() -> None:
    model = decoder()
    order, curve = prune_heads(model, batches(model))
    assert order[0] == (DEAD, 1) and len(set(order)) == 4 and len(curve) == 5
    assert curve[0] == curve[1] == pytest.approx(loss(model), rel=1e-5)
    none = {"layer_0__attention__heads": Change(0.0), "layer_1__attention__heads": Change(0.0)}
    assert curve[-1] == pytest.approx(loss(model, **none), rel=1e-5)


def test_patching_finds_the_previous_token_head() -> None:
    model = copier()
    source = np.array([[2, 5, 6, 7, 4]], np.int32)
    # what stands before 7
    clean = {"source": source, "target": np.array([[0, 0, 0, 6, 0]], np.int32)}
    other = {"target": np.array([[0, 0, 0, 8, 0]], np.int32)}
    corrupted = {"source": np.array([[2, 5, 8, 7, 4]], np.int32)}
    for others in (None, other):
        parts = patch(model, clean, corrupted, positions=(None, 2, 3), other=others)
        shares = {part[1:]: float(share[0]) for part, share in parts.items()}
        assert shares[0, None] == pytest.approx(1.0) == shares[0, 3]
        assert max(abs(shares[x]) for x in ((0, 2), (1, None), (1, 2), (1, 3))) < 1e-5
    with pytest.raises(UserError, match=r"'source' is \(1, 4\) in the corrupted batch"):
        patch(model, clean, {"source": source[:, 1:]})
    with pytest.raises(UserError, match="Copier has no tapes"):
        patch(model, clean, corrupted, ("tapes",))


def test_an_unknown_ablation_is_refused() -> None:
    with pytest.raises(UserError, match="ablation 'means'; did you mean 'mean'"):
        ablation_table(decoder(), [], kinds=("means",))
