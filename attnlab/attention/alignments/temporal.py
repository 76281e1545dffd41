"""Temporal attention (Nallapati et al. 2016): keys that got weight from earlier queries get less.

    a'_ij = softmax over j of e_ij        b_ij = sum over the queries l before i of a'_lj
    a_ij  = a'_ij / b_ij over its sum;    a_1 = a'_1

`past="scores"` is the form of Sankaran et al. 2016 and Paulus et al. 2018: b_ij = sum_l exp(e_lj),
and a_ij = exp(e_ij) / b_ij over its sum. A key that no earlier query was allowed to see has b = 1,
as all have at the first query. Computed in logarithms; log b [B,H,Tk] is passed from look to look.
Cost: about 24 FLOPs for each pair. Parameters: none. Source: R. Nallapati, B. Zhou, C. dos Santos,
C. Gulcehre, B. Xiang, "Abstractive Text Summarization using Sequence-to-sequence RNNs and Beyond",
CoNLL 2016 (arXiv 1602.06023), whose model takes it from B. Sankaran, H. Mi, Y. Al-Onaizan, A.
Ittycheriah, "Temporal Attention Model for Neural Machine Translation", 2016 (arXiv 1608.02927); R.
Paulus, C. Xiong, R. Socher, "A Deep Reinforced Model for Abstractive Summarization", ICLR 2018,
equations 2 to 4.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, Alignment, log_softmax, softmax, whole
from attnlab.attention.view import View
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class Temporal(Alignment):
    """Softmax weights, divided by the sum of earlier weights of each key and renormalised.

    Attributes:
      past: what is summed over earlier queries: their softmax "weights" (Nallapati et al.), or the
        exponentials of their "scores" (Sankaran et al., Paulus et al.).
    """

    past: Literal["weights", "scores"] = "weights"

    form = "look"
    card = Card(
        "temporal",
        2016,
        "Nallapati et al., Abstractive Text Summarization using Sequence-to-sequence RNNs, CoNLL"
        " 2016",
        "T^2",
    )

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Alignment.initial_history`: log b [B,H,Tk], `LOW` for keys that no query saw."""
        return jnp.full(shape, LOW, dtype)

    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Divides the softmax weights (or the exponentials of the scores) of each key by their sum
        over earlier queries (by 1 where there is none), and normalises them again; returns the
        weights and the logarithms of the new sums [B,H,Tk]. See `Alignment.go_on`.
        """
        if not scores.shape[-1]:
            return widened(scores), history
        allowed = whole(mask, scores.shape[-1])
        logs = log_softmax(scores, mask) if self.past == "weights" else widened(scores)
        logs = jnp.where(allowed, logs, LOW)
        rows = jnp.concatenate([history[:, :, None], logs], axis=2)
        sums = jax.lax.associative_scan(jnp.logaddexp, rows, axis=2)
        before = sums[:, :, :-1]
        modulated = logs - jnp.where(before > 0.5 * LOW, before, 0.0)
        return softmax(modulated, mask), sums[:, :, -1]
