"""Attribution to tokens and weights, and tests of weights as explanations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.analysis import attribution
from attnlab.analysis.passes import Passes, log_probability
from attnlab.attention.interventions import Change
from attnlab.errors import UserError
from tests.analysis.planted import batch, batches, copier, decoder, loaded, noisy

PLACE = "layer_1/attention/weights"


def test_integrated_gradients_are_complete() -> None:
    model = copier()
    rows = batch(model)
    tokens, missing = attribution.integrated_gradients(model, rows)
    total = tokens["embed/embedding"].sum(axis=1)
    _, by_one_node = attribution.integrated_gradients(model, rows, nodes=1)
    assert (np.abs(missing) < 1e-5 * np.abs(total)).all()
    assert (np.abs(by_one_node) > np.abs(missing)).all()
    padding = rows["target"] == model.task.special.pad
    assert padding.any() and not tokens["embed/embedding"][padding].any()


def test_weights_times_their_gradient_is_a_slope_and_makes_relevance() -> None:
    model = decoder()
    rows = batch(model)
    given = attribution.gradient_times_weights(model, rows)[PLACE]
    weights = np.asarray(model.values(rows, weights=True)[PLACE])
    b, h, i, j = np.unravel_index(np.abs(given).argmax(), given.shape)
    row = {name: x[b] for name, x in rows.items()}

    def moved(by: float) -> float:
        shift = jnp.zeros(weights.shape[1:]).at[h, i, j].set(by)
        return float(model.judge(row, {PLACE: Change(shift=shift)}, log_probability)[0])

    slope = (moved(0.02) - moved(-0.02)) / 0.04
    assert given[b, h, i, j] == pytest.approx(weights[b, h, i, j] * slope, rel=1e-2)
    first, second = given, given[::-1]
    means = [np.maximum(x, 0).mean(axis=1)[0].astype(np.float64) for x in (first, second)]
    eye = np.eye(given.shape[-1])
    expected = (eye + means[1]) @ (eye + means[0])
    np.testing.assert_allclose(attribution.relevance([first, second])[0], expected, rtol=1e-5)


def test_the_loss_of_a_previous_token_head_depends_on_the_token_before() -> None:
    model = copier()
    (norms,) = attribution.gradient_by_distance(model, batches(model)).values()
    assert norms.argmax() == 1  # the first token has none before it, and reads itself
    assert norms[2:].max() < 1e-6 * norms[1]


def test_answers_move_with_weights_that_matter_alone() -> None:
    model = copier()
    effects = attribution.weight_effects(model, batches(model), permutations=5)
    assert set(effects) == {("attention/weights", kind) for kind in ("uniform", "permuted")}
    assert all((x > 0.2).all() and (x <= 1).all() for x in effects.values())
    dead = jax.tree.map(np.copy, model.params)
    dead["attention"]["out"]["kernel"][:] = 0
    for moved in attribution.weight_effects(model.replace(params=dead), batches(model), 2).values():  # type: ignore[attr-defined]
        assert not moved.any()


def test_each_example_has_permutations_of_its_own_whatever_batch_it_stands_in() -> None:
    """Four texts that differ in the names of their tokens alone move alike if they are permuted alike."""
    model = copier()
    source = np.array(
        [[2, 5, 6, 7, 4], [2, 6, 5, 7, 4], [2, 7, 5, 6, 4], [2, 6, 7, 5, 4]], np.int32
    )
    rows = {"source": source, "target": np.pad(source[:, 1:], ((0, 0), (0, 1)))}
    moved = attribution.weight_effects(model, [(np.arange(4), rows)], permutations=1)
    uniform, permuted = (moved["attention/weights", kind] for kind in ("uniform", "permuted"))
    assert np.ptp(uniform) < 1e-5 and np.ptp(permuted) > 0.01
    wider = {name: np.pad(x[3:], ((0, 0), (0, 2))) for name, x in rows.items()}
    again = attribution.weight_effects(model, [(np.arange(1), wider)], permutations=1)
    for kind, distances in (("uniform", uniform), ("permuted", permuted)):
        np.testing.assert_allclose(again["attention/weights", kind], distances[3:], rtol=1e-5)


def test_a_system_that_computes_no_weights_is_refused() -> None:
    task = loaded("decoder", "system.attention=average", "system.width=8", "system.layers=1")
    model = Passes(task, noisy(task, 0.7))
    with pytest.raises(UserError, match="no layer computes weights as an array"):
        attribution.weight_effects(model, batches(model))


def test_agreement_ranks_tokens_by_weights_and_by_gradients() -> None:
    model = decoder()
    rows = batch(model)
    taus = attribution.weight_agreement(model, rows, "embed/embedding")[PLACE]
    weights, real = np.asarray(model.values(rows, weights=True)[PLACE]), rows["target"] > 0
    _, slopes = model.gradients(rows, ("embedding",))["embed/embedding"]
    norms = np.linalg.norm(slopes[:, 0], axis=-1)
    for b, h in np.ndindex(taus.shape):
        received, norm = weights[b, h][real[b]].sum(axis=0)[real[b]], norms[b][real[b]]
        pairs = [(i, j) for i in range(len(norm)) for j in range(i)]
        signs = [np.sign((received[i] - received[j]) * (norm[i] - norm[j])) for i, j in pairs]
        assert taus[b, h] == pytest.approx(np.mean(signs))


def test_a_permutation_keeps_the_weights_among_the_keys_that_are_seen() -> None:
    weights = jnp.arange(12.0).reshape(2, 6)
    seen = jnp.array([[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 1]], bool)
    other = attribution.permuted(weights, seen, jax.random.key(3))
    np.testing.assert_array_equal(other[~seen], weights[~seen])
    np.testing.assert_array_equal(jnp.sort(other, axis=1), weights)
    assert (other != weights).any(axis=1).all()


def test_adversarial_weights_keep_the_context_where_values_leave_room() -> None:
    rng = np.random.default_rng(0)
    weights, seen = rng.dirichlet(np.ones(6)), np.array([1, 1, 0, 1, 1, 1], bool)
    weights = np.where(seen, weights, 0) / weights[seen].sum()
    flat = rng.normal(size=(6, 2))
    other, distance = attribution.adversarial_weights(weights, flat, seen)
    assert distance > 0.1 and other.min() >= 0 and other[2] == 0
    np.testing.assert_allclose([*other @ flat, other.sum()], [*weights @ flat, 1], atol=1e-9)
    same, none = attribution.adversarial_weights(weights, rng.normal(size=(6, 4)), seen)
    assert none == 0.0 and (same == weights).all()


def test_adversarial_maps_keep_the_answer() -> None:
    model = decoder()
    rows = batch(model)
    others, distances = attribution.adversarial_maps(model, rows)[PLACE]
    assert distances.max() > 0.05 and not distances[:, :, :2].any()  # two keys leave no room

    def run(row: Any, shift: Any) -> jax.Array:
        changes: list[dict[str, Change]] = [{}, {PLACE: Change(0.0, shift)}]
        return jnp.stack([model.judge(row, some, log_probability)[0] for some in changes])

    before, after = jax.vmap(run)(rows, others.astype(np.float32)).T
    np.testing.assert_allclose(after, before, rtol=1e-4)
