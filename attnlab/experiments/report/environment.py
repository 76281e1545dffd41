"""Where the trials of a sweep ran, from their manifests: what all of them share, and in what they
differ.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.define import grouped
from attnlab.experiments.report.collect import Record, Records
from attnlab.pages.tables import Table
from attnlab.records import provenance
from attnlab.records.json_kinds import RUN, SWEEP
from attnlab.records.manifest import Manifest

_OWN = "your code: "


@dataclasses.dataclass(frozen=True)
class Environment:
    """Facts about the processes, by name ("jax", "python", "devices", "code", ...).

    Attributes:
      shared: what all trials have alike.
      differing: fact to value to the trials that have it.
    """

    shared: Mapping[str, str]
    differing: Mapping[str, Mapping[str, Sequence[str]]]


def environment(records: Sequence[Record]) -> Environment:
    """Returns an `Environment` of the facts in all trials' manifests: those that all trials share
    (of the user's code, all that have the fact), and those in which they differ, each with its
    values and the names of the trials of each value.
    """
    begun = [(run.seen.trial.name, _facts(run.manifest)) for run in records if run.manifest]
    shared: dict[str, str] = {}
    differing: dict[str, dict[str, list[str]]] = {}
    for name in dict.fromkeys(name for _, facts in begun for name in facts):
        by_value = grouped(
            (facts.get(name, "absent"), trial)
            for trial, facts in begun
            # code of the user's is needed by some variants only
            if name in facts or not name.startswith(_OWN)
        )
        if len(by_value) == 1:
            (shared[name],) = by_value
        else:
            differing[name] = by_value
    return Environment(shared, differing)


def shared(environment: Environment, records: Records) -> Table:
    """Returns a table of the facts that all trials share, with notes if nothing differs and on how
    many records are of an older version.
    """
    alike = ["Nothing recorded of the environment differs between trials."]
    notes = [] if environment.differing else alike
    manifests = [record.manifest for record in records.trials if record.manifest is not None]
    older = sum(manifest.version < RUN for manifest in manifests)
    if older or records.plan.version < SWEEP:
        notes.append(
            f"Records of version 1: {older} of {len(manifests)} trials"
            + ", and the sweep" * (records.plan.version < SWEEP)
            + "; what they do not say is read as docs/report.md has it."
        )
    rows = tuple(environment.shared.items())
    return Table("Environment", ("of all trials", ""), rows, notes=tuple(notes))


def differing(environment: Environment) -> Table | None:
    """Returns a table of the environment facts in which trials differ, a row for each value with
    the first trials that have it, or None if there are none.
    """
    rows = []
    for name, values in environment.differing.items():
        for value, trials in values.items():
            more = f" and {len(trials) - 4} more" * (len(trials) > 4)
            rows.append((name, value, ", ".join(trials[:4]) + more))
    title = "What differs between trials"
    return Table(title, ("", "value", "trials"), tuple(rows)) if rows else None


def _facts(manifest: Manifest) -> dict[str, str]:
    """Returns the facts of a manifest as texts by name: code, commit, Python, platform, devices,
    packages, digests of data and of the user's own code.
    """
    facts = {
        "code": version(manifest.code),
        "python": manifest.python,
        "platform": manifest.platform,
        "devices": ", ".join(f"{key} {value}" for key, value in manifest.devices.items()),
    }
    if manifest.code is not None and "tree" in manifest.code:
        facts["commit"] = f"{manifest.code.get('revision')!s:.12}"
    digests = provenance.digests(manifest.own_code).items()
    own_code = {f"{_OWN}{name}": digest[:12] for name, digest in digests}
    mixed = {
        f"{_OWN}{name}": (
            f"{change['was'] or 'none'!s:.12} until step {word['step']}, then"
            f" {own_code.get(f'{_OWN}{name}', 'none')}"
        )
        for word in provenance.accepted_changes(manifest.own_code)
        for name, change in word["changed"].items()
    }
    read = {f"{split} data": str(digest)[:12] for split, digest in manifest.data.items()}
    return facts | manifest.packages | read | own_code | mixed


def version(code: Mapping[str, Any] | None) -> str:
    """Returns a version of the code (`Manifest.code`) in words: equal for commits with the same
    package. Where a run of version 1 has no hash of the package it is the commit.
    """
    if code is None:
        return "not in a repository"
    name = f"package {code['tree']!s:.12}" if "tree" in code else f"{code.get('revision')!s:.12}"
    return f"{name}{' with changes' if code.get('dirty') else ''}"
