"""How the output bias of a system that predicts tokens starts, see `training.output_bias`.

From zeros the first updates drive hidden units to their ends to learn just how frequent tokens are,
and a read-out that ends in a tanh may be long in coming back.
"""

from __future__ import annotations

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import schemas
from attnlab.tasks.protocol import Params

OUTPUT_BIAS = ("out", "bias")  # where a system that predicts tokens has it among its parameters


def check_output_bias(config: schemas.Settings, params: Params, vocabulary: int) -> None:
    """`UserError` where `training.output_bias` wants to set what these parameters, arrays or their
    shapes, do not have.
    """
    bias = flax.traverse_util.flatten_dict(params).get(OUTPUT_BIAS)
    if _of_frequencies(config) and (bias is None or bias.shape != (vocabulary,)):
        lacks = (
            f"{config.system.name} has no parameter {'/'.join(OUTPUT_BIAS)} with a number for each"
            " token"
        )
        raise UserError(f"config.training.output_bias='unigram': {lacks}; set it to 'zeros'")


def with_output_bias(
    config: schemas.Settings, params: Params, tokens: np.ndarray, vocabulary: int
) -> Params:
    """First parameters, their output bias as `training.output_bias` says, given the target tokens
    of the training split.

    "unigram": log((n_v + 1) / (N + V)) for token v, n_v of N being v; "zeros": as the system draws
    it.
    """
    if not _of_frequencies(config):
        return params
    from attnlab.data.shards import in_parts

    counts = np.ones(vocabulary)
    for part in in_parts(tokens):
        counts += np.bincount(part, minlength=vocabulary)
    flat = flax.traverse_util.flatten_dict(params)
    flat[OUTPUT_BIAS] = jnp.asarray(np.log(counts / counts.sum()), flat[OUTPUT_BIAS].dtype)
    return flax.traverse_util.unflatten_dict(flat)


def _of_frequencies(config: schemas.Settings) -> bool:
    """Whether the output bias starts at the frequencies of tokens; other tasks have none."""
    return getattr(config.training, "output_bias", "zeros") == "unigram"
