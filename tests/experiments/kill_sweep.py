"""kill -9 of launchers, trials and fork servers at random moments, then the same command: is all as
in an undisturbed sweep, bit for bit?

    python -m tests.experiments.kill_sweep --kills 20
    python -m tests.experiments.kill_sweep --kills 3 --variants 2 --seeds 2
    python -m tests.experiments.kill_sweep --kills 20 --search 8 --variants 2 --seeds 2 --middle
    python -m tests.experiments.kill_sweep --kills 20 --workers 2

The first is a sweep of 12 trials in two slots; the third one searches with a pruner, and the same
trials must be stopped at the same step. Every kill takes the launcher, one of the processes that
work for it, both, or the server that forks them; with `--middle` only processes of trials that have
trained some steps since they started, and their launcher. In the last one two `work` commands train
the trials, and each kill takes the process of a trial in its middle, its worker, or both. Killed
sweeps go on until enough kills have come, over as many folders as that takes. Prints a line, and
what differs.
"""

import argparse
import contextlib
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

from attnlab.experiments.plan import Plan
from attnlab.records.attempts import last_word, read
from tests.experiments import real
from tests.experiments.plans import experiment_file

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
    rows = {f"width {width}": {"system.width": width} for width in WIDTHS[:variants]}
    base, lines = BASE, [f"compare=rows({rows!r})", f"seeds={tuple(range(seeds))}"]
    if search:
        base = {**BASE, "training.evaluate_every": 4}  # a round is cut at step 8
        space = "{'schedule.peak': log_uniform(1e-3, 1e-1)}"
        lines.append(f"search=Search({space}, trials={search}, pruner='halving')")
    config = "configs/language_modelling.py:lstm"
    return experiment_file(folder / "killed.py", *lines, config=config, base=base)


def start(file: str, directory: Path) -> subprocess.Popen[bytes]:
    """Starts a launcher."""
    return command(directory, "sweep", file, f"--dir={directory}", "--slots=2", "--retry-failed")


def command(directory: Path, *words: str | Path) -> subprocess.Popen[bytes]:
    """Starts a command whose lines go to a file beside the sweep."""
    log = open(directory.with_suffix(".log"), "ab")  # noqa: SIM115 - the command's
    how: dict[str, Any] = {"stdout": log, "stderr": log, "env": real.environment()}
    return subprocess.Popen(real.command(*words), **how, cwd=directory.parent)


def in_the_middle(directory: Path, parents: dict[int, int]) -> list[int]:
    """The processes of trials that have trained some steps since they started."""
    pids = []
    for path in directory.glob("trials/*/*/events.jsonl"):
        starts = [record for record in read(path.parent) if record["event"] == "start"]
        metrics = path.with_name("metrics.jsonl")
        running = starts and starts[-1]["pid"] in parents and metrics.exists()
        if running and metrics.stat().st_mtime > starts[-1]["time"] + 0.1:
            pids.append(starts[-1]["pid"])
    return pids


def processes() -> dict[int, int]:
    """The parent of each live process."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(path.parent.name)] = int(parent)
    return parents


def kill(
    launcher: subprocess.Popen[bytes], rng: random.Random, gentle: bool, middle: Path | None
) -> str:
    """Kills the launcher, a worker, both or the fork server; returns which, "" where there was
    none of it. `gentle`: the launcher. `middle`: only a worker whose trial in this folder has
    trained some steps, with its launcher or without.
    """
    choices = ["worker", "both"] if middle else ["launcher", "worker", "both", "server"]
    victim = "launcher" if gentle and not middle else rng.choice(choices)
    parents = processes()
    children = [pid for pid, parent in parents.items() if parent == launcher.pid]
    workers = [pid for pid, parent in parents.items() if parent in children]
    if middle:
        workers = [pid for pid in in_the_middle(middle, parents) if pid in workers]
        victim = "both" if gentle else victim
        if not workers:
            return ""
    pids = [parents[pid] for pid in workers[:1]] if victim == "server" else workers
    if not pids and victim in ("worker", "server"):
        return ""
    if pids and victim != "launcher":
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(rng.choice(pids), signal.SIGKILL)
    if victim in ("launcher", "both"):
        launcher.kill()
        launcher.wait()
    return victim


def workers_killed_until_done(
    file: str, directory: Path, workers: int, most: int, rng: random.Random
) -> int:
    """Plans, lets so many workers train, and kills trials in their middle, workers or both until
    no trial is left or there were `most` kills; returns the number of kills.
    """
    launcher = start(file, directory)
    while (planned := Plan.read(directory)) is None or planned.cores is None:
        time.sleep(0.05)
    launcher.kill()
    launcher.wait()
    teams = [command(directory, "work", directory, "--slots=1") for _ in range(workers)]
    kills = spared = 0
    while kills < most and any(team.poll() is None for team in teams):
        time.sleep(rng.uniform(0.05, 0.5))
        chosen = rng.randrange(workers)
        gentle = spared >= 2  # what dies three times under one worker has failed, rightly
        if kill(teams[chosen], rng, gentle, directory):
            kills, spared = kills + 1, 0 if gentle else spared + 1
        if teams[chosen].poll() not in (None, 0):
            teams[chosen] = command(directory, "work", directory, "--slots=1")
    for team in teams:
        team.wait(600)
    return kills + killed_until_done(file, directory, 600, 1, rng)


def killed_until_done(
    file: str, directory: Path, longest: float, most: int, rng: random.Random, middle: bool = False
) -> int:
    """Launch, kill after a random time, and again, until a launcher ends by itself or there were
    `most` kills; the number of kills.
    """
    kills, spared, launcher = 0, 0, start(file, directory)
    while kills < most:
        try:
            launcher.wait(rng.uniform(0.05, 0.5) if middle else rng.uniform(0.3, longest))
            break
        except subprocess.TimeoutExpired:
            # what dies three times under one launcher has failed, rightly
            done = kill(launcher, rng, gentle=spared >= 2, middle=directory if middle else None)
            kills += bool(done)
            spared += bool(done) or not middle
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
    paths = sorted(directory.rglob("events.jsonl"))
    return {str(path.parent.relative_to(directory)): last_word(read(path.parent)) for path in paths}


def doubled(directory: Path) -> list[str]:
    """Trials that were begun after they were done, or by two processes at once."""
    wrong = []
    for path in sorted(directory.rglob("events.jsonl")):
        records = read(path.parent)
        ends = [number for number, record in enumerate(records) if record["event"] == "end"]
        done = [number for number in ends if records[number]["state"] == "done"]
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


def compare(folder: Path, flags: argparse.Namespace) -> tuple[int, int, list[str]]:
    """At least `flags.kills` kills; trials, kills, and what differed from the undisturbed sweep."""
    search = flags.search
    file = experiment(folder, flags.variants, flags.seeds, search)
    reference = folder / "reference"
    began = time.perf_counter()
    if start(file, reference).wait(900):  # also fills the compile cache
        raise AssertionError(reference.with_suffix(".log").read_text())
    longest = max(1.0, (time.perf_counter() - began) / 6)
    rng, done, wrong = random.Random(flags.seed), 0, list[str]()
    while done < flags.kills:
        directory, left = folder / f"killed{done}", flags.kills - done
        if flags.workers:
            done += workers_killed_until_done(file, directory, flags.workers, left, rng)
        else:
            done += killed_until_done(file, directory, longest, left, rng, flags.middle)
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
    meaning = "settings that are searched for each variant, with a pruner; 0 for none"
    parser.add_argument("--search", type=int, default=0, help=meaning)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--workers", type=int, default=0, help="`work` commands that are killed")
    parser.add_argument("--middle", action="store_true", help="kill trials that train")
    for flag, default in (("--kills", 20), ("--variants", 4), ("--seeds", 3)):
        parser.add_argument(flag, type=int, default=default)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trials, kills, wrong = compare(Path(folder), flags)
    found = f"{trials} trials, {kills} kills: {'DIFFERS' if wrong else 'equal'}"
    print("\n".join([found, *wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
