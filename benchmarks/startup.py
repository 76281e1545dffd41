"""How long from the command to the first training step, and how much memory do the small settings
need?

    python -m benchmarks.startup --runs=5

For configs/translation.py:rnnsearch and :transformer (small, on the embedded data): `train` is
started as a process of its own, with an empty compile cache ("cold") and again with the cache the
first one left ("warm"), in turns; the time is taken when it reports its first step, from before the
interpreter starts; then it is stopped by SIGTERM. Peak memory is the largest resident set of the
whole command, training cut to `--steps`, with evaluation, checkpoint, test decoding and pictures as
ever (all batch shapes occur, so more steps need no more). Prints medians and all values against the
targets: 20 s cold, 8 s warm, 2 GB = 2e9 bytes.

The operating system's file cache is not emptied: cold means cold for the compiler. Other settings:
`--config=FILE.py:ARGUMENT` (again for more) and --config.a.b=value for all of them.
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

from attnlab.commands import take_overrides
from attnlab.errors import UserError
from attnlab.progress import table
from benchmarks import rounds

TARGETS = {"cold_seconds": 20.0, "warm_seconds": 8.0, "peak_gigabytes": 2.0}
SMALL = ("configs/translation.py:rnnsearch", "configs/translation.py:transformer")
ROOT = Path(__file__).parents[1]


def main() -> None:
    """Measure every config and print the table."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE.py:ARGUMENT",
        help=f"default: {' and '.join(SMALL)}",
    )
    parser.add_argument("--runs", type=int, default=5, help="of each kind; the median counts")
    parser.add_argument(
        "--steps", type=int, default=200, help="of the run whose memory is measured"
    )
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(rest)
    about = rounds.machine()
    results = {
        config: measure(config, overrides, chosen.runs, chosen.steps)
        for config in chosen.config or SMALL
    }
    rows = []
    for config, figures in results.items():
        for name, values in figures.items():
            middle = statistics.median(values)
            reached = "reached" if middle <= TARGETS[name] else "missed"
            rows.append(
                (
                    config,
                    name,
                    middle,
                    TARGETS[name],
                    reached,
                    " ".join(f"{value:.3g}" for value in values),
                )
            )
    columns = ("config", "figure", "median", "target", "", "all")
    table(
        f"command to first step, and memory; {about['cores']} cores, load before"
        f" {about['load_before']}",
        columns,
        rows,
    )
    rounds.save(chosen.json, {"figures": results, "targets": TARGETS, **about})


def measure(config: str, overrides: list[str], runs: int, steps: int) -> dict[str, list[float]]:
    """Cold and warm times in turns, then peak memory once (it hardly varies)."""
    flags = [f"--config={config}", *(f"--config.{override}" for override in overrides)]
    figures: dict[str, list[float]] = {name: [] for name in TARGETS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs):
            for kind in ("cold_seconds", "warm_seconds"):
                workdir, cache = Path(folder, f"{kind}-{number}"), Path(folder, f"cache-{number}")
                figures[kind].append(first_step(flags, workdir, cache))
                print(f"{config} {kind} {figures[kind][-1]:.2f}", file=sys.stderr, flush=True)
        short = [f"--config.training.steps={steps}", f"--config.training.evaluate_every={steps}"]
        figures["peak_gigabytes"].append(
            peak_memory([*flags, *short], Path(folder, "memory"), Path(folder, "cache-memory"))
        )
    return figures


def first_step(flags: list[str], workdir: Path, cache: Path) -> float:
    """Seconds from starting the command to the line that reports step 1.

    Raises:
      UserError: it ends before.
    """
    clock = time.perf_counter()
    process = _start([*flags, "--config.training.log_every=1"], workdir, cache)
    assert process.stderr is not None
    heard = []
    for line in process.stderr:
        heard.append(line)
        if line.startswith("step 1/"):
            seconds = time.perf_counter() - clock
            process.send_signal(signal.SIGTERM)
            process.stderr.read()  # until it has saved and gone
            process.wait()
            return seconds
    raise UserError(
        f"train {' '.join(flags)} ended with {process.wait()} before its first step:"
        f" {''.join(heard[-3:])}"
    )


def peak_memory(flags: list[str], workdir: Path, cache: Path) -> float:
    """The largest resident set of a whole command in units of 1e9 bytes.

    Raises:
      UserError: it fails.
    """
    process = _start(flags, workdir, cache)
    assert process.stderr is not None
    heard = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"train {' '.join(flags)} ended with {process.returncode}: {heard[-500:]}")
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes there, kibibytes elsewhere
    return usage.ru_maxrss * unit / 1e9


def _start(flags: list[str], workdir: Path, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "launch.py", "train", f"--workdir={workdir}", *flags]
    environment = {**os.environ, "ATTNLAB_CACHE": str(cache)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    rounds.main(main)
