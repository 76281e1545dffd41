"""JoeyNMT's training speed: target tokens a second, EOS counted, padding and BOS not.

    python REPOSITORY/benchmarks/joeynmt/speed.py REPOSITORY/benchmarks/joeynmt/rnn.yaml --updates=60      (in prepare.py's folder)

Its own training loop from scratch; the clock runs from the sixth update to the end of the last,
batching included. Prints `tokens_per_second X`, so that it can follow `--versus` of
benchmarks/throughput.py.
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import joeynmt.training
import patched  # noqa: F401 - before anything is built
from joeynmt.config import load_config

SKIPPED = 5  # updates that warm up

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("config")
parser.add_argument("--updates", type=int, default=60)
chosen = parser.parse_args()
logging.disable(logging.INFO)
begun: list[float] = []
ended: list[float] = []
tokens: list[int] = []
train_step = joeynmt.training.TrainManager._train_step


def counted(self: Any, batch: Any) -> Any:
    """A training step that notes its start and its tokens."""
    begun.append(time.perf_counter())
    tokens.append(int(batch.ntokens))
    return train_step(self, batch)


def save(self: Any, *arguments: Any, **settings: Any) -> None:
    """Where JoeyNMT saves, after the last update, its training is over; nothing is written."""
    ended.append(time.perf_counter())


joeynmt.training.TrainManager._train_step = counted
joeynmt.training.TrainManager._save_checkpoint = save
config = load_config(Path(chosen.config))
never = 10**9
config["training"].update(
    updates=SKIPPED + chosen.updates, epochs=1000, validation_freq=never, logging_freq=never
)
with tempfile.TemporaryDirectory() as folder:
    config["model_dir"] = folder
    joeynmt.training.train(rank=0, world_size=None, cfg=config, skip_test=True)
if len(begun) != SKIPPED + chosen.updates or not ended:
    sys.exit(
        f"expected {SKIPPED + chosen.updates} updates and a save at the end, saw {len(begun)} and"
        f" {len(ended)}"
    )
seconds = ended[0] - begun[SKIPPED]
print("updates", chosen.updates)
print("tokens", sum(tokens[SKIPPED:]))
print("seconds", f"{seconds:.6g}")
print("tokens_per_second", f"{sum(tokens[SKIPPED:]) / seconds:.6g}")
