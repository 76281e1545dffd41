"""What trains decisions that a system takes by chance and for which it predicts the reward itself:
where a network of glimpses looks next.

    objective = cross-entropy + weight sum_t -sg(R - b_t) log p(l_t) + baseline sum_t (R - b_t)^2

R is the reward of an image: 1 if the answer is right, else 0 (Mnih et al. 2014), or the log-likelihood
of its class. b_t is what the system expects of it before decision t. A system hands out log p and b
in the collection "samples", [B,1,T] each; `attention.alignments.losses` has the formula. All terms
are sums over images that are real, and divided by their number, so neither padding nor the number
of devices changes them.

Axis letters: B batch, T decisions.
"""

from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax

from attnlab.attention.alignments import losses
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.tasks.schemas import Decided


class Decisions:
    """The terms that train the decisions of a system.

    Attributes:
      settings: what is rewarded, and the weights.
      collections: the variable collections that a pass has to make mutable.
    """

    collections = (SAMPLES,)

    def __init__(self, settings: Decided) -> None:
        self.settings = settings

    @staticmethod
    def needed_by(handed_out: Mapping[str, Any]) -> bool:
        """Whether a system decides, by what a pass of it leaves aside (`models.left_aside`)."""
        return any(path[-1] == "baseline" for path in _flat(handed_out))

    def carried(self) -> None:
        """See `Terms.carried`: the baseline is a part of the system."""

    def follow(self, carried: Any, tracked: Any) -> None:
        """See `Terms.follow`."""

    def __call__(
        self, collected: Mapping[str, Any], reward: jax.Array, real: jax.Array, **_: Any
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns the weighted loss of the sampled decisions in `collected` (REINFORCE for `reward`
        [B] less the baseline of each decision, and the squared error of that baseline), summed over
        decisions and the rows that `real` [B] marks, and over these rows the sums "reward" and
        "baseline" (squared errors, unweighted).

        Args:
          collected: what the pass put into `collections`.
          reward: [B], of each row.
          real: [B] bool, which rows are images.
        """
        flat = _flat(collected)
        log_prob, baseline = (
            next(looks[0] for path, looks in flat.items() if path[-1] == name)[:, 0]
            for name in ("log_prob", "baseline")
        )
        choices, squares = losses.with_baseline(log_prob, reward[:, None], baseline, real)
        added = self.settings.weight * choices + self.settings.baseline * squares
        return added, {"reward": (reward * real).sum(), "baseline": squares}


def _flat(collected: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """The collection "samples" by path."""
    return flax.traverse_util.flatten_dict(dict(collected.get(SAMPLES, {})))
