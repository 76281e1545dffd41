"""Folders of sweeps that were never run, with known numbers in them, written as plain JSON by the
contract and by nobody's `write`.
"""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.config.tree import config_hash

STEPS = 12
Scores = Mapping[str, Sequence[float]]
SCORES: Scores = {
    "additive": (0.91, 0.93, 0.92, 0.94),
    "general": (0.90, 0.935, 0.915, 0.93),
    "location": (0.41, 0.45, 0.40, 0.44),
}
"""The measure of each variant on the test split, by seed."""
APART: Scores = {
    "a": (0.9, 0.92, 0.91, 0.94),
    "b": (0.5, 0.53, 0.5, 0.52),
    "c": (0.4, 0.44, 0.42, 0.41),
}
"""Scores that lie apart, and nearly in the same order for every seed."""
TIME = "2026-01-01T00:00:00+00:00"


def claim(
    weights: Mapping[str, float], at_least: float = 0.0, text: str = "It is so.", **on: str
) -> dict[str, Any]:
    """A claim of one contrast, as `plan.json` has it."""
    return {"statement": text, "contrasts": [{"weights": weights, "at_least": at_least, **on}]}


def budget(to: str, knob: str = "system.decoder", **changes: Any) -> dict[str, Any]:
    """A budget of parameters, as `plan.json` has it."""
    return {"match": "parameters", "within": 0.01, "knob": knob, "to": to, "knobs": {}, **changes}


def met(reached: int, wanted: int = 100, **changes: Any) -> dict[str, Any]:
    """How a candidate meets a budget, as `plan.json` has it."""
    result = {"knob": "system.width", "value": 8, "matched": False, "note": ""}
    return {"wanted": wanted, "reached": reached, **result, **changes}


def start(time: float, step: int = 0, **changes: Any) -> dict[str, Any]:
    """The record that an attempt has begun."""
    return {"event": "start", "time": time, "pid": 1, "host": "h", "step": step, **changes}


def end(time: float, seconds: float | None, **changes: Any) -> dict[str, Any]:
    """The record that an attempt has ended, well unless `changes` say otherwise."""
    well = {"event": "end", "time": time, "state": "done", "step": STEPS, "message": ""}
    return {**well, "seconds": seconds, **changes}


def scored_on(directory: Path, **counts: int) -> None:
    """Lets the results of variants say on how many sentences they are."""
    for variant, count in counts.items():
        exact = {"better": "max", "low": 0.0, "high": 1.0, "of": "sentences", "count": count}
        for path in directory.glob(f"trials/{variant}-*/*/results.json"):
            write(path, {**json.loads(path.read_text()), "measures": {"exact": exact}})


CLAIM = claim({"additive": 1.0, "location": -1.0}, 0.3, "Content beats location.")
# One dark and one light cell.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAADRSSBWAAAAC0lEQVR4nGNg+M8AAAICAQB7CYF4AAAAAElFTkSuQmCC"
)


def sweep(directory: Path, scores: Scores = SCORES, *, final: bool = True, **changes: Any) -> Path:
    """A finished sweep whose variants have these scores on the test split, one for each seed.

    Args:
      directory: made.
      scores: variant to the values of the measure "exact" by seed; NaN for a trial that diverged.
      final: the choice is made and the chosen trials are scored on the test split.
      **changes: fields of `plan.json`; "tuned" is a mapping of values of `schedule.peak` to what
        each adds to the validation loss, "settings" variant to further settings of its own,
        "test_data" variant to the digest of the test split it was scored on.
    """
    tuned = changes.pop("tuned", {None: 0.0})
    settings = changes.pop("settings", {})
    test_data = changes.pop("test_data", {})
    seeds = list(range(len(next(iter(scores.values())))))
    pairs = [(variant, peak) for variant in scores for peak in tuned]
    made = {pair: _candidate(*pair, settings.get(pair[0], {})) for pair in pairs}
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
                loss, test = 2.0 - value + added, final and peak == best
                workdir = trial(directory, candidate, seed, value, loss, test=test)
                if variant in test_data:
                    look = {"time": TIME, "data": {"test": test_data[variant]}}
                    write(workdir / "look.json", look)
            if peak == best:
                chosen[variant] = {"candidate": candidate["id"], "whole": True, "scores": {}}
    if final:
        choice = {"made": TIME, "metric": "loss", "mode": "min", "chosen": chosen}
        write(directory / "choice.json", choice)
    return directory


def trial(
    directory: Path, candidate: Any, seed: int, exact: float, loss: float, *, test: bool
) -> Path:
    """The folder of a trial; one whose score is NaN diverged after half of its steps."""
    workdir = directory / "trials" / candidate["id"] / f"seed{seed}"
    failed = exact != exact
    last = STEPS // 2 if failed else STEPS
    state, message = ("diverged", "loss nan at step 6") if failed else ("done", "")
    begin = start(100.0, slot=0, cores=[0], devices={})
    costs = {"peak_bytes": 300 * 2**20 + seed, "first_step_seconds": 4.5}
    stop = end(130.5, 30.5, state=state, step=last, message=message, **costs)
    lines(workdir / "events.jsonl", [begin, stop])
    write(workdir / "manifest.json", manifest({**candidate["config"], "seed": seed}))
    steps = range(3, last + 1, 3)
    records: list[dict[str, Any]] = []
    for step in steps:
        worse = 0.1 * (STEPS - step)
        records.append({"step": step, "split": "train", "loss": 0.1 + worse, "tokens": 200.0})
        if not failed:
            scores = {"loss": loss + worse, "exact": max(0.0, exact - worse)}
            records.append({"step": step, "split": "valid", **scores})
    lines(workdir / "metrics.jsonl", records)
    pace: list[dict[str, Any]] = []
    for step in steps:
        took = 0.01 * (1 + seed) + 0.001 * (step == 3)
        pace.append({"step": step, "time": 100.0 + step, "step_seconds": took})
    lines(workdir / "timing.jsonl", [{"step": 1, "time": 100.0, "compile_seconds": 3.0}, *pace])
    if not failed:
        scores = {"loss": loss, "exact": exact - 0.01}
        write(workdir / "valid.json", {"split": "valid", "step": STEPS, **scores})
    if test and not failed:
        scores = {"exact": exact, "loss": loss + 0.05}
        signature = {"bleu_signature": "nrefs:1"}
        write(workdir / "results.json", {"split": "test", **scores, **signature, "step": STEPS})
        pairs = (("3 May <1967>", "1967-05-03"), ("4 May 1968", "1968-05-04"))
        examples = [{"source": source, "target": target} for source, target in pairs]
        write(workdir / "examples.json", {"outputs": "translations.txt", "examples": examples})
        first = "1967-05-03" if exact > 0.5 else "1967-03-05"
        (workdir / "translations.txt").write_text(f"{first}\n1968-05-04\n")
        (workdir / "maps").mkdir()
        for name in ("test0-decoder_0-cross", "test0-decoder_0-self", "test1-decoder_0-cross"):
            (workdir / "maps" / f"{name}_attention.png").write_bytes(PNG)
    return workdir


def workdir(directory: Path, variant: str, seed: int) -> Path:
    """The folder of a trial of a variant without tuned settings."""
    return directory / "trials" / _candidate(variant, None)["id"] / f"seed{seed}"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file, its folder made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def edit(path: Path, **fields: Any) -> None:
    """A JSON file with other fields."""
    write(path, {**json.loads(path.read_text()), **fields})


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Any]:
    """The content of a JSON file, which is written back with all that has changed in it."""
    content = json.loads(path.read_text())
    yield content
    write(path, content)


def edit_candidates(directory: Path, **fields: Any) -> None:
    """The plan of a sweep with other fields in all of its candidates."""
    with changing(directory / "plan.json") as plan:
        plan["candidates"] = [{**candidate, **fields} for candidate in plan["candidates"]]


def look(event: str = "test", **own: Any) -> dict[str, Any]:
    """A line of `looks.jsonl`: a choice, or a reading of the test split for seeds."""
    record = {"event": event, "time": TIME, "plan": "p", "seeds": [0, 1, 2], "code": None}
    scored = {"candidate": "a-0a1b2c3d", "scored": own.get("seeds", [0, 1, 2])}
    return {**record, **(scored if event == "test" else {}), **own}


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
        "created": TIME,
    }


def _candidate(variant: str, peak: float | None, own: Any = None) -> dict[str, Any]:
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


def manifest(config: dict[str, Any]) -> dict[str, Any]:
    """What `manifest.json` holds of a run with this config."""
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
        "created": TIME,
    }
