"""The base of tasks that predict every token of a text: cross-entropy, and the scores that follow from
it.

Axis letters: B batch, T length, V vocabulary, N examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.vocabulary import Special
from attnlab.records.measures import VOCABULARY, Measure, share
from attnlab.tasks.base import Config, Data, Model, Task
from attnlab.tasks.protocol import Batch, Smoothing, Totals
from attnlab.training.settings import TokenTraining

TEACHER_FORCED: Mapping[str, Measure] = {
    "loss": Measure("min", low=0.0, depends=(VOCABULARY,)),
    "perplexity": Measure("min", low=1.0, depends=(VOCABULARY,)),
    "accuracy": share("tokens", depends=(VOCABULARY,)),
}
"""The scores of `token_scores`."""
TOKENS_STORED: Mapping[str, Sequence[str]] = {
    "source_tokens": ("source",),
    "target_tokens": ("target", "target_in"),
}
"""`Task.stored_labels` of texts: the tokens that are read, and those that are predicted or else the
second text."""


class TokenTask(Task[Config, Data, Model]):
    """Base of the tasks whose batches have a "target" [B,T] to predict, see
    `attnlab.tasks.base.Task`.

    Attributes:
      special: the ids of the target's vocabulary that are no text.
    """

    evaluated: ClassVar[Sequence[str]] = tuple(TEACHER_FORCED)
    stored_labels = TOKENS_STORED
    special: Special

    def real(self, ids: jax.Array | np.ndarray) -> jax.Array:
        """Which ids are no padding."""
        return jnp.asarray(ids) != self.special.pad

    def weight(self, batch: Batch) -> jax.Array:
        """The number of target tokens, EOS counted, or of sentences (`training.per="sentence"`: the
        sum over time, the mean over rows, as in the older papers).
        """
        training = self.config.training
        assert isinstance(training, TokenTraining)
        return tokens_or_rows(self.real(batch["target"]), training.per)

    def averaged(self, totals: Totals) -> dict[str, float]:
        """Teacher-forced scores: "loss" (nats per target token, no smoothing), "perplexity",
        "accuracy" (of the next token).
        """
        return token_scores(totals)


def cross_entropy(logits: jax.Array, target: jax.Array, smoothing: Smoothing) -> jax.Array:
    """-sum_v q_v log p_v with q = (1 - e) onehot(target) + e / V: logits [...,V] float32 and target
    [...] to losses [...] in nats.

    Label smoothing as in torch and optax, over all V classes (Szegedy et al. 2016).
    """
    total = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    if isinstance(smoothing, int | float) and smoothing == 0.0:
        return total - picked
    return total - (1.0 - smoothing) * picked - smoothing * logits.mean(axis=-1)


def tokens_or_rows(real: jax.Array, per: str) -> jax.Array:
    """The number of real tokens, or of rows that have any, given which tokens [B,T] are real: what
    a loss per "token" or per "sentence" (the sum over time, the mean over rows) is divided by.
    """
    return (real if per == "token" else real.any(axis=1)).sum().astype(jnp.float32)


def token_scores(totals: Totals) -> dict[str, float]:
    """ "loss" per token, "perplexity" and "accuracy", from sums "loss", "tokens" and "correct"."""
    loss = float(totals["loss"] / totals["tokens"])
    accuracy = float(totals["correct"] / totals["tokens"])
    return {"loss": loss, "perplexity": float(np.exp(loss)), "accuracy": accuracy}


def token_rows(sums: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Rule and rows of `token_scores`, see `attnlab.records.items`, from the same sums [N] of each
    example.
    """
    nats, right = (np.stack([sums[name], sums["tokens"]], axis=1) for name in ("loss", "correct"))
    return {
        "loss": ("ratio", nats),
        "perplexity": ("perplexity", nats),
        "accuracy": ("ratio", right),
    }
