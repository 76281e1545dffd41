"""An optimizer put together from optax's parts, and a schedule as a function of the update.

    c = b1 m + (1 - b1) g        w <- w - rate (sign(c) + weight_decay w)        m <- b2 m + (1 - b2) g

Sources: X. Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023 (arXiv 2302.06675), algorithm 2; S. Hu et al.,
"MiniCPM", 2024 (arXiv 2404.06395), section 4: warm up, stay, and fall in the last part of training.
"""

import jax.numpy as jnp
import optax

from attnlab.errors import UserError
from attnlab.training.kinds import decayed_by_kind


def lion(
    learning_rate: optax.Schedule, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 0.1
) -> optax.GradientTransformation:
    """Lion (Chen et al. 2023): the sign of a momentum; peaks of a third to a tenth of Adam's fit.

    Matrices decay; biases, gains, embeddings and positions do not.
    """
    return optax.chain(
        optax.scale_by_lion(b1, b2),
        optax.add_decayed_weights(weight_decay, mask=decayed_by_kind),
        optax.scale_by_learning_rate(learning_rate),
    )


def stay_and_fall(
    steps: int, peak: float = 1e-3, warmup: int = 0, share: float = 0.2, floor: float = 0.0
) -> optax.Schedule:
    """peak min(1, t / warmup), and in the last `share` of all updates t a straight line down to `floor`, reached at update `steps`."""
    if not 0 < share <= 1:
        raise UserError(f"schedule.share={share} must be above 0 and at most 1")
    length = max(1, round(share * steps))

    def rate(count):
        update = count + 1  # optax counts the updates before this one
        left = jnp.clip((steps - update) / length, 0.0, 1.0)
        return jnp.minimum(
            peak * jnp.minimum(1.0, update / max(1, warmup)), floor + (peak - floor) * left
        )

    return rate
