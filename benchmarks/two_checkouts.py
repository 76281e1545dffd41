"""Has a change made anything slower? Training steps, decoding and kernels of two checkouts, in turns.

    python -m benchmarks.two_checkouts EARLIER .
    python -m benchmarks.two_checkouts EARLIER . --only kernel --starts=5

Three processes take turns on one core: one of the earlier checkout, one of the later, and a second
of the earlier, a control whose difference to the first is what the machine does. Each compiles a
case once and then runs it whenever it is its turn, never twice in a row, for then it would find its
data in the caches. Who begins moves on with every round, and all three are started anew `--starts`
times, since where a process happens to lie in memory matters too. What is compared is processor
time, which waiting for a busy machine does not lengthen. Prints for each case the least
milliseconds of both, and of the later and of the control the ratio of the least and the median
ratio of the rounds to the earlier. Both
must compute the same, so both do equal work.
"""

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.progress import table
from benchmarks import rounds

SMALL = ["data.examples=640", "data.valid=64", "data.test=64", "decoding.method=greedy"]
BEAM = ["decoding.method=beam", "decoding.beam=5"]
QUICKSTART = [
    *("system.embedding=32", "system.encoder=32", "system.decoder=64", "system.maxout=32"),
    *("batch.buckets=30", "batch.max_length=30"),
]
VARIANTS = {
    "multihead": ["system.attention=multihead"],
    "additive": ["system.attention.score.hidden=32"],
    "dot": ["system.attention.score=dot"],
    "location": ["system.attention.score=location", "system.attention.score.limit=32"],
    "none": ["system=rnn_encoder_decoder", "system.encoder=64"],
}
AGREE = 1e-4  # relative: what rounding may have grown to
WHO = ("before", "after", "control")

Run = Callable[[], Any]


def step(config: str, *settings: str) -> Run:
    """A training step of a config: loss, gradients, clipping, optimizer."""
    import jax

    from attnlab import config as configs
    from attnlab.tasks import TASKS
    from attnlab.training.updates import Updates

    given = configs.load(f"configs/{config}", [*SMALL[:3], *settings])
    task = TASKS.resolve(given.task).load(given, None, ("train",))
    updates, batch = Updates.of(given), task.batches(1)(0)
    start, stepped = jax.device_put(updates.first_states(task)(0)), jax.jit(updates.step(task))
    return lambda: stepped(start, batch)[1]["loss"]


def decoding(config: str, *settings: str) -> Run:
    """Translating 64 dates, untrained: as many steps as are allowed."""
    import jax

    from attnlab import config as configs
    from attnlab.tasks import TASKS

    given = configs.load(f"configs/{config}", [*SMALL, *settings])
    task: Any = TASKS.resolve(given.task).load(given, None, ("train", "test"))
    params = task.init(jax.random.key(0))
    sources = [source for source, _ in task.data.rows["test"]]

    def run() -> list[float]:
        best = [beams[0] for beams in task.translate(params, sources)]
        return [float(sum(beam.tokens)) for beam in best] + [beam.log_prob for beam in best]

    return run


def kernel(name: str, **options: Any) -> Run:
    """A kernel alone, forward and backward, [2,4,512,64]."""
    from benchmarks.kernels import attention, differentiated

    program, given = differentiated(attention(name, **options), (2, 4, 512, 64))
    return lambda: program(*given)


def mechanism(name: str) -> Run:
    """Multihead self-attention with a kernel, forward and backward, [8,128,256]."""
    from benchmarks.kernels import compiled, layer

    function, params, x = layer((8, 128, 4, 64), name)
    program = compiled(function, params, x)
    return lambda: program(params, x)


CASES: dict[str, Callable[[], Run]] = {
    "step: rnnsearch": partial(step, "translation.py:rnnsearch"),
    "step: transformer": partial(step, "translation.py:transformer"),
    **{
        f"step: quickstart, {name}": partial(step, "translation.py:rnnsearch", *QUICKSTART, *own)
        for name, own in VARIANTS.items()
    },
    "step: luong": partial(step, "translation.py:luong"),
    "step: convs2s": partial(step, "translation.py:convs2s"),
    "step: lstm, language model": partial(step, "language_modelling.py:lstm"),
    "step: attention, language model": partial(step, "language_modelling.py:attention"),
    "decoding: rnnsearch": partial(decoding, "translation.py:rnnsearch"),
    "decoding: transformer": partial(decoding, "translation.py:transformer"),
    "decoding: rnnsearch, beam": partial(decoding, "translation.py:rnnsearch", *BEAM),
    "decoding: transformer, beam": partial(decoding, "translation.py:transformer", *BEAM),
    "kernel: plain": partial(kernel, "plain"),
    "kernel: blockwise": partial(kernel, "blockwise"),
    "kernel: blockwise, causal": partial(kernel, "blockwise", causal=True),
    "kernel: blockwise, window 64": partial(kernel, "blockwise", causal=True, window=64),
    "multihead: plain": partial(mechanism, "plain"),
    "multihead: blockwise": partial(mechanism, "blockwise"),
}


def serve() -> None:
    """Run the case that each line of stdin names; answer with processor seconds and a number that
    what was computed is known by.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before jax counts the cores
    import jax

    answers, sys.stdout = sys.stdout, sys.stderr
    name, run = "", None
    for line in sys.stdin:
        if line.strip() != name:
            name = line.strip()
            run = CASES[name]()
            jax.block_until_ready(run())
        assert run is not None
        clock = time.process_time()
        output = jax.block_until_ready(run())
        seconds = time.process_time() - clock
        checksum = sum(float(abs(x).sum()) for x in map(jax.numpy.asarray, jax.tree.leaves(output)))
        print(seconds, checksum, file=answers, flush=True)


class Checkout:
    """A process that serves from a checkout."""

    def __init__(self, folder: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self.folder, pipe = folder, subprocess.PIPE
        code = {**os.environ, "PYTHONPATH": str(Path(folder).resolve())}
        self.process: Any = subprocess.Popen(
            command, cwd=folder, env=code, stdin=pipe, stdout=pipe, text=True
        )

    def ask(self, name: str) -> tuple[float, float]:
        """One run of a case: seconds and what it is known by.

        Raises:
          UserError: the process has ended.
        """
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            raise UserError(f"{name} failed in {self.folder}; its traceback is above")
        return float(answer[0]), float(answer[1])

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def measured(folders: list[str], name: str, count: int, seconds: float) -> list[list[float]]:
    """Seconds of the rounds of a case, by whose they are, in processes started for it.

    Raises:
      UserError: the checkouts compute something else.
    """
    checkouts = [Checkout(folder) for folder in folders]
    try:
        checksums = [checkout.ask(name)[1] for checkout in checkouts]
        if not all(math.isclose(checksums[0], other, rel_tol=AGREE) for other in checksums):
            raise UserError(f"{name}: {checksums[0]} was computed before, {checksums[1]} after")
        taken: list[list[float]] = [[] for _ in folders]
        stop = time.monotonic() + seconds
        while len(taken[0]) < count and (len(taken[0]) < 5 or time.monotonic() < stop):
            turn = len(taken[0]) % len(checkouts)
            for place in [*range(turn, len(checkouts)), *range(turn)]:
                taken[place].append(checkouts[place].ask(name)[0])
        return taken
    finally:
        for checkout in checkouts:
            checkout.close()


def row(name: str, taken: list[list[float]]) -> tuple[Any, ...]:
    """The milliseconds, and how the later and the control stand to the earlier."""
    first, *others = taken
    ratios: list[float] = []
    for other in others:
        by_round = [b / a for a, b in zip(first, other, strict=True)]
        ratios += [min(other) / min(first), statistics.median(by_round)]
    written = (f"{ratio:.3f}" for ratio in ratios)
    return (name, f"{1e3 * min(first):.3g}", f"{1e3 * min(taken[1]):.3g}", *written, len(first))


def main() -> None:
    """Serve, or compare two checkouts and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="*", metavar="FOLDER", help="the earlier and the later")
    parser.add_argument("--only", default="", help="a regular expression for cases")
    parser.add_argument("--starts", type=int, default=3, help="of the processes of each case")
    parser.add_argument("--rounds", type=int, default=100, help="at most, of each start")
    parser.add_argument("--seconds", type=float, default=20, help="at most, for each start")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        return serve()
    if len(chosen.checkouts) != 2:
        parser.error("name two folders: the earlier and the later checkout")
    about, seconds, rows = rounds.machine(), {}, []
    for name in (name for name in CASES if re.search(chosen.only, name)):
        taken: list[list[float]] = [[], [], []]
        for _ in range(chosen.starts):
            folders = [*chosen.checkouts, chosen.checkouts[0]]
            for all_of, more in zip(
                taken, measured(folders, name, chosen.rounds, chosen.seconds), strict=True
            ):
                all_of += more
        seconds[name] = dict(zip(WHO, taken, strict=True))
        rows.append(row(name, taken))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    columns = (
        "case",
        "ms before",
        "ms after",
        "least: after",
        "median: after",
        "least: control",
        "median: control",
        "rounds",
    )
    table(f"two checkouts, {about['processor']}, load before {about['load_before']}", columns, rows)
    rounds.save(chosen.json, {"seconds": seconds, **about})
    return None


if __name__ == "__main__":
    rounds.main(main)
