"""How many target tokens a second does training reach, and how does that compare with another
toolkit on the same machine?

    python -m benchmarks.throughput --system=rnnsearch --directory=FOLDER
    python -m benchmarks.throughput --system=rnnsearch --directory=FOLDER --rounds=5 --json=out.json --versus="COMMAND"

Trains configs/multi30k.py (batch 64; FOLDER as described there) from scratch for `--updates`
updates on the run's first batches, with the bucketed shapes of training. Counted are real target
tokens, EOS included, padding and BOS not. The clock runs over everything an update of the training
loop does (the step, building the next batch, fetching the metrics), not over compiling and not over
one first update of each shape. Prints `tokens_per_second X` as its last line.

With `--versus` the same runs in alternation with any shell command that prints such a line; then
medians, all values and the ratio, as a table and as JSON. JoeyNMT 2.3 was set up for this in an
environment of its own with torch's CPU build, on the same pieces of the same vocabulary, with the
same sizes and batch 64: benchmarks/joeynmt/README.md. Use an idle machine: torch's threads spin,
and a busy core slows it more than us.
"""

import argparse
import shlex
import sys
import time
from typing import Any

from attnlab import config as configs
from attnlab.commands import session, take_overrides
from benchmarks import rounds


def main() -> None:
    """Measure once, or in alternation with another command."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--system", default="rnnsearch", help="argument of the config: rnnsearch or transformer"
    )
    parser.add_argument("--directory", required=True, help="folder of Multi30k")
    parser.add_argument(
        "--config",
        default="configs/multi30k.py",
        help="another config file; --config.a.b=value overrides as in training",
    )
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument(
        "--versus", metavar="COMMAND", help="a shell command that prints 'tokens_per_second X'"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(rest)
    overrides = [f"data.directory={chosen.directory}", *overrides]
    if chosen.versus is None:
        config = configs.load(f"{chosen.config}:{chosen.system}", overrides)
        for name, value in measure(config, chosen.updates).items():
            print(name, f"{value:.6g}")
        return
    command = [
        sys.executable,
        "-m",
        "benchmarks.throughput",
        f"--system={chosen.system}",
        f"--directory={chosen.directory}",
        f"--config={chosen.config}",
        f"--updates={chosen.updates}",
        *(f"--config.{override}" for override in overrides),
    ]
    title = f"training, {chosen.system}, target tokens a second over {chosen.updates} updates"
    commands = {"attnlab": shlex.join(command), "versus": chosen.versus}
    rounds.compare(
        title, commands, ["tokens_per_second"], chosen.rounds, chosen.json, less_is_better=False
    )


def measure(config: Any, updates: int) -> dict[str, float]:
    """Train `updates` updates and return the figures; the loop is that of `attnlab.training.loop`
    without its records.
    """
    session.start_jax()
    import jax

    from attnlab.tasks import TASKS
    from attnlab.training.optimizers import build_optimizer
    from attnlab.training.parallel import backend
    from attnlab.training.step import first_state, make_step

    task = TASKS.resolve(config.task).load(config, None, ("train",))
    place = backend(config.parallel)
    batches = task.batches(place.count * config.training.accumulate)
    optimizer, _ = build_optimizer(
        config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip
    )
    options = {name: config.training[name] for name in ("accumulate", "ema", "compute")}
    step = make_step(task.loss, task.weight, optimizer, **options)
    begin = jax.jit(
        lambda key: first_state(task.init(key), optimizer, config.training.ema, seed=config.seed)
    )
    state = place.place(jax.device_get(begin(jax.random.key(config.seed))))
    programs: dict[tuple[int, ...], Any] = {}
    clock = time.perf_counter()
    for number in range(updates):
        batch = batches(number)
        if (shape := batch["source"].shape) not in programs:
            fed = place.feed(batch)
            programs[shape] = place.compile(step, state, fed)
            state, sums = programs[shape](state, fed)
            place.fetch(sums)
    compiling = time.perf_counter() - clock
    batch, tokens, clock = batches(0), 0.0, time.perf_counter()
    for number in range(updates):
        state, sums = programs[batch["source"].shape](state, place.feed(batch))
        batch = batches(number + 1)
        tokens += float(place.fetch(sums)["tokens"])
    seconds = time.perf_counter() - clock
    compiled = {"compile_seconds": compiling, "shapes": len(programs)}
    return {
        **compiled,
        "updates": updates,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
    }


if __name__ == "__main__":
    rounds.main(main)
