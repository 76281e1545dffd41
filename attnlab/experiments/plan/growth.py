"""What may change between two runs of `sweep` in one folder: a plan may grow, but the meaning of
finished trials must not change. Imports no jax.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attnlab.config import find_file
from attnlab.errors import UserError
from attnlab.experiments import define
from attnlab.experiments.plan.candidate import Candidate
from attnlab.experiments.plan.plan import Plan
from attnlab.records import provenance
from attnlab.records.manifest import Manifest, changed
from attnlab.records.sealed import CHOICE

FIXED = ("base", "tune", "search", "select", "measure", "budget", "baseline", "looks")
"""What the choice was made with, and what the test split is read for; it stays once the choice is
made. So do the claim's contrasts, old variants and old seeds.
"""


FLAG = "--change-plan"
"""The flag by which a command line says that trials that have begun may be left out."""


def unchanged_plan(file: str, directory: Path, changes: define.Changes) -> Plan | None:
    """Returns the plan in a sweep folder if it is still that of the experiment file, None if a new
    one must be made; raises `UserError` if trials there would no longer fit, and prints a note if
    the plan does not record the user's code.

    Raises:
      UserError: a mistake in the file, or the folder holds trials that no longer fit.
    """
    stated = define.definition(define.load_experiment(file, changes), file)
    old = Plan.read(directory)
    if old is None:
        return None
    defined = planned_before(stated, old)
    other = check_code(old, directory, changes.accept)
    codes = [provenance.code(made.config) for made in old.candidates if made.code is None]
    if unknown := sorted({name for code in codes for name in code.modules}):
        what = f"so nobody knows whether {', '.join(unknown)} is the same"
        note = f"note: {directory} does not say what code it was planned with"
        print(f"{note}, {what}", file=sys.stderr)
    if old.hash == define.definition_hash(defined):
        return None if other or changes.unmatched > old.unmatched else old
    check_growth(old, defined, directory)
    return None


def own_files(plan: Plan) -> provenance.Code:
    """Returns a `provenance.Code` of the experiment file and the config file of a plan with the
    user's modules that they import.
    """
    return provenance.code(
        config_file=find_file(plan.config.partition(":")[0], "config file"),
        experiment_file=find_file(plan.file.partition(":")[0], "experiment file"),
    )


def planned_before(defined: Mapping[str, Any], old: Plan | None) -> dict[str, Any]:
    """Returns a copy of the definition `defined` with the settings of its base and variants spelt
    as in the plan `old` where they mean the same (the text "60" of a command line is the 60 of a
    file); a plain copy if `old` is None.
    """
    if old is None:
        return dict(defined)
    variants = {
        name: define.spelt(point, old.variants.get(name, {}))
        for name, point in defined["variants"].items()
    }
    return {**defined, "base": define.spelt(defined["base"], old.base), "variants": variants}


def check_kept(old: Plan, new: Plan, directory: Path) -> None:
    """Raises `UserError`, with the reasons, if the new plan leaves out trials of the old one that
    have begun in `directory`.

    Raises:
      UserError: some are left out, with what has changed.
    """
    ids = {candidate.id for candidate in new.candidates}
    begun_ones = [path for candidate in old.candidates for path in begun(candidate, directory)]
    seeds = {f"seed{seed}" for seed in new.seeds}
    lost = [path for path in begun_ones if path.parent.name not in ids or path.name not in seeds]
    if lost:
        news = "; ".join(_news(old, new)) or "the config file or code has changed"
        raise UserError(
            f"{directory}: of {len(begun_ones)} trials that have begun, {len(lost)} would be left"
            f" out: {news}. Give what was given before, or {FLAG} to go on without them, or another"
            " --dir"
        )


def _news(old: Plan, new: Plan) -> Iterator[str]:
    """Yields texts that say what differs between two plans (settings of base and variants, `tune`,
    `search`, `budget`, `select`, and seeds that are gone), so that candidates or seeds of the old
    one are not in the new one.
    """
    for name in {**old.base, **new.base}:
        if (before := old.base.get(name)) != (now := new.base.get(name)):
            texts = (
                "the config's own" if value is None else define.text(value)
                for value in (before, now)
            )
            yield f"{name}: {', now '.join(texts)}"
    yield from _changed_variants(old, new.variants)
    for key in ("tune", "search", "budget", "select"):
        if _plain(getattr(old, key)) != _plain(getattr(new, key)):
            yield f"{key} has changed"
    if gone := [str(seed) for seed in old.seeds if seed not in new.seeds]:
        yield f"seeds {', '.join(gone)} are gone" if gone[1:] else f"seed {gone[0]} is gone"
    elif old.search is not None and old.seeds[0] != new.seeds[0]:
        yield f"the first seed, which searches, was {old.seeds[0]} and is {new.seeds[0]}"


def check_growth(old: Plan, new: Mapping[str, Any], directory: Path) -> None:
    """Raises `UserError` if an experiment's new definition has another name or config than the plan
    in a folder, or, once the choice is made, changes more than texts and added variants or seeds.

    Before the choice is made everything but the experiment's name and config may change; from then
    on variants and seeds may be added, and texts may be corrected.

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
                f"{directory} holds another experiment: its {key} is {getattr(old, key)!r}, here"
                f" {new[key]!r}; use another --dir"
            )
    if not (directory / CHOICE).exists():
        return
    changed = [*_changed_fields(old, new), *_changed_variants(old, new["variants"])]
    planned, seeds = list(old.seeds), list(new["seeds"])
    if planned != seeds[: len(planned)]:  # the first one is a search's
        changed.append(f"seeds: planned {planned}, now {seeds}; further ones go to the end")
    if changed:
        raise UserError(
            f"{directory}: its choice is made, so this can no longer change: {'; '.join(changed)}."
            " Use another --dir"
        )


def check_begun(candidate: Candidate, directory: Path) -> None:
    """Raises `UserError` if a trial of a candidate has begun in `directory` with another config
    than the candidate's, apart from `parallel` and `seed`; the message names the settings.

    Raises:
      UserError: they have another one; the message names the fields.
    """
    for path in sorted((directory / "trials" / candidate.id).glob("seed*/manifest.json")):
        manifest = Manifest.read(path.parent)
        ignore = ("parallel", "seed")
        if manifest and (wrong := changed(manifest.config, candidate.config, ignore=ignore)):
            raise UserError(
                f"variant {candidate.variant!r}: {path.parent} was trained with another config:"
                f" {'; '.join(wrong[:3])}. Use another --dir, or remove that folder to train it"
                " again"
            )


def check_code(plan: Plan, directory: Path, accept: bool = False) -> bool:
    """Returns whether the user's own code of any candidate has changed since the plan was made or a
    trial began; raises `Changed` if a trial has begun with other code, unless `accept`.

    Args:
      plan: that is there.
      directory: the sweep folder.
      accept: continue with trials that were trained with other code; not needed if there are none.

    Raises:
      Changed: trials of a candidate were trained with other code, and that is not accepted.
    """
    other = False
    for candidate in plan.candidates:
        code = provenance.code(candidate.config, accept=accept)
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
    """Returns the folders of a candidate's trials that have a metric record or a saved checkpoint."""
    manifests = sorted((directory / "trials" / candidate.id).glob("seed*/manifest.json"))
    return [
        path.parent
        for path in manifests
        if provenance.saved_step(path.parent) is not None
        or any(file.stat().st_size for file in path.parent.glob("metrics.jsonl"))
    ]


def _changed_fields(old: Plan, new: Mapping[str, Any]) -> Iterator[str]:
    """Yields a text for each field, of those that are fixed once the choice is made, that differs
    between a plan and a new definition.
    """
    for key in (*FIXED, "claim"):
        before, now = getattr(old, key), new[key]
        if key == "claim":
            before, now = (claim and claim["contrasts"] for claim in (before, now))
        if _plain(before) != _plain(now):
            yield f"{key}: planned {_plain(before)}, now {_plain(now)}"


def _changed_variants(old: Plan, variants: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields a text for each variant of a plan that the new `variants` (name to overrides) lack or
    change.
    """
    for name, overrides in old.variants.items():
        if name not in variants:
            yield f"variant {name!r} is gone"
        elif (before := _plain(overrides)) != (now := _plain(variants[name])):
            yield f"variant {name!r}: planned {before}, now {now}"


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
