"""States are all that goes from source to target in Sequence to Sequence, and the two sides may
have vocabularies of their own.
"""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from tests.systems.checks import SPECS, VOCABULARY, batch, make, prepared

SPEC = SPECS["seq2seq"]


def test_the_decoder_begins_where_the_encoder_ended_in_every_layer() -> None:
    """Cells too; and nothing else of the source is there to be had."""
    call, _ = prepared(SPEC)
    memory = call(batch()[0], method="encode")
    jax.tree.map(np.testing.assert_array_equal, call(memory, 5, method="start"), memory)
    leaves = jax.tree.leaves(memory)
    assert [leaf.shape for leaf in leaves] == [(3, 5)] * 4  # c and h of two layers

    def loss(memory: Any) -> Any:
        return (call(memory, batch()[1], method="decode") ** 2).sum()

    assert all(np.abs(slope).max() > 1e-3 for slope in jax.tree.leaves(jax.grad(loss)(memory)))


@pytest.mark.quick
def test_one_table_wants_one_vocabulary() -> None:
    system = make({**SPECS["transformer"], "share": "all"}, target_vocabulary=VOCABULARY + 1)
    with pytest.raises(UserError, match="share='all'"):
        jax.eval_shape(system.init, jax.random.key(0), *batch())
