"""A number for every text, or pair of texts: ratings, readability, how alike two sentences are.

    loss = sum over texts of (guess - truth)^2

Takes every registered classifier, whose output is then one number, and every source with `labelled(split)` whose labels are numbers.
"""

import math

import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.tasks.protocol import Response
from attnlab.tasks.texts import TextTask


class Regression(TextTask):
    """Regression: texts to numbers, by least squares."""

    measures = {"loss": "min", "absolute_error": "min", "correlation": "max"}
    evaluated = tuple(measures)
    units = {"loss": "mean squared error", "absolute_error": "mean", "correlation": "Pearson's, of guesses and labels"}
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

    def sums(self, params, batch, smoothing=0.0, rngs=None):
        guess = self.apply(params, batch, rngs=rngs)[:, 0].astype(jnp.float32)
        truth, real = batch["label"], self.real(batch)
        terms = {"loss": (guess - truth) ** 2, "absolute_error": abs(guess - truth), "guess": guess, "truth": truth}
        terms |= {"guess^2": guess**2, "truth^2": truth**2, "guess*truth": guess * truth}
        return {name: jnp.where(real, term, 0.0).sum() for name, term in terms.items()}

    def averaged(self, totals):
        mean = {name: float(total) / totals["rows"] for name, total in totals.items()}
        spread = math.sqrt(max(0.0, (mean["guess^2"] - mean["guess"] ** 2) * (mean["truth^2"] - mean["truth"] ** 2)))
        correlation = (mean["guess*truth"] - mean["guess"] * mean["truth"]) / spread if spread else 0.0
        return {"loss": mean["loss"], "absolute_error": mean["absolute_error"], "correlation": correlation}

    def written(self, outputs):
        return Response(f"{outputs[0]:.4f}", 0.0)
