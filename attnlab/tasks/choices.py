"""The choice of one class among several: its loss, its scores example by example, and how often each
label got each answer.

A label is k + 1 for class k of C and 0 where no row is. One that only a split other than training has
is C + 1: whatever is answered there is wrong, and the loss, which would be infinite, leaves it out.

Axis letters: B rows of a batch, N examples, C classes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.tasks.protocol import Response, Scores, Smoothing, Sums
from attnlab.tasks.tokens import cross_entropy


def choice_sums(logits: jax.Array, label: jax.Array, smoothing: Smoothing) -> Sums:
    """Returns sums over the rows of a batch by name, from logits [B,C] and `label` [B], 0 for
    padding and else 1 + class: "loss", "known" (rows with a class of training), "rows", "correct".
    """
    logits = logits.astype(jnp.float32)
    real, trained = label > 0, (label > 0) & (label <= logits.shape[-1])
    losses = cross_entropy(logits, jnp.where(trained, label - 1, 0), smoothing)
    return {
        "loss": jnp.where(trained, losses, 0.0).sum(),
        "known": trained.sum(),
        "rows": real.sum(),
        "correct": ((logits.argmax(axis=-1) == label - 1) & real).sum(),
    }


def choice_rows(
    logits: np.ndarray, classes: np.ndarray, trained: np.ndarray
) -> dict[str, tuple[str, np.ndarray]]:
    """Returns for "loss" and "accuracy" a rule of `attnlab.records.items` and rows [N,2] of (value,
    count), from logits [N,C] and right classes [N]; only examples that `trained` [N] marks have a
    loss.
    """
    logits = logits.astype(np.float64)
    right_logits = np.take_along_axis(logits, np.where(trained, classes, 0)[:, None], axis=1)[:, 0]
    nats = np.where(trained, np.logaddexp.reduce(logits, axis=1) - right_logits, 0.0)
    hits = logits.argmax(axis=1) == classes
    return {
        "loss": ("ratio", np.stack([nats, trained], axis=1)),
        "accuracy": ("ratio", np.stack([hits, np.ones_like(trained)], axis=1)),
    }


def confusion(pairs: Iterable[tuple[str, str]], names: Sequence[str]) -> Scores:
    """Counts how often each label (row; `names` and then others) got each answer (column; of
    `names`), from the label and the answer of every example.
    """
    counts = Counter(pairs)
    labels = (*names, *sorted({label for label, _ in counts} - {*names}))
    return {row: {column: counts[row, column] for column in names} for row in labels}


def likeliest(logits: np.ndarray, names: Sequence[str]) -> Response:
    """The likeliest class, given logits [C], and its log probability."""
    chances = logits - np.logaddexp.reduce(logits)
    return Response(names[int(chances.argmax())], float(chances.max()))
