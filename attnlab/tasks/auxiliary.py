"""What a config may add to the loss of a task: penalties on attention, and the training of choices
that attention, or a system, makes by chance.

    objective = cross-entropy + sum over n of weight_n penalty_n - sum_t ( weight sg(R_t - b_t) log
    p(s_t) + entropy H_t )

Penalties are the losses that mechanisms hand out, by their names ("hops"), and "doubly_stochastic"
of every map between target and source. The last sum is there where an alignment samples ("hard"):
its choices s_t get no gradient from the words, only from the reward R_t they led to (see
`attention.alignments.losses`). b is the moving average of past rewards, with an entry for every step if rewards count
from there on; it is carried from step to step as part of the training state. What an encoder
samples is chosen before the first word, so that its reward is the whole sentence's. All terms are
sums over real tokens of real sentences and divided by what the cross-entropy is divided by, so
neither padding nor the number of devices changes them. A classifier predicts one thing, its class:
that is its target, of length 1, where "hops" stand too.

`Decisions` trains those that a system takes by chance and for which it predicts the reward itself:
where a network of glimpses looks next.

    objective = cross-entropy + weight sum_t -sg(R - b_t) log p(l_t) + baseline sum_t (R - b_t)^2

R is the reward of an image: 1 if the answer is right, else 0 (Mnih et al. 2014), or the log-likelihood
of its class. b_t is what the system expects of it before decision t. A system hands out log p and b
in the collection "samples", [B,1,T] each; `attention.alignments.losses` has the formula.

Axis letters: B batch, T target length or decisions, S source length.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import flax.traverse_util
import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from attnlab.attention.alignments import losses
from attnlab.attention.alignments.losses import uncovered
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.errors import UserError, nearest
from attnlab.systems.protocol import Side, System, Writer
from attnlab.tasks import schemas
from attnlab.tasks.models import chosen_weights
from attnlab.tasks.protocol import Numbers

COVERAGE = "doubly_stochastic"
Arrays = Mapping[str, jax.Array]


class Terms(Protocol):
    """What `Task.loss` asks of what is added to it: `Auxiliary` or `Decisions`.

    Attributes:
      collections: the variable collections that a pass has to make mutable; empty if nothing is
        added.
    """

    @property
    def collections(self) -> Sequence[str]: ...

    def carried(self) -> Any:
        """What is carried from step to step, before the first; None for nothing."""

    def follow(self, carried: Any, tracked: Any) -> Any:
        """What is carried on, given the sums that were tracked in a batch."""

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[jax.Array, dict[str, Any]]:
        """What is added to the summed loss, and sums to report, given what the pass collected,
        `carried`, and what the task's `auxiliary_inputs` gives.
        """


class Auxiliary:
    """The terms that one config adds to the loss of one system.

    Args:
      system: its class; one that writes a text, or a classifier.
      handed_out: what a pass leaves aside, by collection, as `models.left_aside` says.
      config: the whole; read are the nodes `auxiliary`, weights by name (0 is off), `reinforce` and
        `system`.
      length: of the longest target; 1 of a classifier.

    Attributes:
      collections: the variable collections that a pass has to make mutable; empty if nothing is
        added.

    Raises:
      UserError: a weight for a loss that nobody hands out, hops without a weight for the penalty
        that keeps them apart, or settings of `reinforce` out of range.
    """

    def __init__(
        self,
        system: type[System],
        handed_out: Mapping[str, Any],
        config: schemas.Classification | schemas.WritingSettings,
        length: int,
    ) -> None:
        """Stores the weights of penalties, the settings of sampled choices, and the collections
        that a pass must make mutable; `handed_out` is what attention of the `system` collects;
        raises `UserError` for a weight without its loss, or hops without a penalty.
        """
        weights, offered = config.loss_weights, offered_losses(handed_out)
        offered += [COVERAGE] if system.needs and issubclass(system, Writer) else []
        self.weights = {name: weight for name, weight in weights.items() if weight}
        check_offered(weights, offered)
        if "hops" in offered:
            _check_hops(weights.get("hops", 0.0), _hops(config.system))
        settings: schemas.Reinforce = config.reinforce
        self.sampling = (
            settings if handed_out.get(SAMPLES) and settings.weight + settings.entropy else None
        )
        self.system, self.length = system, length
        used = {
            LOSSES: self.weights.keys() - {COVERAGE},
            MAPS: COVERAGE in self.weights,
            SAMPLES: self.sampling,
        }
        self.collections = [name for name, use in used.items() if use]

    def carried(self) -> dict[str, jax.Array] | None:
        """The baseline before the first step, [1] or [longest T]; None without choices to train."""
        if self.sampling is None:
            return None
        return {"baseline": jnp.zeros(self.length if self.sampling.reward == "to_go" else 1)}

    def follow(self, carried: Arrays, tracked: Arrays) -> dict[str, jax.Array]:
        """Returns {"baseline": the expected rewards}: those in `carried`, each step that has rows
        moved towards the mean reward of a batch, sums "rewards" divided by numbers "rows" in
        `tracked`.
        """
        assert self.sampling is not None
        mean = tracked["rewards"] / jnp.maximum(tracked["rows"], 1)
        return {
            "baseline": losses.followed(
                carried["baseline"], mean[None], tracked["rows"][None] > 0, self.sampling.decay
            )
        }

    def __call__(
        self,
        collected: Mapping[str, Any],
        source: jax.Array,
        target: jax.Array,
        log_likelihood: jax.Array,
        carried: Any,
        second: jax.Array | None = None,
        numbers: Numbers | None = None,
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Returns two things: the weighted penalties plus the loss of sampled choices, a number to
        add to the loss of a pass, and a dict of the unweighted sums to report (if choices are
        trained, with the dict "tracked"); `source` and `target` mask real tokens.

        Args:
          collected: what the pass put into `collections`.
          source, target: [B,S] and [B,T] bool, True at real tokens; of an image the places that
            are looked at.
          log_likelihood: [B,T] of the target's words.
          carried: see `carried`.
          second: [B,T'] bool, of the second text that a classifier reads.
          numbers: may replace the weights.
        """
        real = {
            "source": source,
            "image": source,
            "target": target,
            "target_in": target if second is None else second,
            "hops": target,
        }
        sums: dict[str, Any] = {}
        if LOSSES in self.collections:
            sums |= {
                name: loss
                for name, loss in self._penalties(collected[LOSSES], real).items()
                if name in self.weights
            }
        if MAPS in self.collections:
            maps = self.system.maps(collected[MAPS]).values()
            sides = "target", getattr(self.system, "source_side", "source")
            crossed = [look.weights for look in maps if (look.rows, look.columns) == sides]
            sums[COVERAGE] = sum(
                (uncovered(weights, target, source).sum() for weights in crossed), jnp.zeros(())
            )
        weights = chosen_weights(self.weights, numbers)
        added = sum((weights[name] * loss for name, loss in sums.items()), jnp.zeros(()))
        if self.sampling is None:
            return added, sums
        episode = losses.Episode(
            log_likelihood, *self._choices(collected[SAMPLES], real, target), target
        )
        choice_loss, tracked = self._choice_loss(self.sampling, episode, carried["baseline"])
        entropy = jnp.where(target, episode.entropy, 0.0).sum()
        return added + choice_loss, {**sums, "choice_entropy": entropy, "tracked": tracked}

    def _penalties(self, collected: Mapping[str, Any], real: Arrays) -> dict[str, jax.Array]:
        """Sums by name each penalty that attention modules left in the collection `collected`, over
        all modules and real queries; `real` has by side ("source", ...) a mask [B,T] of the
        positions that count. A scan over time gives [B,T,1] for [B,T].
        """
        totals: dict[str, jax.Array] = {}
        for path, looks in _by_path(collected).items():
            is_real = real[self._query_side(path)]
            for name, loss in ((name, loss) for look in looks for name, loss in look.items()):
                totals[name] = (
                    totals.get(name, jnp.zeros(()))
                    + jnp.where(is_real, loss.reshape(is_real.shape), 0.0).sum()
                )
        return totals

    def _choices(
        self, samples: Mapping[str, Any], real: Arrays, target: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns log p and entropy [B,T] of what attention sampled at each target step, summed
        over all modules in the collection `samples`; choices in the source all count at the first
        step; `real` has a mask by side.

        Args:
          samples: the collection that looks have left.
          real: by side, which positions count.
          target: [B,T], the entry of the target in `real`.
        """
        log_prob, entropy = jnp.zeros(target.shape), jnp.zeros(target.shape)
        flat = _by_path(samples)
        for side in dict.fromkeys(map(self._query_side, flat)):
            group = {path: looks for path, looks in flat.items() if self._query_side(path) == side}
            chosen = losses.gathered(flax.traverse_util.unflatten_dict(group))
            in_time = real[side] is target
            p, h = (
                chosen
                if in_time
                else (_at_first(values, real[side], target.shape[1]) for values in chosen)
            )
            log_prob, entropy = log_prob + p, entropy + h
        return log_prob, entropy

    def _choice_loss(
        self, node: schemas.Reinforce, episode: losses.Episode, baseline: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns two things: the loss term, summed over rows, that trains the sampled choices of
        an episode by the settings `node`, and a dict of sums "rewards" and numbers "rows", arrays
        as long as `baseline`, by step or for whole texts, by which it can be moved.
        """
        rewards = (losses.to_go if node.reward == "to_go" else losses.total)(episode)
        choices = episode.replace(log_likelihood=jnp.zeros(()))  # type: ignore[attr-defined]  # the cross-entropy has them already
        term = losses.surrogate(
            choices, rewards, baseline[: rewards.shape[1]], node.weight, node.entropy
        ) * len(rewards)
        counted = (
            episode.valid if node.reward == "to_go" else episode.valid.any(axis=1, keepdims=True)
        )
        room = (0, len(baseline) - rewards.shape[1])
        tracked = {
            "rewards": jnp.where(counted, rewards, 0.0).sum(axis=0),
            "rows": counted.sum(axis=0),
        }
        return term, {name: jnp.pad(values, room) for name, values in tracked.items()}

    def _query_side(self, path: tuple[str, ...]) -> Side:
        """The sequence in which the queries of the look at this place, by its path in a
        collection, stand.
        """
        return self.system.between("/".join(path[:-1]))[0]


class Decisions:
    """The terms that train the decisions of a system.

    Attributes:
      settings: what is rewarded, and the weights.
      collections: the variable collections that a pass has to make mutable.
    """

    collections = (SAMPLES,)

    def __init__(self, settings: schemas.Decided) -> None:
        self.settings = settings

    @staticmethod
    def needed_by(handed_out: Mapping[str, Any]) -> bool:
        """Whether a system decides, by what a pass of it leaves aside (`models.left_aside`)."""
        return any(path[-1] == "baseline" for path in _by_path(handed_out.get(SAMPLES, {})))

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
        flat = _by_path(collected[SAMPLES])
        log_prob, baseline = (
            next(looks[0] for path, looks in flat.items() if path[-1] == name)[:, 0]
            for name in ("log_prob", "baseline")
        )
        choices, squares = losses.with_baseline(log_prob, reward[:, None], baseline, real)
        added = self.settings.weight * choices + self.settings.baseline * squares
        return added, {"reward": (reward * real).sum(), "baseline": squares}


def looks_of(collected: Mapping[str, Any]) -> list[dict[str, jax.Array]]:
    """The losses that every look has left in the collections of a pass, by name."""
    places = _by_path(collected.get(LOSSES, {})).values()
    return [look for looks in places for look in looks]


def offered_losses(collected: Mapping[str, Any]) -> list[str]:
    """The names of the losses that attention has left in the collections of a pass, sorted."""
    return sorted({name for look in looks_of(collected) for name in look})


def check_offered(weights: Mapping[str, float | None], offered: Sequence[str]) -> None:
    """Raises `UserError` if a config gives a weight in `weights`, by name of the loss (None or 0
    for no weight), to a loss that is not among the names `offered` by the system.
    """
    for name, weight in weights.items():
        if weight and name not in offered:
            raise UserError(
                f"auxiliary.{name}={weight}: nothing in this system hands out such a loss;"
                f" {nearest(name, offered)}"
            )


def _at_first(chosen: jax.Array, real: jax.Array, length: int) -> jax.Array:
    """Sums what was `chosen` at the real positions of a text, [B,S] each, and returns it at the
    first of `length` steps, [B,T].
    """
    return jnp.where(real, chosen, 0.0).sum(axis=1)[:, None] * (jnp.arange(length) == 0)


def _hops(node: ConfigDict) -> int:
    """Returns the largest value of a setting `hops` anywhere in a config node; 0 if there is none."""
    hops = (
        value if key == "hops" and isinstance(value, int) else _hops(value)
        for key, value in node.items()
        if key == "hops" or isinstance(value, ConfigDict)
    )
    return max(hops, default=0)


def _check_hops(weight: float | None, hops: int) -> None:
    """Raises `UserError` if attention has more than one of `hops` and the `weight` of their penalty
    is 0, since all hops may then attend to the same; a weight of None is allowed.
    """
    if hops > 1 and weight is not None and not weight:
        raise UserError(
            f"config.auxiliary.hops={weight}: {hops} hops without a penalty weight may all look at"
            " the same; set one (0.01 in small models), or None to train them without"
        )


def _by_path(collection: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Returns what modules have left in a collection, by their paths and the name behind."""
    return flax.traverse_util.flatten_dict(dict(collection))
