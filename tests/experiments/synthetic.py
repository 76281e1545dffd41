"""Folders of sweeps that were never run, with known numbers in them, written as plain JSON by the
contract and by nobody's `write`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.config.tree import config_hash

STEPS = 12
SCORES: Mapping[str, Sequence[float]] = {
    "additive": (0.91, 0.93, 0.92, 0.94),
    "general": (0.90, 0.935, 0.915, 0.93),
    "location": (0.41, 0.45, 0.40, 0.44),
}
"""The measure of each variant on the test split, by seed."""
CLAIM = {
    "statement": "Content beats location.",
    "contrasts": [{"weights": {"additive": 1.0, "location": -1.0}, "at_least": 0.3}],
}
# One dark and one light cell.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAADRSSBWAAAAC0lEQVR4nGNg+M8AAAICAQB7CYF4AAAAAElFTkSuQmCC"
)


def sweep(
    directory: Path,
    scores: Mapping[str, Sequence[float]] = SCORES,
    *,
    final: bool = True,
    **changes: Any,
) -> Path:
    """A finished sweep whose variants have these scores on the test split, one for each seed.

    Args:
      directory: made.
      scores: variant to the values of the measure "exact" by seed; NaN for a trial that diverged.
      final: the choice is made and the chosen trials are scored on the test split.
      **changes: fields of `plan.json`; "tuned" is a mapping of values of `schedule.peak` to what
        each adds to the validation loss, "settings" variant to further settings of its own,
        "test_data" variant to the digest of the test split it was scored on.
    """
    tuned, settings, test_data = (
        changes.pop("tuned", {None: 0.0}),
        changes.pop("settings", {}),
        changes.pop("test_data", {}),
    )
    seeds = list(range(len(next(iter(scores.values())))))
    made = {
        (variant, peak): _candidate(variant, peak, settings.get(variant, {}))
        for variant in scores
        for peak in tuned
    }
    plan = {**_plan(scores, seeds), "candidates": list(made.values()), **changes}
    for variant, own in settings.items():
        plan["variants"][variant] |= own
    write(directory / "plan.json", plan)
    chosen: dict[str, Any] = {}
    best = min(tuned, key=lambda peak: tuned[peak])
    for variant, values in scores.items():
        for peak, added in tuned.items():
            candidate = made[variant, peak]
            for seed, value in zip(seeds, values, strict=True):
                workdir = trial(
                    directory,
                    candidate,
                    seed,
                    value,
                    2.0 - value + added,
                    test=final and peak == best,
                )
                if variant in test_data:
                    write(
                        workdir / "look.json",
                        {"time": "2026-01-01T00:00:00+00:00", "data": {"test": test_data[variant]}},
                    )
            if peak == best:
                chosen[variant] = {"candidate": candidate["id"], "whole": True, "scores": {}}
    if final:
        write(
            directory / "choice.json",
            {
                "made": "2026-01-01T00:00:00+00:00",
                "metric": "loss",
                "mode": "min",
                "chosen": chosen,
            },
        )
    return directory


def trial(
    directory: Path,
    candidate: Mapping[str, Any],
    seed: int,
    exact: float,
    loss: float,
    *,
    test: bool,
) -> Path:
    """The folder of a trial; one whose score is NaN diverged after half of its steps."""
    workdir = directory / "trials" / candidate["id"] / f"seed{seed}"
    failed = exact != exact
    last = STEPS // 2 if failed else STEPS
    begin: dict[str, Any] = {
        "event": "start",
        "time": 100.0,
        "pid": 1,
        "host": "h",
        "slot": 0,
        "cores": [0],
        "devices": {},
        "step": 0,
    }
    end = {
        "event": "end",
        "time": 130.5,
        "state": "diverged" if failed else "done",
        "step": last,
        "seconds": 30.5,
    }
    end |= {
        "peak_bytes": 300 * 2**20 + seed,
        "first_step_seconds": 4.5,
        "message": "loss nan at step 6" if failed else "",
    }
    lines(workdir / "events.jsonl", [begin, end])
    write(workdir / "manifest.json", _manifest({**candidate["config"], "seed": seed}))
    steps = range(3, last + 1, 3)
    records: list[dict[str, Any]] = []
    for step in steps:
        worse = 0.1 * (STEPS - step)
        records.append({"step": step, "split": "train", "loss": 0.1 + worse, "tokens": 200.0})
        if not failed:
            records.append(
                {
                    "step": step,
                    "split": "valid",
                    "loss": loss + worse,
                    "exact": max(0.0, exact - worse),
                }
            )
    lines(workdir / "metrics.jsonl", records)
    pace = [
        {
            "step": step,
            "time": 100.0 + step,
            "step_seconds": 0.01 * (1 + seed) + 0.001 * (step == 3),
        }
        for step in steps
    ]
    lines(workdir / "timing.jsonl", [{"step": 1, "time": 100.0, "compile_seconds": 3.0}, *pace])
    if not failed:
        write(
            workdir / "valid.json",
            {"split": "valid", "step": STEPS, "loss": loss, "exact": exact - 0.01},
        )
    if test and not failed:
        write(
            workdir / "results.json",
            {
                "split": "test",
                "exact": exact,
                "loss": loss + 0.05,
                "bleu_signature": "nrefs:1",
                "step": STEPS,
            },
        )
        examples = [
            {"source": "3 May <1967>", "target": "1967-05-03"},
            {"source": "4 May 1968", "target": "1968-05-04"},
        ]
        write(workdir / "examples.json", {"outputs": "translations.txt", "examples": examples})
        (workdir / "translations.txt").write_text(
            f"{'1967-05-03' if exact > 0.5 else '1967-03-05'}\n1968-05-04\n"
        )
        (workdir / "maps").mkdir()
        for name in (
            "test0-decoder_0-cross_attention",
            "test0-decoder_0-self_attention",
            "test1-decoder_0-cross_attention",
        ):
            (workdir / "maps" / f"{name}.png").write_bytes(PNG)
    return workdir


def workdir(directory: Path, variant: str, seed: int) -> Path:
    """The folder of a trial of a variant without tuned settings."""
    return directory / "trials" / _candidate(variant, None)["id"] / f"seed{seed}"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file, its folder made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """A file with a JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def _plan(variants: Mapping[str, Any], seeds: list[int]) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "made",
        "file": "experiments/made.py",
        "question": "Does the score <matter> & how much?",
        "config": "configs/translation.py:rnnsearch",
        "base": {"training.steps": STEPS},
        "variants": {variant: {"system.attention.score": variant} for variant in variants},
        "tune": [],
        "seeds": seeds,
        "baseline": next(iter(variants)),
        "select": {"metric": "loss", "mode": "min"},
        "measure": {"metric": "exact", "mode": "max"},
        "budget": None,
        "claim": CLAIM,
        "search": None,
        "hash": "0123456789ab",
        "created": "2026-01-01T00:00:00+00:00",
    }


def _candidate(
    variant: str, peak: float | None, own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    tuned = {} if peak is None else {"schedule.peak": peak}
    settings = {"system.attention.score": variant, **(own or {}), **tuned}
    return {
        "id": f"{variant}-{'' if peak is None else f'peak-{peak}-'}0a1b2c3d",
        "variant": variant,
        "tuned": tuned,
        "overrides": {"training.steps": STEPS, **settings},
        "config": _nested({"seed": 0, "training.steps": STEPS, **settings}),
        "parameters": 12345 + len(variant),
        "flops": 2.5e9,
        "budget": None,
    }


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested objects."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *above, last = name.split(".")
        node = found
        for part in above:
            node = node.setdefault(part, {})
        node[last] = value
    return found


def _manifest(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "config": config,
        "config_hash": config_hash(config),
        "code": {"revision": "f" * 40, "dirty": False},
        "packages": {"jax": "0.10.2", "flax": "0.12.8"},
        "python": "3.11.7",
        "platform": "Linux",
        "devices": {"kind": "cpu", "count": 1, "processes": 1},
        "data": {"train": "a" * 64, "valid": "b" * 64},
        "command": ["launch.py"],
        "created": "2026-01-01T00:00:00+00:00",
    }
