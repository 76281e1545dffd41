"""What windows of the language models of Daniluk et al. 2017 hold; their formulas are held by oracles."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from tests.systems.language_models import SPECS, batch, begun, make, parameters, prepared

SINGLE = {**SPECS["attention_lm"], "layers": 1}


def test_a_window_of_one_has_all_its_weight_on_the_step_before() -> None:
    call, system = prepared({**SINGLE, "window": 1})
    (one,) = system.maps(call(batch()[:1], mutable=[MAPS])[1][MAPS]).values()
    np.testing.assert_allclose(one.weights[0, 0], np.eye(6, k=-1), atol=1e-7)


def test_the_windows_beginning_is_no_state_of_the_text_before() -> None:
    """A row that begins anew gets the first state; then what another text left in the window is not
    looked at.
    """
    call, _ = prepared(SINGLE)
    tokens = batch()
    _, state = call(begun(SINGLE), tokens, method="read")
    begins = jnp.asarray([True, False, False, False])
    fresh = jax.tree.map(
        lambda new, old: jnp.where(begins.reshape(4, *[1] * (old.ndim - 1)), new, old),
        begun(SINGLE),
        state,
    )
    actual, _ = call(fresh, tokens, method="read")
    np.testing.assert_allclose(actual[0], call(tokens)[0], atol=2e-6)
    assert np.abs(actual[1] - call(tokens)[1])[:3].max() > 1e-3


def test_carrying_the_state_alone_cuts_windows_where_pieces_begin() -> None:
    spec = {**SINGLE, "carry": "state"}
    params, tokens = parameters(make(spec)), batch()[:1]
    carried, cut = (
        jax.jit(functools.partial(make(one).apply, {"params": params}, method="read"))
        for one in (SINGLE, spec)
    )
    start = begun(spec, 1)
    np.testing.assert_allclose(cut(start, tokens)[0], carried(start, tokens)[0], atol=2e-6)
    state = cut(start, tokens[:, :3])[1]
    actual, whole = cut(state, tokens[:, 3:])[0], carried(start, tokens)[0][:, 3:]
    # both words whose window would have reached back
    assert np.abs(actual - whole)[:, :2].max(axis=2).min() > 1e-4
    np.testing.assert_allclose(actual[:, 2:], whole[:, 2:], atol=2e-6)
    step = jax.jit(functools.partial(make(spec).apply, {"params": params}, method="step"))
    # writing goes on with the window
    np.testing.assert_allclose(step(state, tokens[:, 3])[0], whole[:, 0], atol=2e-6)
