"""Does a change of structure change what is computed? The losses of the first 20 steps, the scores
after 50 and the number of parameters of every small config and of the quickstart's variants.

    python -m tests.training.first_losses --against tests/training/first_losses.json --only lstm
    python -m tests.training.first_losses --checkout EARLIER --record losses.json

Every config is trained in a process of its own, with few examples, as its file says but for the
sizes of data and batches. Of an earlier checkout the second command draws first values and dropout
under today's names (`renamed.py`): flax derives them from names, and 556cdde gave parts new ones.
`first_losses.json` was recorded so at a1b13e1, before the redesign of views, mixers, layers,
configs and tasks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = ("translation", "language_modelling", "classification", "inference", "g2p")
STEPS, FIRST = 50, 20
ROUNDING = (
    1e-4  # of scores after 50 steps: what a loss differs by in the seventh digit has grown by then
)
SHARED = [
    *(f"training.steps={STEPS}", "training.log_every=1", f"training.evaluate_every={STEPS}"),
    *("schedule.warmup=10", f"checkpoint.every={STEPS}", "batch.size=16", "data.examples=400"),
    *("data.valid=16", "data.test=32"),
]
DECODED = ("translation", "g2p")


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Name, config and settings of each."""
    for file in FILES:
        names = importlib.import_module(f"configs.{file}")._SYSTEMS
        for name in (one for one in names if not one.endswith(("_paper", "_base"))):
            greedy = ["decoding.method=greedy"] if file in DECODED else []
            yield f"{file}:{name}", f"configs/{file}.py:{name}", greedy
    quickstart = importlib.import_module("experiments.quickstart")
    base = quickstart.get_experiment().base
    sizes = {name: value for name, value in base.items() if name.startswith(("system", "batch"))}
    for name, own in {**quickstart.ATTENTIONS, "none": quickstart.NONE}.items():
        components = {key: own[key] for key in ("system", "system.attention") if key in own}
        given = {**components, **sizes, "decoding.method": "greedy", **own}
        said = [f"{key}={_text(value)}" for key, value in given.items()]
        yield f"quickstart:{name}", "configs/translation.py:rnnsearch", said


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def trained(config: str, settings: list[str], checkout: Path) -> dict[str, Any]:
    """What a run of the config found: its first losses, and the numbers of its results."""
    earlier = [] if checkout == ROOT else [str(Path(__file__).with_name("renamed.py"))]
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", f"--config={config}", f"--workdir={folder}/run"]
        words += [f"--config.{one}" for one in [*SHARED, *settings]]
        command = [sys.executable, *earlier, "launch.py", *words]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1:]}
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        results = json.loads((Path(folder) / "run" / "results.json").read_text())
    losses = [row["loss"] for row in rows if row["split"] == "train" and row["step"] <= FIRST]
    numbers = {
        name: value
        for name, value in results.items()
        if isinstance(value, int | float) and not name.endswith("seconds")
    }
    return {"losses": losses, "results": numbers}


def compared(before: dict[str, Any], now: dict[str, Any]) -> str:
    """How far two records of a config are apart, in words."""
    if "error" in now:
        return f"failed: {now['error']}"
    pairs = zip(before["losses"], now["losses"], strict=True)
    worst = max(abs(one - other) / abs(one) for one, other in pairs)
    others = [
        f"{name} {value:.6g} -> {now['results'].get(name, math.nan):.6g}"
        for name, value in before["results"].items()
        if not math.isclose(value, now["results"].get(name, math.nan), rel_tol=ROUNDING)
    ]
    return f"losses within {worst:.1e}; {', '.join(others) or 'all else the same'}"


def main() -> None:
    """Record, or compare with a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE", help="where to write what is found")
    parser.add_argument("--against", metavar="FILE", help="an earlier record")
    parser.add_argument("--checkout", metavar="FOLDER", type=Path, default=ROOT, help="another one")
    parser.add_argument("--only", default="", help="a regular expression for names")
    chosen = parser.parse_args()
    before = json.loads(Path(chosen.against).read_text()) if chosen.against else {}
    found = {}
    for name, config, settings in cases():
        if re.search(chosen.only, name):
            found[name] = trained(config, settings, chosen.checkout.resolve())
            said = compared(before[name], found[name]) if name in before else "recorded"
            print(f"{name:36s} {said}", flush=True)
    if chosen.record:
        Path(chosen.record).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
