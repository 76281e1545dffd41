"""What the queue costs and gains: a sweep of 12 small trials in two one-core slots, against one
slot that has both cores.

    python -m benchmarks.sweeps --steps=300

Both sweeps are the same experiment, four scores with three seeds on the embedded dates, each in a
new folder, after one that fills the compile cache. Prints the seconds of each sweep's trials (first
start to last end, without planning, evaluation and report) and their ratio, target 0.55; and per
trial of the two-slot sweep the launcher's overhead, target 3 s: from the end of the trial before it
in its slot to its own end, less compiling and less its steps. Evaluation on the validation split
and checkpoints count as overhead here. It needs two cores that nothing else is using.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.progress import table
from attnlab.records import attempts
from attnlab.records.stream import read_records
from benchmarks import rounds

RATIO, OVERHEAD = 0.55, 3.0
ROOT = Path(__file__).parents[1]
FILE = """
from attnlab.experiments import Experiment, rows

SMALL = {{"system.embedding": 32, "system.encoder": 32, "system.decoder": 64, "system.maxout": 32, "batch.buckets": (32,)}}
TRAINING = {{"training.steps": {steps}, "training.log_every": 1, "training.evaluate_every": 0, "schedule.warmup": 20}}
DATA = {{"data.valid": 64, "data.test": 8, "decoding.method": "greedy", "checkpoint.every": 0}}


def get_experiment(argument=""):
    scores = {{name: {{"system.attention.score": name}} for name in ("additive", "general", "dot", "location")}}
    base = {{**SMALL, **TRAINING, **DATA}}
    return Experiment(question="How long?", config="configs/translation.py:rnnsearch", compare=rows(scores), base=base, seeds=(0, 1, 2))
"""


def main() -> None:
    """Run the three sweeps and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300, help="of each trial")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    about = rounds.machine()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "timed.py").write_text(FILE.format(steps=chosen.steps))
        os.environ["ATTNLAB_CACHE"] = str(Path(folder) / "cache")
        cold, two, single = (
            sweep(Path(folder), name, slots)
            for name, slots in (("cold", 2), ("two", 2), ("one", 1))
        )
    ratio, overhead = two["seconds"] / single["seconds"], statistics.median(two["overheads"])
    rows = [
        ("12 trials, two slots of one core (s)", two["seconds"], "", ""),
        ("12 trials, one slot of two cores (s)", single["seconds"], "", ""),
        ("ratio", ratio, f"<= {RATIO}", "reached" if ratio <= RATIO else "missed"),
        (
            "overhead of a trial, median (s)",
            overhead,
            f"<= {OVERHEAD}",
            "reached" if overhead <= OVERHEAD else "missed",
        ),
        ("overhead of a trial, most (s)", max(two["overheads"]), "", ""),
        (
            "first step of a first seed, empty cache, median (s)",
            statistics.median(cold["first"]),
            "",
            "",
        ),
        (
            "first step of a later seed, empty cache, median (s)",
            statistics.median(cold["later"]),
            "",
            "",
        ),
    ]
    table(
        f"a sweep; {about['cores']} cores, load before {about['load_before']}",
        ("figure", "value", "target", ""),
        rows,
    )
    rounds.save(chosen.json, {"cold": cold, "two": two, "one": single, "ratio": ratio, **about})


def sweep(folder: Path, name: str, slots: int) -> Mapping[str, Any]:
    """Run the experiment in a new folder; its figures.

    Raises:
      UserError: the command fails.
    """
    line = [
        sys.executable,
        str(ROOT / "launch.py"),
        "sweep",
        "timed.py",
        f"--dir={name}",
        f"--slots={slots}",
        "--no-final",
    ]
    began = time.perf_counter()
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"exit code {done.returncode} of: {' '.join(line)}: {done.stderr}")
    figures = measured(folder / name)
    print(
        f"{name}: {figures['seconds']:.1f} s of trials, {time.perf_counter() - began:.1f} s in all",
        file=sys.stderr,
        flush=True,
    )
    return figures


def measured(directory: Path) -> dict[str, Any]:
    """Seconds from the first start to the last end, overheads, and seconds to the first step of
    first and later seeds.
    """
    plan = Plan.read(directory)
    assert plan is not None
    trials: list[tuple[Any, ...]] = [
        (trial, *attempts.read(trial.workdir(directory))) for trial in plan.trials()
    ]
    trials.sort(key=lambda row: row[1]["time"])
    overheads: list[float] = []
    before = {row[1]["slot"]: row[1]["time"] for row in reversed(trials)}
    for trial, start, end in trials:
        timing = read_records(trial.workdir(directory) / "timing.jsonl")
        worked = sum(
            record.get("compile_seconds", 0.0) + record.get("step_seconds", 0.0)
            for record in timing
        )
        overheads.append(end["time"] - before[start["slot"]] - worked)
        before[start["slot"]] = end["time"]
    first = [end["first_step_seconds"] for trial, _, end in trials if trial.seed == plan.seeds[0]]
    later = [end["first_step_seconds"] for trial, _, end in trials if trial.seed != plan.seeds[0]]
    seconds = max(end["time"] for _, _, end in trials) - trials[0][1]["time"]
    return {"seconds": seconds, "overheads": overheads, "first": first, "later": later}


if __name__ == "__main__":
    rounds.main(main)
