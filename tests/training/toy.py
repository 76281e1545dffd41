"""The smallest thing the training loop can train: a straight line through noisy points, with rows
that do not count.
"""

import io
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.progress import Progress
from attnlab.tasks.base import Task
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.loop import train
from attnlab.training.parallel import Backend, backend
from attnlab.training.run import Run
from attnlab.training.session import Interrupt, Outcome, Session
from attnlab.training.settings import Lora, Parallel, Stop
from attnlab.training.updates import Updates

ROWS, FEATURES = 8, 3
Loss = tuple[jax.Array, dict[str, jax.Array]]


class Line:
    """y = x w + b by least squares; a row whose "real" is 0 has no weight. Evaluation is on points
    of its own.

    Attributes:
      scripted: evaluation losses to report in turn in place of the true ones, or loss and fit.
    """

    measures: Mapping[str, str] = {"loss": "min", "fit": "max"}
    beginning = None

    def __init__(self, scripted: list[Any] | None = None) -> None:
        self.scripted = scripted

    def init(self, key: jax.Array) -> Any:
        """w [3] drawn from the key, b zero."""
        return {"w": jax.random.normal(key, (FEATURES,)), "b": jnp.zeros(())}

    def loss(self, params: Any, batch: Any, key: jax.Array) -> Loss:
        """Half the squared error, summed over the real rows."""
        error = (batch["source"] @ params["w"] + params["b"] - batch["target"]) * batch["real"]
        return 0.5 * (error.astype(jnp.float32) ** 2).sum(), {"tokens": batch["real"].sum()}

    def carried(self) -> None:
        """Nothing goes from step to step."""

    def follow(self, carried: Any, tracked: Any) -> None:
        """Nothing."""

    def remembered(self) -> Any:
        """Nothing."""

    traced_init, shapes = Task.traced_init, Task.shapes

    def weight(self, batch: Any) -> jax.Array:
        """The number of real rows."""
        return jnp.asarray(batch["real"]).sum()

    def evaluate(self, params: Any, split: str, rows: int = 0) -> dict[str, float]:
        """The mean loss over the points of batch 10^6."""
        assert split == "valid"
        if self.scripted is not None:
            said = self.scripted.pop(0)
            both = said if isinstance(said, tuple) else (said,)
            return dict(zip(("loss", "fit"), both, strict=False))
        batch = points(10**6)
        loss, _ = self.loss(params, batch, jax.random.key(0))
        return {"loss": float(loss) / float(batch["real"].sum())}


class Noisy(Line):
    """Its loss is the sum of one uniform draw for each row; nothing else."""

    def loss(self, params: Any, batch: Any, key: jax.Array) -> Loss:
        """Uniform draws, one for each row."""
        draws = jax.random.uniform(key, batch["real"].shape)
        sums = {"squares": (draws**2).sum(), "tokens": batch["real"].sum()}
        return draws.sum() + 0.0 * params["b"], sums


class Trailing(Line):
    """It fits what it remembers of a row, m' = m / 2 + x, instead of x, and counts the steps in
    which the row was real.
    """

    def remembered(self) -> Any:
        """m [8,3] ones, and the counts [8]."""
        return {"m": jnp.ones((ROWS, FEATURES)), "steps": jnp.zeros(ROWS, jnp.int32)}

    def loss(
        self, params: Any, batch: Any, key: jax.Array, remembered: Any = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """The line's, through m'."""
        m = remembered["m"] / 2 + batch["source"]
        loss, sums = super().loss(params, {**batch, "source": m}, key)
        steps = remembered["steps"] + batch["real"].astype(jnp.int32)
        return loss, {**sums, "remembered": {"m": m, "steps": steps}}

    def evaluate(self, params: Any, split: str, rows: int = 0) -> dict[str, float]:
        """The line's, of points alone."""
        return Line().evaluate(params, split)


def points(step: int) -> dict[str, np.ndarray]:
    """The batch of a step: x [8,3], y [8], and 8 or fewer rows that count."""
    rng = np.random.default_rng((7, step))
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] + 0.3 + 0.1 * rng.normal(size=ROWS)).astype(np.float32)
    real = (np.arange(ROWS) < ROWS - step % 3).astype(np.float32)
    return {"source": x, "target": y, "real": real}


def settings(**changes: Any) -> ConfigDict:
    """A config of 9 steps; changes by dotted name with "__" for the dot."""
    training = {"steps": 9, "accumulate": 1, "clip": 1.0, "ema": 0.0, "compute": "float32"}
    training |= {"stop": Stop()}
    training |= {"freeze": (), "rates": (), "layer_decay": 1.0, "evaluate_rows": 0, "lag": 0}
    tree = {
        "seed": 0,
        "optimizer": {"name": "adam"},
        "schedule": {"name": "linear", "peak": 0.1, "warmup": 2},
        "training": {**training, "log_every": 2, "evaluate_every": 3},
        "checkpoint": {"every": 4, "keep": 2, "by": "loss"},
    }
    config = ConfigDict(tree)
    config.lora, config.parallel = Lora(), Parallel()
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(changed)
    return config


def run(
    workdir: Path,
    config: ConfigDict,
    task: Any = None,
    *,
    stop: int | None = None,
    until: int | None = None,
    batches: Any = points,
    place: Backend | None = None,
    stream: io.StringIO | None = None,
) -> Outcome:
    """Train in `workdir`; with `stop` a real SIGTERM comes while that step is under way, with
    `until` it is to end there.
    """
    workdir.mkdir(parents=True, exist_ok=True)

    def fetched(step: int) -> dict[str, np.ndarray]:
        # the loop asks for the next batch, number `stop` from 0, while step `stop` from 1 runs
        if step == stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return batches(step)  # type: ignore[no-any-return]

    progress = Progress(config.training.steps, stream=stream or io.StringIO())
    with Interrupt() as interrupt, progress:
        begin = time.perf_counter()
        devices = place or backend(Parallel(backend="mesh", devices=1))
        session = Session(progress, interrupt, begin, until)
        return train(
            made(config, workdir, task or Line(), fetched if stop else batches, devices), session
        )


def steps_on(place: Backend, step: Any, host: Any, batches: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the state and the metrics, as they lie on the devices, after each step from a state of
    the host.
    """
    state = place.place(host)
    program = place.compile(step, state, place.feed(batches[0]))
    for batch in batches:
        state, metrics = program(state, place.feed(batch))
        yield state, metrics


def last_state(workdir: Path, config: Any, task: Any = None) -> Any:
    """The newest state of a workdir as host arrays, and what is stored beside it."""
    checkpoints = Checkpoints(workdir / "checkpoints", 1, read_only=True)
    restored = checkpoints.restore(Updates.of(config).saved_like(task or Line()))
    checkpoints.close()
    return restored


def made(config: Any, workdir: Path, task: Any, batches: Any, devices: Any) -> Run:
    """A run of these parts."""
    return Run(config, workdir, task, batches, devices, Updates.of(config))
