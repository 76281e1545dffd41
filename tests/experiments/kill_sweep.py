"""kill -9 of launchers, trials and fork servers at random moments, then the same command: is all as
in an undisturbed sweep, bit for bit?

    python -m tests.experiments.kill_sweep --kills 20
    python -m tests.experiments.kill_sweep --kills 3 --variants 2 --seeds 2
    python -m tests.experiments.kill_sweep --kills 20 --search 8 --variants 2 --seeds 2

The first is a sweep of 12 trials in two slots; the last one searches with a pruner, and the same
trials must be stopped at the same step. Every kill takes the launcher, one of the processes that
work for it, both, or the server that forks them. Killed sweeps go on until enough kills have come,
over as many folders as that takes. Prints a line, and what differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attnlab.records.attempts import last_word, read
from tests.experiments import real

WIDTHS = (4, 5, 6, 7)
STEPS = 24
BASE = {
    **{"system.embedding": 4, "data.examples": 60, "data.valid": 8, "data.test": 8},
    **{"batch.texts": "joined", "batch.max_length": 8, "batch.size": 4, "decoding.batch": 4},
    **{"training.steps": STEPS, "training.log_every": 1, "training.evaluate_every": 12},
    **{"checkpoint.every": 3, "schedule.warmup": 2, "parallel.devices": 1},
}
"""A language model, whose state after the rows so far is part of what is saved."""


def experiment(folder: Path, variants: int, seeds: int, search: int) -> str:
    """The file of a sweep of tiny trials that save often, so that many kills fall into a save."""
    base, lines = BASE, ""
    if search:
        base = {**BASE, "training.evaluate_every": 4}  # a round is cut at step 8
        lines = (
            f", search=Search({{'schedule.peak': log_uniform(1e-3, 1e-1)}}, trials={search},"
            " pruner='halving')"
        )
    rows = {f"width {width}": {"system.width": width} for width in WIDTHS[:variants]}
    file = folder / "killed.py"
    file.write_text(
        "from attnlab.experiments import *\n\n\ndef get_experiment(argument=''):\n"
        "    return Experiment(question='Which?', config='configs/language_modelling.py:lstm',"
        f" base={base!r}, compare=rows({rows!r}), seeds={tuple(range(seeds))}{lines})\n"
    )
    return str(file)


def start(file: str, directory: Path) -> subprocess.Popen[bytes]:
    """A launcher; its lines go to a file beside the sweep."""
    log = open(directory.with_suffix(".log"), "ab")  # noqa: SIM115 - the launcher's
    line = real.command("sweep", file, f"--dir={directory}", "--slots=2", "--retry-failed")
    return subprocess.Popen(
        line, stdout=log, stderr=log, env=real.environment(), cwd=directory.parent
    )


def below(launcher: int) -> tuple[list[int], list[int]]:
    """The fork server, a child of the launcher, and the processes of trials and evaluations, its
    children.
    """
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(path.parent.name)] = int(parent)
    children = [pid for pid, parent in parents.items() if parent == launcher]
    workers = [pid for pid, parent in parents.items() if parent in children]
    return [parents[pid] for pid in workers[:1]], workers


def kill(launcher: subprocess.Popen[bytes], rng: random.Random, gentle: bool = False) -> str:
    """Kill the launcher, a worker, both or the fork server; what was killed, "" where there was
    none of it. `gentle`: the launcher.
    """
    what = "launcher" if gentle else rng.choice(["launcher", "worker", "both", "server"])
    servers, workers = below(launcher.pid)
    found = {"launcher": [], "worker": workers, "both": workers, "server": servers}[what]
    if not found and what in ("worker", "server"):
        return ""
    if found:
        os.kill(rng.choice(found), signal.SIGKILL)
    if what in ("launcher", "both"):
        launcher.kill()
        launcher.wait()
    return what


def killed_until_done(
    file: str, directory: Path, longest: float, most: int, rng: random.Random
) -> int:
    """Launch, kill after a random time, and again, until a launcher ends by itself or there were
    `most` kills; the number of kills.
    """
    kills, spared, launcher = 0, 0, start(file, directory)
    while kills < most:
        try:
            launcher.wait(rng.uniform(0.3, longest))
            break
        except subprocess.TimeoutExpired:
            # what dies three times under one launcher has failed, rightly
            kills += bool(kill(launcher, rng, gentle=spared == 2))
            spared += 1
            if launcher.poll() is not None:
                spared, launcher = 0, start(file, directory)
    # a trial whose processes were killed three times under one launcher has failed, and runs again
    for _ in range(3):
        if launcher.wait(600) == 0:
            return kills
        launcher = start(file, directory)
    raise AssertionError(directory.with_suffix(".log").read_text())


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two finished sweeps, and what is wrong with the second alone."""
    wrong = [*doubled(other), *torn(other)]
    before, after = ends(one), ends(other)
    differ = [name for name, end in after.items() if end != before.get(name)]
    wrong += [f"{name}: {after[name]}, was {before.get(name)}" for name in differ]
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if compared(path))
    if names != sorted(str(path.relative_to(other)) for path in other.rglob("*") if compared(path)):
        wrong.append("other files")
    both = [name for name in names if (other / name).exists()]
    wrong += [name for name in both if content(one / name) != content(other / name)]
    saved, again = arrays(one), arrays(other)
    return wrong + [f"checkpoint of {trial}" for trial in saved if saved[trial] != again.get(trial)]


def compared(path: Path) -> bool:
    """Whether a file holds what config and seed determine."""
    names = ("metrics.jsonl", "valid.json", "results.json", "translations.txt")
    return path.name in (*names, "choice.json", "plan.json") or path.suffix == ".npz"


def content(path: Path) -> Any:
    """What is compared of a file: all of it, but for times."""
    if path.suffix != ".json":
        return path.read_bytes()
    fields = real.read(path)
    timed = ("decoding_seconds", "made", "created")
    return {name: value for name, value in fields.items() if name not in timed}


def arrays(directory: Path) -> dict[str, Any]:
    """Trial to the digests of all arrays of its last checkpoint."""
    from attnlab.training.checkpoints import Checkpoints

    found = {}
    for workdir in sorted(directory.glob("trials/*/seed*")):
        checkpoints = Checkpoints(workdir / "checkpoints", 2, read_only=True)
        last = checkpoints.steps()[-1]
        record = checkpoints._store().read_record(last)
        found[str(workdir.relative_to(directory))] = (last, record["arrays"])
        checkpoints.close()
    return found


def ends(directory: Path) -> dict[str, tuple[str, int, str]]:
    """Trial to its last word: done, or stopped by the pruner at which step and why."""
    return {
        str(path.parent.relative_to(directory)): last_word(read(path.parent))
        for path in sorted(directory.rglob("events.jsonl"))
    }


def doubled(directory: Path) -> list[str]:
    """Trials that were begun after they were done, or by two processes at once."""
    wrong = []
    for path in sorted(directory.rglob("events.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        done = [
            number
            for number, record in enumerate(records)
            if record["event"] == "end" and record["state"] == "done"
        ]
        if done != (
            [] if any(record["event"] == "stop" for record in records) else [len(records) - 1]
        ):
            wrong.append(f"{path.parent.relative_to(directory)} done {len(done)} times")
        pids = [record["pid"] for record in records if record["event"] == "start"]
        if len(set(pids)) < len(pids):
            wrong.append(f"{path.parent.relative_to(directory)}: attempts of one process")
    return wrong


def torn(directory: Path) -> list[str]:
    """Files that are not whole."""
    wrong = []
    for path in sorted([*directory.rglob("*.json"), *directory.rglob("*.jsonl")]):
        try:
            text = path.read_text()
            for record in text.splitlines() if path.suffix == ".jsonl" else [text]:
                json.loads(record)
        except ValueError:
            wrong.append(f"{path.relative_to(directory)} is torn")
    return wrong + [
        str(path.relative_to(directory)) for path in directory.rglob("*.tmp") if path.is_file()
    ]


def trial(
    folder: Path, kills: int, variants: int, seeds: int, seed: int, search: int = 0
) -> tuple[int, int, list[str]]:
    """At least `kills` kills; trials, kills, and what differed from the undisturbed sweep."""
    file, reference = experiment(folder, variants, seeds, search), folder / "reference"
    began = time.perf_counter()
    if start(file, reference).wait(900):  # also fills the compile cache
        raise AssertionError(reference.with_suffix(".log").read_text())
    longest = max(1.0, (time.perf_counter() - began) / 6)
    rng, done, wrong = random.Random(seed), 0, []
    while done < kills:
        directory = folder / f"killed{done}"
        done += killed_until_done(file, directory, longest, kills - done, rng)
        wrong += [f"{directory.name}: {one}" for one in differences(reference, directory)]
    stopped = sum("pruned" in end[2] for end in ends(reference).values())
    if bool(stopped) != bool(search):
        wrong.append(f"the undisturbed sweep stopped {stopped} trials")
    return len(ends(reference)), done, wrong


def main() -> int:
    """Prints one line, and one for each difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--variants", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--search",
        type=int,
        default=0,
        help="settings that are searched for each variant, with a pruner; 0 for none",
    )
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trials, kills, wrong = trial(
            Path(folder), flags.kills, flags.variants, flags.seeds, flags.seed, flags.search
        )
    found = f"{trials} trials, {kills} kills: {'DIFFERS' if wrong else 'equal'}"
    print("\n".join([found, *wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
