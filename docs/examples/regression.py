"""A number for every text, or pair of texts: ratings, readability, how alike two sentences are.

    loss = sum over texts of (guess - truth)^2

Takes every registered classifier, whose output is then one number, unless its attention samples or has a loss of its own
(`self_attentive`); and every source with `labelled(split)` whose labels are numbers.
"""

import functools
import math

import jax.numpy as jnp
import numpy as np

from attnlab.errors import UserError
from attnlab.tasks.protocol import Response
from attnlab.tasks.texts import TextTask


class Regression(TextTask):
    """Regression: texts to numbers, by least squares."""

    measures = {"loss": "min", "absolute_error": "min", "correlation": "max"}
    evaluated = tuple(measures)
    units = {
        "loss": "mean squared error",
        "absolute_error": "mean",
        "correlation": "Pearson's, of guesses and labels",
    }
    numbers = 1

    @staticmethod
    def answer(label):
        try:
            number = float(label)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UserError(f"the label {label!r} is no number")
        return number

    @functools.cached_property
    def middle(self):
        """A number near the labels. A correlation is the same without it, and squares in float32 keep what labels differ by."""
        return float(
            np.concatenate([one["label"].values for one in self.data.examples.values()]).mean(
                dtype=np.float64
            )
        )

    def sums(self, params, batch, smoothing=0.0, rngs=None):
        guess = self.apply(params, batch, rngs=rngs)[:, 0].astype(jnp.float32)
        truth, real = batch["label"], self.real(batch)
        error = jnp.where(real, guess - truth, 0.0)
        pair = jnp.where(real, jnp.stack([guess, truth]) - self.middle, 0.0)  # [2,B]
        moments = {"pair": pair.sum(axis=1), "products": (pair * pair[:, None]).sum(axis=2)}
        return {"loss": (error**2).sum(), "absolute_error": abs(error).sum(), **moments}

    def averaged(self, totals):
        mean = {name: total / totals["rows"] for name, total in totals.items()}
        covariance = mean["products"] - np.outer(mean["pair"], mean["pair"])
        variances = covariance.diagonal()
        known = (
            variances > 1e-5 * mean["products"].diagonal()
        ).all()  # a smaller one is nothing but rounding of float32
        correlation = covariance[0, 1] / np.sqrt(variances.prod()) if known else 0.0
        return {
            "loss": float(mean["loss"]),
            "absolute_error": float(mean["absolute_error"]),
            "correlation": float(correlation),
        }

    def written(self, outputs):
        return Response(f"{outputs[0]:.4f}", 0.0)
