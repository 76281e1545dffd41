"""How much sooner are N trials done as one program than one after another?

    python -m benchmarks.stacking --config=configs/translation.py:transformer --trials=32 --steps=200

The trials differ in their seed and run as `attnlab.training.loop` and `attnlab.training.stacked`
run them, records and one last evaluation included, on one device. Both ways have run before, so
that compiled programs come from the cache; then they take turns in one process. Two figures for
each: `step_seconds`, the time within training steps (the device at work, batches made, metrics
fetched), and `seconds`, from the data in memory to the last checkpoint, with tracing and loading of
programs: alone, once for every trial.
"""

import argparse
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab import config as configs
from attnlab.commands import session, take_overrides
from attnlab.progress import Progress, table
from attnlab.records.stream import read_records
from attnlab.training.session import Interrupt, Session
from attnlab.training.settings import Parallel
from benchmarks import rounds

Figures = dict[str, float]
Way = Callable[[list[Any], Any, Path], None]


def main() -> None:
    """Measure and print the table."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="configs/translation.py:transformer")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(rest)
    lasting = [
        f"training.steps={chosen.steps}",
        "training.evaluate_every=0",
        "checkpoint.every=0",
        "training.log_every=1",
    ]
    config = configs.load(chosen.config, [*overrides, *lasting])
    about = rounds.machine()
    session.start_jax()
    figures = measure(config, chosen.trials, chosen.rounds)
    rows, ratios = [], {}
    for name in ("step_seconds", "seconds"):
        apart, at_once = (
            statistics.median(run[name] for run in figures[way]) for way in ("alone", "stacked")
        )
        ratios[name] = apart / at_once
        rows.append((name, apart, at_once, apart / at_once))
    title = (
        f"{chosen.trials} trials of {chosen.steps} steps, {chosen.config}, medians of"
        f" {chosen.rounds} rounds; {about['cores']} cores"
    )
    table(title, ("figure", "one after another", "stacked", "times sooner"), rows)
    rounds.save(chosen.json, {"title": title, "figures": figures, "times_sooner": ratios, **about})


def measure(config: Any, trials: int, count: int) -> dict[str, list[Figures]]:
    """The figures of both ways in each round; what fills the compile cache before does not
    count.
    """
    from attnlab.tasks import TASKS

    task = TASKS.resolve(config.task).load(config, None, ("train", "valid"))
    seeded = [configs.prepare(config, [f"seed={seed}"]) for seed in range(trials)]
    timed(one_after_another, seeded[:1], task)
    timed(stacked, seeded, task)
    figures: dict[str, list[Figures]] = {"alone": [], "stacked": []}
    ways = {"alone": one_after_another, "stacked": stacked}
    for number in range(count):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            figures[name].append(timed(ways[name], seeded, task))
            print(f"round {number + 1}: {name} {figures[name][-1]}", file=sys.stderr, flush=True)
    return figures


def timed(way: Way, seeded: list[Any], task: Any) -> Figures:
    """Train all in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        clock = time.perf_counter()
        way(seeded, task, Path(folder))
        seconds = time.perf_counter() - clock
        records = [
            record for path in Path(folder).glob("*/timing.jsonl") for record in read_records(path)
        ]
    return {
        "step_seconds": sum(record.get("step_seconds", 0.0) for record in records),
        "seconds": seconds,
    }


def one_after_another(seeded: list[Any], task: Any, folder: Path) -> None:
    """Each trial as a run of its own, on one device."""
    from attnlab.training.loop import train
    from attnlab.training.parallel import backend

    devices = backend(Parallel(backend="mesh", devices=1))
    with Interrupt() as interrupt:
        for run in runs(seeded, task, folder, devices):
            with quiet(run.config) as progress:
                train(run, Session(progress, interrupt, time.perf_counter()))


def stacked(seeded: list[Any], task: Any, folder: Path) -> None:
    """All trials as one program, on one device."""
    from attnlab.training.parallel import place_trials
    from attnlab.training.stacked import train

    devices = place_trials(len(seeded), Parallel(devices=1))
    with Interrupt() as interrupt, quiet(seeded[0]) as progress:
        session = Session(progress, interrupt, time.perf_counter())
        train(runs(seeded, task, folder, devices), session)


def runs(seeded: list[Any], task: Any, folder: Path, devices: Any) -> list[Any]:
    """A run for each config, in a folder of its own."""
    from attnlab.training.run import Run
    from attnlab.training.updates import Updates

    return [
        Run(
            config,
            workdir,
            task,
            task.batches(config.training.accumulate, config.seed),
            devices,
            Updates.of(config),
        )
        for config, workdir in zip(seeded, workdirs(folder, seeded), strict=True)
    ]


def workdirs(folder: Path, seeded: list[Any]) -> list[Path]:
    """A folder for each trial."""
    made = [folder / str(config.seed) for config in seeded]
    for workdir in made:
        workdir.mkdir()
    return made


def quiet(config: Any) -> Progress:
    """A progress that nobody sees."""
    return Progress(config.training.steps, every=config.training.steps, stream=io.StringIO())


if __name__ == "__main__":
    rounds.main(main)
