"""What is trained: a candidate before and after its config is resolved, a trial of it, and their
ids. Dicts are as `plan.json` holds them, checked when it is read.

Needs neither jax nor numpy.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from attnlab.config.tree import adds_nothing
from attnlab.records.json_kinds import Finite, FolderName, Natural


class Met(TypedDict):
    """How near a candidate came to the budget: the count wanted and reached, with the knob at
    `value`; why not nearer, "" for nothing; of one that misses it, whether the user has accepted that.
    """

    wanted: Finite
    reached: Finite
    knob: str
    value: int
    matched: bool
    note: str
    accepted: NotRequired[bool]


class _Training(TypedDict):
    steps: Natural


class Resolved(TypedDict):
    """A whole resolved config; of it, what is read without jax."""

    training: _Training


@dataclasses.dataclass(frozen=True)
class Counted:
    """A training step beside its FLOPs.

    Attributes:
      transcendentals: exponentials, logarithms, tanh, roots and the like; None in plans of
        version 1.
      loops: places in the step that repeat until a condition holds: counted once each, so that
        these and the FLOPs are too low.
      idle: paths of the parameters that get no gradient, whatever the data is.
      examples: the mean over an epoch; None for running text, which has none, and in plans of version
        1.
    """

    transcendentals: Finite | None = None
    loops: Natural = 0
    idle: tuple[str, ...] = ()
    examples: Finite | None = None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A variant with one choice of the tuned settings, before its config is resolved.

    Attributes:
      id: see `candidate_id`; of a `Candidate` also the name of its folder.
      variant: the row of the report it is a candidate for.
      tuned: the tuned settings by their full names; empty where nothing is tuned.
      overrides: base, variant and tuned settings together; of a `Candidate` also the value of the
        budget solver.
    """

    id: FolderName
    variant: str
    tuned: Mapping[str, Any] = dataclasses.field(hash=False)
    overrides: Mapping[str, Any] = dataclasses.field(hash=False)


@dataclasses.dataclass(frozen=True)
class Candidate(Wanted):
    """A variant with one choice of the tuned settings, as it will be trained, with the counts of its
    training step.

    Attributes:
      config: the whole resolved config, with the first seed.
      parameters: their number.
      flops: of one training step, see `attnlab.experiments.plan.building`.
      budget: how near it came; None if there is no budget.
      code: the user's own code that the config names, module to hash (see
        `attnlab.records.provenance`); None in plans of version 1.
      wanted: the id of the `Wanted` it was made from; "" where that is its own, as it is without
        such code.
      promoted: with a search, whether it is the candidate of its variant that is trained with all
        seeds.
      counted: what else was counted of a training step.
      until: with a pruner, the step at which its first trial waits for the others of its round, 0
        before that is known; None for its end.
    """

    config: Resolved = dataclasses.field(hash=False)
    parameters: Natural
    flops: Finite
    budget: Met | None = dataclasses.field(default=None, hash=False)
    promoted: bool = False
    code: Mapping[str, str] | None = dataclasses.field(default=None, hash=False)
    wanted: str = ""
    counted: Counted = Counted()
    until: Natural | None = None

    @property
    def percent_off(self) -> float:
        """Returns by how many per cent what its budget reached is off what is wanted, away from 0
        to two decimals, so that it is never nearer than this says; 0 without a budget.
        """
        met = self.budget
        off = 1e4 * (met["reached"] / met["wanted"] - 1) if met else 0.0
        return math.copysign(math.ceil(abs(off) - 1e-9), off) / 100


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate and a seed.

    Attributes:
      candidate: what is trained.
      seed: of parameters, order of the data and dropout.
    """

    candidate: Candidate
    seed: int

    @property
    def name(self) -> str:
        """ "additive-3f2a9c1b/seed0"."""
        return f"{self.candidate.id}/seed{self.seed}"

    @property
    def config(self) -> dict[str, Any]:
        """The candidate's config with this seed, nested plain values; `attnlab.config.from_dict`
        makes a config of it.
        """
        return {**self.candidate.config, "seed": self.seed}

    def workdir(self, directory: str | Path) -> Path:
        """Returns the folder in which the trial is trained, below the sweep folder `directory`."""
        return Path(directory) / "trials" / self.candidate.id / f"seed{self.seed}"


def candidate_id(config: str, overrides: Mapping[str, Any], names: Iterable[str]) -> str:
    """Returns a readable, stable id: a slug of `names`, and 8 hex digits of a hash of config file
    and overrides, which determine the training except for the seed.

    It does not depend on the order of the overrides (where one is a pattern, they are in that of
    their layers), the order of the settings in a name, the rest of the experiment, or newer
    settings that have their default (`tree.NEWER`).

    Args:
      config: config file and argument.
      overrides: base, variant and tuned settings together, without what a budget solver finds.
      names: of the variant and of the tuned settings; "" is left out.
    """
    settings = {name: value for name, value in overrides.items() if not adds_nothing(name, value)}
    parts = [word for name in names for word in sorted(name.split(", ")) if word]
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(parts)).strip("-.")[:60].rstrip("-.")
    return f"{slug or 'candidate'}-{_digest({'config': config, 'overrides': settings})}"


def with_code(identity: str, code: Mapping[str, str]) -> str:
    """Returns the id with its hash digits computed anew from them and the hashes of the user's own
    code (module to hash); unchanged if there is no such code.
    """
    if not code:
        return identity
    slug, _, digits = identity.rpartition("-")
    return f"{slug}-{_digest([digits, code])}"


def _digest(meaning: object) -> str:
    """Returns 8 hex digits of the SHA-256 of a JSON value, whatever the order of its keys."""
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
