"""A sweep on a real SLURM of this machine, disturbed in every way a cluster has, against the same
sweep run alone.

    tests/slurm/cluster.sh install     once, as root: the Debian packages
    python -m tests.slurm

Starts the cluster below a temporary folder, runs the sweep of `experiment.py` with
`--executor=local` and with `--executor=slurm`; while the latter runs, its jobs are requeued
(scontrol), told to leave (scancel --signal), preempted by a job of a higher partition, stopped by
their time limit of a minute, and its launcher is killed and started again. Exit code 0 if both
sweeps have the same records, bit for bit, and no trial was at work twice at a time.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Plan, Trial
from attnlab.records import attempts
from attnlab.records.locks import is_held
from attnlab.records.stream import read_records
from tests.training.kill_resume import differences

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = "tests/slurm/experiment.py"
SAME = ("metrics.jsonl", "valid.json", "translations.txt")
CLOCKED = ("decoding_seconds",)
PATIENCE = 300.0  # seconds for anything to happen
BEGAN = time.monotonic()


def main() -> int:
    """The whole course; prints what it does and finds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="where to work; kept afterwards")
    flags = parser.parse_args()
    if shutil.which("slurmctld") is None:
        print("no slurmctld here; 'tests/slurm/cluster.sh install' brings it (Debian, as root)")
        return 2
    folder = (flags.keep or Path(tempfile.mkdtemp(prefix="attnlab-slurm-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # munge's own user must find its way in
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["SLURM_CONF"] = str(folder / "cluster" / "slurm.conf")
    try:
        run("tests/slurm/cluster.sh", "up", str(folder / "cluster"))
        say(
            f"SLURM is up: {output('sinfo', '--version')};"
            f" {output('sinfo', '-h', '-o', '%P %T %c cores').replace(chr(10), ', ')}"
        )
        run(*sweep(folder / "local"), "--slots=2")
        say("the sweep alone, on this machine: done")
        disturbed(folder / "slurm")
        return compared(folder)
    finally:
        subprocess.run(
            ["tests/slurm/cluster.sh", "down", str(folder / "cluster")], cwd=ROOT, check=False
        )
        if not flags.keep:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(directory: Path) -> list[str]:
    return [sys.executable, "launch.py", "sweep", EXPERIMENT, f"--dir={directory}"]


def disturbed(directory: Path) -> None:
    """The sweep on the cluster, and all that happens to it."""
    limits = ("--slurm.minutes=1", "--slurm.warning=25")
    command = [*sweep(directory), "--executor=slurm", "--slots=2", *limits]
    say("$ " + " ".join(["launch.py", *command[2:]]).replace(str(directory), "DIR"))
    launcher = start(command)
    job, at = training(directory, lambda step: step > 200)
    say(f"{at}: scontrol requeue {job}")
    run("scontrol", "requeue", job)
    goes_on(directory, at)
    job, at = training(directory, lambda step: step > 600)
    say(f"{at}: scancel --signal=USR2 {job}")
    run("scancel", "--signal=USR2", job)
    goes_on(directory, at)
    say("kill -9 of the launcher; the workers do not notice; the same command again")
    launcher.kill()
    launcher.wait()
    launcher = start(command)
    job, at = training(directory, lambda step: step > 200)
    say(f"{at}: a job of the partition 'high' wants the whole node")
    other = ("--partition=high", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    run("sbatch", "--quiet", *other)
    goes_on(directory, at)
    code = launcher.wait(timeout=4 * PATIENCE)
    say(f"the launcher ends with exit code {code}")
    if code:
        raise SystemExit(f"the sweep failed; see {directory}")


def compared(folder: Path) -> int:
    """Print the attempts of every trial and what differs; 0 if nothing does."""
    plan = Plan.read(folder / "slurm")
    wrong, starts = [], 0
    for trial in plan.trials():
        alone, workdir = (trial.workdir(folder / name) for name in ("local", "slurm"))
        records = attempts.read(workdir)
        print(f"  {trial.name}: {'; '.join(map(described, records))}")
        lines = [*overlaps(workdir), *differences(alone, workdir, SAME)]
        if timeless(alone / "results.json") != timeless(workdir / "results.json"):
            lines.append("results.json")
        wrong += [f"{trial.name}: {line}" for line in lines]
        starts += sum(record["event"] == "start" for record in records)
    say(
        f"{len(plan.trials())} trials, {starts} attempts; against the sweep alone: "
        + ("DIFFERS" if wrong else "equal, bit for bit")
    )
    print(*wrong, sep="\n")
    return int(bool(wrong) or starts <= len(plan.trials()))


def timeless(path: Path) -> dict[str, Any]:
    """Results without what a clock says."""
    results = json.loads(path.read_bytes())
    return {key: value for key, value in results.items() if key not in CLOCKED}


def overlaps(workdir: Path) -> list[str]:
    """Attempts that began before the one before had ended, and steps that were trained again after
    they had been saved.
    """
    wrong, saved, open_ = [], 0, False
    for record in attempts.read(workdir):
        if record["event"] == "start":
            if record["step"] < saved:
                wrong.append(f"went on from step {record['step']}, though {saved} was saved")
            open_ = True
        elif record["event"] == "end":
            if not open_:
                wrong.append("an end without a beginning")
            saved, open_ = record["step"], False
    return wrong


def described(record: dict[str, Any]) -> str:
    if record["event"] == "start":
        return f"worker {record['slot']} from step {record['step']}"
    return f"{record['state']} at {record['step']}"


def training(directory: Path, wanted: Callable[[int], bool]) -> tuple[str, str]:
    """Wait for a trial in the middle of its training; SLURM's name of the job that it runs in, and
    a word for people.
    """

    def look() -> tuple[str, str] | None:
        plan = Plan.read(directory)
        for trial in plan.trials() if plan else []:
            step = at_work(trial, directory)
            if step is not None and wanted(step) and step < 0.8 * trial.config["training"]["steps"]:
                slot = last_start(trial.workdir(directory))["slot"]
                job = next((job for job in workers() if job.endswith(f"_{slot}")), None)
                if job is not None:
                    return job, f"{trial.name} at step {step}"
        return None

    return until(look)


def last_start(workdir: Path) -> dict[str, Any]:
    """The record of the last attempt that has begun."""
    return [record for record in attempts.read(workdir) if record["event"] == "start"][-1]


def workers() -> list[str]:
    """The jobs of a sweep that run."""
    lines = output("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i %j").splitlines()
    return [line.split()[0] for line in lines if "attnlab" in line]


def at_work(trial: Trial, directory: Path) -> int | None:
    """The step of a trial that a live process trains."""
    workdir = trial.workdir(directory)
    records = read_records(workdir / "metrics.jsonl") if is_held(workdir) else []
    return records[-1]["step"] if records else None


def goes_on(directory: Path, at: str) -> None:
    """Wait until the trial that was disturbed has ended its attempt and begun another."""
    name = at.split()[0]

    def look() -> str | None:
        records = attempts.read(directory / "trials" / name)
        ends = [record for record in records if record["event"] == "end"]
        starts = [record for record in records if record["event"] == "start"]
        if len(starts) > 1 and starts[-1]["time"] > seen and ends:
            return (
                f"{name}: {ends[-1]['state']} at step {ends[-1]['step']}; goes on from step"
                f" {starts[-1]['step']}"
            )
        return None

    seen = last_start(directory / "trials" / name)["time"]
    say(until(look))


def until(look: Callable[[], Any]) -> Any:
    """What `look` finds, once it finds something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = look()
        if found is not None:
            return found
        time.sleep(0.05)
    raise SystemExit(f"nothing happened in {PATIENCE} s; {output('squeue')}")


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)


def run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster goes down too
    sys.exit(main())
