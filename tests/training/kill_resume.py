"""kill -9 at random moments, then the same command: does everything equal an uninterrupted run, bit
for bit?

    python -m tests.training.kill_resume --kills 20
    python -m tests.training.kill_resume --kills 3 --system rnnsearch --backend pmap --devices 4
    python -m tests.training.kill_resume --kills 2 --every --backend mesh --devices 1
    python -m tests.training.kill_resume --kills 10 --processes 2 --devices 2
    python -m tests.training.kill_resume --kills 20 --backend fsdp --devices 4 --system lstm_lm

The first runs three systems, on 1 and 4 forced devices, with pmap and mesh; the second one of
these; the third every small config of every task; the fourth two processes that train together, of
which a random one is killed: the other must end by itself, one line must say why, and the end must
equal that of one process with as many devices; the fifth divides all arrays of the state over the
devices, and can have several processes too, whose end must equal that of as many. Training runs in forked children of one process that
has imported everything but started nothing, so that a restart costs seconds.
"""

import argparse
import importlib
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.commands.tiny import train, under
from tests.processes.test_meeting import port

STEPS = 24
FILES = {
    "rnnsearch": (
        "configs/translation.py:rnnsearch",
        ["embedding=8", "encoder=8", "decoder=8", "maxout=8", "dropout=0.1"],
    ),
    "transformer": ("configs/translation.py:transformer", ["width=16", "hidden=16", "layers=1"]),
    "lstm_lm": ("configs/language_modelling.py:lstm", ["embedding=8", "width=8", "dropout=0.1"]),
}
GREEDY = under("decoding", method="greedy", max_ratio=0.5, max_extra=2)
JITTERED = ["augmentation.crop=2", "augmentation.flip=true"]
SHARED = {
    "translation": ["data.examples=400", *under("batch", buckets=32, max_length=32), *GREEDY],
    "language_modelling": ["data.examples=60", "batch.texts=joined", "batch.max_length=8"],
    "masked_language_modelling": [
        *("data=associations", "data.examples=60", "batch.texts=packed", "batch.max_length=16"),
    ],
    "classification": ["data.examples=200"],
    "inference": ["data.examples=200"],
    "g2p": ["data.examples=400", *GREEDY],
    "tagging": ["data.examples=200"],
    "diagnostics": ["data.examples=200", *under("batch", buckets=65, max_length=65)],
    "image_classification": [*under("data", examples=200, side=16), *JITTERED],
    "segmentation": ["data.examples=100", *JITTERED],
    "detection": ["data.examples=100"],
    "captioning": [
        *("data.examples=200", "decoding.max_extra=2", "augmentation.crop=1"),
        *under("system.backbone", widths="4,32", layers=1),
    ],
    "visual_questions": [
        *(*under("data", examples=20, valid=2, side=20), "system.backbone.widths=4,4"),
    ],
    "question_answering": [
        *(*under("data", examples=100, absent=0.3), *under("batch", buckets=24, max_length=24)),
        *under("passages", stride=8, question=8, unanswerable="true"),
    ],
    "span_corruption": [
        *("data=associations", "data.examples=60", "batch.max_length=16", *GREEDY),
    ],
}
SHARED["text_to_text"] = SHARED["translation"]
NAMES = {"span_corruption": "text_to_text"}  # files that take the systems of another
BOUND = 20.0  # seconds in which all processes have ended after one was killed
LINKS = (8, 16, STEPS)
"""The lengths of the runs of a chain, each of which goes on from the one before (`--chain`)."""
CHAINED = False
SYSTEMS, DEVICES, BACKENDS = tuple(FILES), (1, 4), ("pmap", "mesh")
DIVIDED = ["backend=auto", "rules=.=fsdp@-1"]  # the state of `--backend fsdp`


def every() -> list[str]:
    """FILE:NAME of every config but those of published sizes."""
    modules = {file: importlib.import_module(f"configs.{NAMES.get(file, file)}") for file in SHARED}
    actual = []
    for file, module in modules.items():
        names = getattr(module, "SYSTEMS", None) or module._SYSTEMS
        small = (name for name in names if not name.endswith(("_paper", "_base", "_small")))
        actual += [f"{file}:{name}" for name in small]
    return actual


def command(
    system: str, backend: str, devices: int, workdir: Path, steps: int = STEPS
) -> list[str]:
    """A tiny run that saves often, so that many kills fall into a save; a language model reads
    lanes of one stream.
    """
    config, own = FILES.get(system, (f"configs/{system.replace(':', '.py:')}", []))
    settings = [
        *(f"system.{override}" for override in own),
        *under("data", valid=16, test=1),
        *("batch.size=16", "checkpoint.every=3", "schedule.warmup=4"),
        *SHARED[Path(config).stem],
        *under("training", steps=steps, log_every=1, evaluate_every=8),
        *(["schedule=constant"] if CHAINED else []),
        *under("parallel", devices=devices, fsdp=devices if backend == "fsdp" else 1),
        *(f"parallel.{one}" for one in (DIVIDED if backend == "fsdp" else [f"backend={backend}"])),
    ]
    return train(config.removeprefix("configs/"), workdir, *settings)


def forked(work: Callable[[], int], errors: str = os.devnull) -> int:
    """Do `work` in a forked child, silently, and exit with what it returns; the child's pid. The
    parent must have no threads.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 2)
        code = work()
    finally:
        os._exit(code)


def start(arguments: list[str], errors: str = os.devnull) -> int:
    """Run the command in a forked child; its pid."""
    from attnlab.commands import main

    return forked(lambda: main(arguments), errors)


def start_all(arguments: list[str], processes: int, folder: Path) -> list[int]:
    """Run the command as one of several processes, which leave what they say in `folder`; their
    pids.
    """
    if processes == 1:
        return [start(arguments)]
    shared = [*arguments, f"--coordinator=localhost:{port()}", f"--processes={processes}"]
    return [
        start([*shared, f"--process={index}"], str(folder / f"errors{index}"))
        for index in range(processes)
    ]


def codes(pids: list[int], timeout: float) -> list[int]:
    """Exit codes of processes that end by themselves, all within `timeout` seconds."""
    deadline, actual = time.perf_counter() + timeout, {}
    while len(actual) < len(pids):
        for pid in set(pids) - set(actual):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                actual[pid] = os.waitstatus_to_exitcode(status)
        assert time.perf_counter() < deadline, f"only {actual} of {pids} have ended in {timeout} s"
        time.sleep(0.005)
    return [actual[pid] for pid in pids]


def uninterrupted(arguments: list[str], processes: int, folder: Path) -> None:
    """Run to the end."""
    assert not any(codes(start_all(arguments, processes, folder), 600))


def recorded(workdir: Path) -> int:
    """The records that a run has left so far."""
    stream = workdir / "metrics.jsonl"
    return stream.read_bytes().count(b"\n") if stream.is_file() else 0


def moment(workdir: Path, rng: random.Random) -> Callable[[], bool]:
    """`come()`: whether it is time to kill: soon after a step that is drawn; where the run goes on
    from behind it, or starts (-1), some time after that.
    """
    step, later = rng.randrange(-1, STEPS), rng.uniform(0.0, 0.3)
    behind = recorded(workdir) > step
    began = time.perf_counter()
    due = began + rng.uniform(0.3, 3.0) if behind else None

    def come() -> bool:
        nonlocal due
        if due is None and recorded(workdir) > step:
            due = time.perf_counter() + later
        return due is not None and time.perf_counter() >= due

    return come


def killed_until_done(
    arguments: list[str], workdir: Path, most: int, rng: random.Random, folder: Path, processes: int
) -> int:
    """Start the command, kill it (or one of its processes) at a random moment, again and again
    until one start ends by itself, as it may after `most` kills; the number of kills.
    """
    kills = 0
    while True:
        pids = start_all(arguments, processes, folder)
        come, deadline = moment(workdir, rng), time.perf_counter() + 600.0
        while kills == most or not come():
            ended, status = os.waitpid(pids[0], os.WNOHANG)
            if ended:
                assert os.waitstatus_to_exitcode(status) == 0
                assert not any(codes(pids[1:], BOUND))
                return kills
            assert time.perf_counter() < deadline, f"{workdir} is not done in 600 s"
            time.sleep(0.005)
        victim = rng.choice(pids)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        kills += 1
        alive = [pid for pid in pids if pid != victim]
        assert all(code > 0 for code in codes(alive, BOUND))
        if alive:
            errors = "".join((folder / f"errors{i}").read_text() for i in range(processes))
            assert len(re.findall(".*(?:error|Traceback).*", errors)) == 1, errors


def differences(
    one: Path, other: Path, files: tuple[str, ...] = ("metrics.jsonl",), last: int | None = None
) -> list[str]:
    """What differs between two finished workdirs: files, and the digests of every array of the last
    checkpoint, and its step, which must be `last` if that is given.
    """
    wrong = [name for name in files if (one / name).read_bytes() != (other / name).read_bytes()]
    first, second = digests(one), digests(other)
    wrong += [f"last step {first['last step']}"] if last not in (None, first["last step"]) else []
    return wrong + [path for path in first | second if first.get(path) != second.get(path)]


def digests(workdir: Path) -> dict[str, object]:
    """The digest of every array of the last checkpoint, which is read, and its step."""
    from attnlab.training.checkpoints import Checkpoints

    checkpoints = Checkpoints(workdir / "checkpoints", 2, read_only=True)
    store, step = checkpoints._store(), checkpoints.steps()[-1]
    record = store.read_record(step)
    store.read_arrays(step, record["arrays"])
    checkpoints.close()
    return {"last step": step, **record["arrays"]}


def compared(one: Path, other: Path, note: Path) -> list[str]:
    """`differences`, in a child of its own: reading a checkpoint starts threads, after which this
    process could not fork.
    """
    pid = forked(lambda: 0 * note.write_text("\n".join(differences(one, other, last=STEPS))))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return note.read_text().splitlines()


def trial(
    folder: Path,
    system: str,
    backend: str,
    devices: int,
    kills: int,
    seed: int = 0,
    processes: int = 1,
) -> tuple[int, list[str]]:
    """At least `kills` kills, over as many runs as that takes; the number of kills and what
    differed from the undisturbed run, which one process does unless the state is divided.
    """
    reference = folder / "reference"  # also fills the compile cache
    several = processes if backend == "fsdp" else 1
    uninterrupted(command(system, backend, devices, reference), several, folder)
    rng, done, wrong = random.Random(seed), 0, []
    for number in itertools.count():
        workdir, before = folder / f"killed{number}", None
        for steps in LINKS if CHAINED else (STEPS,):
            workdir = folder / f"killed{number}-{steps}"
            arguments = command(system, backend, devices, workdir, steps)
            if before is not None:
                arguments = ["continue", str(before), f"--workdir={workdir}"]
                arguments += [f"--config.training.steps={steps}"]
            done += killed_until_done(
                arguments, workdir, max(kills - done, 0), rng, folder, processes
            )
            before = workdir
        wrong += compared(reference, workdir, folder / "differences")
        if done >= kills:
            break
    return done, wrong


def main() -> int:
    """All combinations that the flags leave; prints a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    several = {"choices": (*SYSTEMS, *every()), "action": "append", "metavar": "NAME"}
    parser.add_argument("--system", help="one of three, or FILE:NAME of a config", **several)
    parser.add_argument("--every", action="store_true", help="every small config instead")
    parser.add_argument("--backend", choices=(*BACKENDS, "fsdp"), action="append")
    parser.add_argument(
        "--devices", type=int, choices=(1, 2, 4), action="append", help="over all processes"
    )
    parser.add_argument("--processes", type=int, default=1)
    chain = "three runs, each of which continues the one before, against one long run"
    parser.add_argument("--chain", action="store_true", help=chain)
    flags = parser.parse_args()
    global CHAINED
    CHAINED = flags.chain
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{given} --xla_force_host_platform_device_count=4"
    preload()
    failures = 0
    systems = every() if flags.every else flags.system or SYSTEMS
    grid = (systems, flags.devices or DEVICES, flags.backend or BACKENDS)
    rest = (flags.kills, flags.seed, flags.processes)
    for system, devices, backend in itertools.product(*grid):
        with tempfile.TemporaryDirectory() as folder:
            kills, wrong = trial(Path(folder), system, backend, devices, *rest)
        failures += bool(wrong)
        actual = f"DIFFERS: {', '.join(wrong[:5])}" if wrong else "equal"
        print(f"{system:34} {devices} device(s) {backend:5} {kills:3} kills: {actual}", flush=True)
    return int(failures > 0)


def preload() -> None:
    """Import what training imports, without starting a jax backend: forked children begin at
    once. Maps of test examples, which nobody compares, are not drawn.
    """
    from attnlab.analysis import results
    from attnlab.training.orbax_steps import _import_orbax

    _import_orbax()
    results.PICTURED = 0


if __name__ == "__main__":
    sys.exit(main())
