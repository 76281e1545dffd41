"""A trial that trains nothing: it records where it ran and ends as a file in the sweep's folder
says. For tests of workers.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run import Choice, board, launcher, live, placing, ray, recorded, worker
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.training import CHANGED, HELD, UNLOCKED
from attnlab.records.attempts import Attempt
from attnlab.records.locks import Held, RunLock
from attnlab.training import programs
from attnlab.training.session import Interrupt
from tests.experiments import plans, real

STEPS = 10
SERVE = (
    "from tests.experiments import stub; stub.hasten();"
    " from attnlab.experiments.run.ray import serve; serve()"
)
"""What a worker on Ray does."""
LAUNCH = "import sys; from tests.experiments import stub; stub.launch(*sys.argv[1:])"


def until(reached: Callable[[], object], seconds: float = 60) -> None:
    """Wait for it, but not for ever, however long the machine takes."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


class Board:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ticks = 0

    def started(self, job: Job, slot: Slot) -> None:
        self.lines.append(f"started {job.name}")

    def ended(self, job: Job) -> None:
        self.lines.append(f"ended {job.name}")

    def note(self, text: str) -> None:
        self.lines.append(text)

    def tick(self) -> None:
        self.ticks += 1


def planned(directory: Path, **changes: Any) -> Plan:
    """A small plan, written: additive and general, seeds 0 and 1, unless `changes` say
    otherwise.
    """
    plan = plans.plan(**changes)
    config = {"seed": plan.seeds[0], "training": {"steps": STEPS}}
    config |= {"optimizer": {"name": "adam"}, "schedule": {"name": "cosine"}}
    named = lambda one: dataclasses.replace(one, config={**config, "system": one.variant})
    plan = dataclasses.replace(plan, candidates=tuple(map(named, plan.candidates)))
    plan.write(directory)
    return plan


def behave(directory: Path, **endings: str) -> None:
    """How trials end, by "<variant>_<seed>": "fail", "diverge", "die", "die once", "mute",
    "changed", "unlocked", "slow", "wait", "linger" (wait, and take a second to save when asked to leave), "compile" (go
    on with that for 1.7 s when asked to leave), "deaf" (hang, whatever is asked); all others are
    done soon.
    """
    (directory / "endings.json").write_text(json.dumps(endings))


def finish(trial: Trial, directory: Path, state: str = "done", loss: float = 1.0) -> Path:
    """The records of a trial that ended so."""
    workdir = trial.workdir(directory)
    workdir.mkdir(parents=True, exist_ok=True)
    attempt = Attempt.start(workdir, None)
    if state == "done":
        scores = {"split": "valid", "step": STEPS, "loss": loss}
        (workdir / "valid.json").write_text(json.dumps(scores))
    attempt.end(state, STEPS, "" if state == "done" else f"{state} on purpose", 0.5)  # type: ignore[arg-type]
    return workdir


def finished(directory: Path, **changes: Any) -> Plan:
    """A small plan, written, whose trials are done."""
    plan = planned(directory, **changes)
    for trial in plan.trials():
        finish(trial, directory)
    return plan


HASTE = {"ASK": 0.05, "POLL": 0.05, "IDLE": 1.0}
"""Of `worker`: it has no patience."""


def hasten() -> None:
    """Trials of the stub in the workers of this process, which have no patience."""
    live.PRELOAD = ("tests.experiments.stub",)
    for name, value in HASTE.items():
        setattr(worker, name, value)
    worker.Worker.perform = staticmethod(perform)


def launcher_of(directory: Path, *address: str) -> subprocess.Popen[bytes]:
    """A launcher of stub trials, in a process of its own, see `launch`."""
    line = [sys.executable, "-c", LAUNCH, str(directory), *address]
    return subprocess.Popen(line, env=real.environment(), cwd=directory.parent)


def launch(folder: str, address: str = "") -> None:
    """What it does: trains in two slots, chooses and evaluates; or only trains, by two workers on
    the Ray cluster with this address.
    """
    hasten()
    placing.POLL, ray._SERVE = 0.2, ("-c", SERVE)
    directory, options = Path(folder), live.WorkOptions(grace=1.0)
    with launcher.lock(directory), live.Stop() as stop:
        launcher.retry_failed(directory)
        shown = board.Board(Plan.of_sweep(directory), directory)
        executor: Any = worker.Worker(directory, [Slot(0), Slot(1)], shown, stop, options)
        if address:
            request = ray.Request(2, 1, 0, address)
            request.check()
            executor = ray.Cluster(directory, request, shown, stop)
        whole = launcher.Launcher(directory, executor, shown, stop)
        wrong = whole.train()
        if not address:
            whole.finish()
    sys.exit(128 + stop.signal if stop.signal else len(wrong))


def perform(directory: Path, job: Job, slot: Slot) -> int:
    """What a worker's processes do in place of training."""
    if job.kind == "final":
        return evaluate(directory, job)
    (trial,) = job.trials
    workdir = trial.workdir(directory)
    file = directory / "endings.json"
    endings = json.loads(file.read_text()) if file.exists() else {}
    ending = endings.get(f"{trial.candidate.variant}_{trial.seed}", "")
    if ending == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        lock = RunLock(workdir)
    except Held:
        return HELD
    with lock, open(directory / "uses.jsonl", "a") as uses:
        if recorded(trial, directory).settled:
            return 0
        attempt = Attempt.start(workdir, slot.use)
        begin = time.time()
        if ending == "changed":
            (workdir / "log.txt").write_text("error: mine.py was edited\n")
            attempt.end("interrupted", 0)
            return CHANGED
        if ending == "unlocked":
            return UNLOCKED
        if ending == "mute":
            print("something went wrong at the very start")
            os._exit(3)
        if ending == "die" or (
            ending == "die once" and len((workdir / "events.jsonl").read_text().splitlines()) == 1
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        code = _end(ending, workdir, attempt)
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        use: dict[str, Any] = {"slot": slot.number, "cores": cores, "trial": trial.name}
        use |= {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "pid": os.getpid()}
        use |= {"group": os.getpgrp(), "begin": begin, "end": time.time()}
        uses.write(json.dumps(use) + "\n")
    return code


def _end(ending: str, workdir: Path, attempt: Attempt) -> int:
    if ending == "fail":
        attempt.end("failed", 3, "ValueError: no good")
        return 1
    if ending == "diverge":
        attempt.end("diverged", 4, "loss nan at step 4")
        return 1
    if ending == "deaf":
        time.sleep(60)
    with Interrupt() as interrupt, open(workdir / "steps", "ab", buffering=0) as steps:
        if ending == "compile":
            programs.under_way.value = 1
            until = time.monotonic() + 60
            while time.monotonic() < until and interrupt.signal is None:
                time.sleep(0.005)
            time.sleep(1.7)
            programs.under_way.value = 0
        for step in range(len((workdir / "steps").read_text().split()), STEPS):
            steps.write(b"%d\n" % step)
            until = time.monotonic() + {"wait": 6, "linger": 6, "slow": 0.3}.get(ending, 0.01)
            while time.monotonic() < until and interrupt.signal is None:
                time.sleep(0.005)
            if interrupt.signal is not None:
                time.sleep(1 if ending == "linger" else 0)
                break
    if interrupt.signal is not None:
        attempt.end("interrupted", 5, f"signal {interrupt.signal}")
        return 128 + interrupt.signal
    (workdir / "valid.json").write_text(json.dumps({"split": "valid", "step": STEPS, "loss": 1.0}))
    attempt.end("done", STEPS, "", 0.01)
    return 0


def evaluate(directory: Path, job: Job) -> int:
    """In place of the evaluation on the test split; needs the choice as the real one does."""
    assert Choice.read(directory) is not None
    if (directory / "no finals").exists():
        print("a sad last line")
        return 1
    for trial in job.trials:
        looked_at(trial, directory)
    return 0


def looked_at(trial: Trial, directory: Path) -> None:
    """What the evaluation on the test split leaves."""
    for name in ("results.json", "curves.png"):
        (trial.workdir(directory) / name).write_text("{}")


def uses(directory: Path) -> list[dict[str, Any]]:
    """What the trials have recorded of the places they ran in."""
    return [json.loads(line) for line in (directory / "uses.jsonl").read_text().splitlines()]
