"""The model card of a run: a README.md as the Hub of Hugging Face reads it. Imports no jax."""

import json
import shlex
from pathlib import Path
from typing import Any

from attnlab.errors import UserError, visible
from attnlab.records.files import check_folder, write_atomic
from attnlab.records.items import Items
from attnlab.records.json_kinds import read_file
from attnlab.records.manifest import Manifest
from attnlab.records.measures import RECORDED, is_finite
from attnlab.records.sealed import sweep_of

RESAMPLES = 1000
_TEXT = """\
# {name}

A `{system}` of attnlab {version}, trained for {task} on `{data}` with seed {seed}; used is step {step}.

| measure ({split} split) | value | 95 % interval over examples |
|---|---:|---:|
{rows}

Intervals are percentiles over {resamples:,} test sets drawn from the examples; how seeds differ is not in them. This command
{trains} it again and compares bit by bit (config {hash}):

    {command}
"""


def write_card(workdir: Path, folder: Path) -> Path:
    """Writes a model card, README.md, for the run in `workdir`, from its records alone, into
    `folder` (made if absent), and returns its path; raises `UserError` for a run without scores or
    if a README.md exists there.

    Raises:
      UserError: no run, one without scores, or a README.md is there.
    """
    manifest, file = Manifest.read(workdir), folder / "README.md"
    scored = [x for x in (workdir / "results.json", workdir / "valid.json") if x.exists()]
    results = read_file(scored[0], dict[str, Any], "put back a good copy") if scored else None
    if manifest is None or results is None:
        raise UserError(f"{workdir} holds no run with scores; train one there to its end")
    check_folder("--out", folder)
    if file.exists():
        raise UserError(f"{file} is there; remove it, or name another --out")
    config, split, trial = manifest.config, results["split"], sweep_of(workdir)
    path = workdir.resolve()
    name = path.name if trial is None else "/".join((trial.name, *path.parts[-2:]))
    named = results.get(RECORDED, results)
    scores = {key: results[key] for key in named if is_finite(results.get(key))}
    system, task, data = config["system"]["name"], config["task"], config["data"]["name"]
    measured = {
        "task": {"type": task.replace("_", "-")},
        "dataset": {"name": data, "type": data, "split": split},
        "metrics": [{"type": key, "value": value} for key, value in scores.items()],
    }
    index = [{"name": name, "results": [measured]}]
    head = {"library_name": "attnlab", "tags": ["attnlab", system], "model-index": index}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in head.items()]
    program, verb = (*manifest.command, "", "")[:2]
    ours = Path(program).stem in ("launch", "attnlab") and verb in ("train", "continue")
    command = manifest.command if ours else ["launch.py", "verify", str(workdir)]
    cores = manifest.devices.get("cores")  # which decide how sums round
    text = _TEXT.format(
        **{"name": name, "system": system, "task": task.replace("_", " "), "data": data},
        **{"split": split, "step": results["step"], "seed": config["seed"], "resamples": RESAMPLES},
        rows="\n".join(_rows(scores, Items.read(workdir) if split == "test" else None)),
        command=f"NPROC={cores} " * (not ours and cores is not None)
        + shlex.join([*["python"] * command[0].endswith(".py"), *command]),
        trains="has trained it, and `verify` trains" if ours else "trains",
        version=manifest.packages.get("attnlab", ""),
        hash=manifest.config_hash,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, visible(f"---\n{''.join(lines)}---\n\n{text}"))
    return file


def _rows(scores: dict[str, float], items: Items | None) -> list[str]:
    """Returns a row of a Markdown table, "| name | score | low to high |", for each of `scores`
    (name to value), with "-" for the bootstrap interval where the `Items` of the split are None or
    lack that score.
    """
    rows = []
    for name, value in scores.items():
        interval = "-"
        if items is not None and name in items.rules:
            interval = " to ".join(f"{x:.4g}" for x in items.interval(name, RESAMPLES))
        rows.append(f"| {name} | {value:.4g} | {interval} |")
    return rows
