"""The loop of systems with one look per step: `flax.linen.scan` with the common settings.

Axis letters: B batch, T time, H heads, N what is looked at.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import LOSSES, MAPS


def over_time(step: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """Converts step(module, state, inputs [B,...], constant) to a loop over time (`nn.scan`), a
    function of (module, first state, inputs [B,T,...], constant) that returns the last state and
    the outputs [B,T,...].

    It returns the last state and the outputs [B,T,...]. Parameters are shared, every step has its
    own random draws, and what its looks sow is stacked along the query axis: maps [B,H,1,N] to
    [B,H,T,1,N], and so on.
    """
    return nn.scan(  # type: ignore[no-any-return]
        step,
        variable_broadcast="params",
        variable_axes={MAPS: 2, SAMPLES: 2, LOSSES: 1},
        split_rngs={"params": False, "dropout": True, "sample": True},
        in_axes=(1, nn.broadcast),
        out_axes=1,
    )
