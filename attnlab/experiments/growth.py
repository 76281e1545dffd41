"""What may change between two runs of `sweep` in one folder: a plan may grow, and what finished trials mean stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attnlab import provenance
from attnlab.errors import UserError
from attnlab.experiments.plan import Candidate, Plan
from attnlab.training.manifest import Manifest, differences
from attnlab.training.sealed import CHOICE

FIXED = ("base", "tune", "search", "select", "measure", "budget", "baseline")
"""What the choice was made with, and what the test split is read for; it stays once the choice is made. So do the claim's contrasts, old
variants and old seeds."""


def check_growth(old: Plan, new: Mapping[str, Any], directory: Path) -> None:
    """Whether the experiment `new` may be planned where `old` was.

    Before the choice is made everything but the experiment's name and config may change; from then on variants and further
    seeds may be added, and words may be mended.

    Args:
      old: the plan that is there.
      new: see `loading.definition`.
      directory: the sweep folder.

    Raises:
      UserError: what differs, planned and now.
    """
    for key in ("name", "config"):
        if getattr(old, key) != new[key]:
            raise UserError(
                f"{directory} holds another experiment: its {key} is {getattr(old, key)!r}, here {new[key]!r}; use another --dir"
            )
    if not (directory / CHOICE).exists():
        return
    changed = [*_changed(old, new), *_removed(old, new)]
    if changed:
        raise UserError(f"{directory}: its choice is made, so this can no longer change: {'; '.join(changed)}. Use another --dir")


def check_begun(candidate: Candidate, directory: Path) -> None:
    """Whether the trials of a candidate that were begun, if any, have the config that they would have now.

    Raises:
      UserError: they have another one, in which fields.
    """
    for path in sorted((directory / "trials" / candidate.id).glob("seed*/manifest.json")):
        manifest = Manifest.read(path.parent)
        wrong = differences(manifest.config, candidate.config, ignore=("parallel", "seed")) if manifest else []
        if wrong:
            raise UserError(
                f"variant {candidate.variant!r}: {path.parent} was trained with another config: {'; '.join(wrong[:3])}. "
                f"Use another --dir, or remove that folder to train it again"
            )


def check_code(plan: Plan, directory: Path, accept: bool = False) -> bool:
    """Whether the user's own code of any candidate is not what the plan was made with.

    Args:
      plan: that is there.
      directory: the sweep folder.
      accept: to go on with trials that were trained with other code; without any such trial nobody has to be asked.

    Raises:
      Changed: trials of a candidate were trained with other code, and that is not accepted.
    """
    other = False
    for candidate in plan.candidates:
        code = provenance.of(candidate.config, accept=accept)
        if (candidate.code or {}) == code.digests:
            continue
        other = other or candidate.code is not None
        for workdir in begun(candidate, directory):
            manifest = Manifest.read(workdir)
            record = manifest.own_code if manifest else None
            provenance.check(record, code, workdir)
            other = other or bool(provenance.changes(record, code))
    return other


def begun(candidate: Candidate, directory: Path) -> list[Path]:
    """The folders of its trials in which something is recorded or saved."""
    folders = (path.parent for path in sorted((directory / "trials" / candidate.id).glob("seed*/manifest.json")))
    return [one for one in folders if provenance.saved_step(one) is not None or any(map(_filled, one.glob("metrics.jsonl")))]


def _filled(file: Path) -> bool:
    return file.stat().st_size > 0


def _changed(old: Plan, new: Mapping[str, Any]) -> Iterator[str]:
    pairs = [(key, getattr(old, key), new[key]) for key in FIXED]
    pairs.append(("claim", _contrasts(old.claim), _contrasts(new["claim"])))
    for key, before, now in pairs:
        if _plain(before) != _plain(now):
            yield f"{key}: planned {_plain(before)}, now {_plain(now)}"


def _removed(old: Plan, new: Mapping[str, Any]) -> Iterator[str]:
    for name, overrides in old.variants.items():
        if name not in new["variants"]:
            yield f"variant {name!r}: planned, now gone"
        elif _plain(overrides) != _plain(new["variants"][name]):
            yield f"variant {name!r}: planned {_plain(overrides)}, now {_plain(new['variants'][name])}"
    if list(old.seeds) != list(new["seeds"])[: len(old.seeds)]:  # the first one is a search's
        yield f"seeds: planned {list(old.seeds)}, now {list(new['seeds'])}; further ones go to the end"


def _contrasts(claim: Mapping[str, Any] | None) -> Any:
    return claim and claim["contrasts"]


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
