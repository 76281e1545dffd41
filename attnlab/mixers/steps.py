"""The loop of a system that looks at every step: what all of them want of `flax.linen.scan`.

Axis letters: B batch, T time, H heads, N what is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import LOSSES, MAPS


def over_time(step: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """step(module, state, inputs [B,...], constant) to a function of (module, first state, inputs
    [B,T,...], constant).

    It gives the last state and the outputs [B,T,...]. Parameters are shared, every step draws at
    random for itself, and what its looks leave aside is stacked along their query axis: maps
    [B,H,1,N] to [B,H,T,1,N], and so on.
    """
    return nn.scan(  # type: ignore[no-any-return]
        step,
        variable_broadcast="params",
        variable_axes={MAPS: 2, SAMPLES: 2, LOSSES: 1},
        split_rngs={"params": False, "dropout": True, "sample": True},
        in_axes=(1, nn.broadcast),
        out_axes=1,
    )
