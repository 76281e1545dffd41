"""Do the trackers beside a run slow its steps?

    python -m benchmarks.tracking --track=wandb,mlflow,trackio --rounds=20

One run trains all the time; the processes that tell the trackers are stopped (SIGSTOP) and go on
(SIGCONT) in turns of `--seconds`, and who begins changes with every round. A figure is the seconds
per step of a turn, from the times in `timing.jsonl`; the ratio of a round is that with trackers
over that without. Prints the median of the ratios against the target 1.03. Without `--track` turns
of the same kind in which nothing is stopped: how much of a ratio is noise.

Stores are written into a temporary folder. Other settings: `--config=FILE.py:ARGUMENT` and
--config.a.b=value.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attnlab.commands import take_overrides
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.records.stream import read_records
from benchmarks import rounds

TARGET = 1.03
CONFIG = "configs/translation.py:transformer"
ROOT = Path(__file__).parents[1]
ENDLESS = ("training.steps=10000000", "training.log_every=10", "training.evaluate_every=0")


def main() -> None:
    """Measure and print the table."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE.py:ARGUMENT")
    parser.add_argument("--track", metavar="NAME,...")
    parser.add_argument("--rounds", type=int, default=20, help="two turns each")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds before the first turn")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(rest)
    about = rounds.machine()
    with tempfile.TemporaryDirectory() as folder:
        ratios = measure(Path(folder), chosen, overrides)
    rows = [(chosen.track or "nothing", len(ratios), statistics.median(ratios), *spread(ratios))]
    columns = ("trackers", "rounds", "median ratio", "25 %", "75 %")
    table(f"step time with trackers over that without, target {TARGET}", columns, rows)
    rounds.save(chosen.json, {"track": chosen.track, "ratios": ratios, **about})


def measure(folder: Path, chosen: argparse.Namespace, overrides: list[str]) -> list[float]:
    """The ratio of each round."""
    workdir = folder / "run"
    settings = [f"--config.{setting}" for setting in (*ENDLESS, "checkpoint.every=0", *overrides)]
    config = chosen.config if Path(chosen.config).is_absolute() else ROOT / chosen.config
    command = [sys.executable, str(ROOT / "launch.py"), "train", f"--config={config}", *settings]
    command += [f"--workdir={workdir}", *([f"--track={chosen.track}"] if chosen.track else [])]
    with open(folder / "log.txt", "wb") as log:
        run = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        while not logged(workdir):
            if run.poll() is not None:
                raise UserError(f"the run has ended: {(folder / 'log.txt').read_text()[-300:]}")
            time.sleep(0.5)
        time.sleep(chosen.settle)
        ratios = []
        for number in range(chosen.rounds):
            paces = {}
            for tracked in (True, False) if number % 2 else (False, True):
                for reader in readers(workdir):
                    os.kill(reader, signal.SIGCONT if tracked else signal.SIGSTOP)
                paces[tracked] = pace(workdir, chosen.seconds)
            ratios.append(paces[True] / paces[False])
            figures = f"{1000 * paces[True]:.4g} and {1000 * paces[False]:.4g} ms"
            print(f"round {number + 1}: {figures}, ratio {ratios[-1]:.4f}", file=sys.stderr)
        return ratios
    finally:
        for reader in readers(workdir):
            os.kill(reader, signal.SIGCONT)
        run.send_signal(signal.SIGTERM)
        run.wait()


def pace(workdir: Path, seconds: float) -> float:
    """Seconds per step during the next so many seconds; longer, until three records are there."""
    begin, until = len(logged(workdir)), time.monotonic() + seconds
    while time.monotonic() < until or len(logged(workdir)) < begin + 3:
        time.sleep(0.2)
    lines = logged(workdir)[begin:]
    return (lines[-1]["time"] - lines[0]["time"]) / (lines[-1]["step"] - lines[0]["step"])


def logged(workdir: Path) -> list[dict[str, Any]]:
    """The records of steps."""
    return [line for line in read_records(workdir / "timing.jsonl") if "step_seconds" in line]


def readers(workdir: Path) -> list[int]:
    """The processes that tell a tracker of the run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if str(workdir).encode() in words and any(word.endswith(b".following") for word in words):
            found.append(int(path.parent.name))
    return found


def spread(values: list[float]) -> tuple[float, float]:
    """The quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return low, high


if __name__ == "__main__":
    rounds.main(main)
