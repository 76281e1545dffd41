"""What windows of the language models of Daniluk et al. 2017 hold; their formulas are held by oracles."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.systems.language_models import SPECS, batch, begun, prepared

SINGLE = {**SPECS["attention_lm"], "layers": 1}


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


def test_writing_goes_on_with_the_window_that_reading_cuts() -> None:
    """With the state alone, pieces of a text begin without a window; the steps after them do not."""
    cut, tokens = {**SINGLE, "carry": "state"}, batch()[:1]
    call, _ = prepared(cut)
    _, state = call(begun(cut, 1), tokens[:, :3], method="read")
    whole = prepared(SINGLE)[0](tokens)[:, 3:]
    np.testing.assert_allclose(call(state, tokens[:, 3], method="step")[0], whole[:, 0], atol=2e-6)
    actual = call(state, tokens[:, 3:], method="read")[0]
    # both words whose window would have reached back
    assert np.abs(actual - whole)[:, :2].max(axis=2).min() > 1e-4
    np.testing.assert_allclose(actual[:, 2:], whole[:, 2:], atol=2e-6)
