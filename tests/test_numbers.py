"""Absurd numbers in the numeric settings of some configs are taken as they are or are one line, and
none hangs, allocates or crashes.
"""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.config.registry import build
from attnlab.config.schema import Node
from attnlab.data import SOURCES
from attnlab.errors import UserError
from attnlab.tasks import TASKS
from attnlab.training.run import check
from tests.commands.tiny import refused, train
from tests.sampling import rounds, seed

INTS = (10**400, 10**30, 10**9, 2**31, -1)
FLOATS = (10**400, 1e300, 1e-320, -math.inf, math.nan)
RNNSEARCH = "configs/translation.py:rnnsearch"
CONFIGS = {
    RNNSEARCH: "training.accumulate=2",
    "configs/translation.py:transformer": (
        "system.encoder_visibility=bigbird system.encoder_attention.kernel=plain"
        " system.encoder_attention.positions=rope schedule=stepped optimizer=adafactor"
        " system.encoder_attention.positions.scaling=yarn"
    ),
    "configs/translation.py:gnmt": (
        "data=grammar optimizer=sgd system.attention.alignment=local_m"
    ),
    "configs/language_modelling.py": "data=joined data.of=spelling",
    "configs/classification.py": "data=lookup optimizer=adagrad schedule=linear",
    "configs/g2p.py": "data=of_length data.of=spelling optimizer=adadelta",
}

HARMLESS = {  # whole numbers for which 10**9 says "never" or "all of it", and costs nothing
    *("vocabulary.min_frequency", "decoding.top_k", "optimizer.minimum_factored"),
    *("training.steps", "training.log_every", "training.evaluate_every"),
    *("training.evaluate_rows", "training.stop.patience"),
    *("schedule.warmup", "schedule.hold", "schedule.every", "checkpoint.every", "checkpoint.keep"),
}


def numbers(config: Node) -> Iterator[tuple[str, Any]]:
    """Every numeric setting by its full name; of a tuple its last item stands for all."""
    for name, value in configs.flat(config).items():
        last = value[-1] if isinstance(value, tuple) and value else value
        if isinstance(last, (int, float)) and not isinstance(last, bool):
            yield name, value


def changed(config: Node, name: str, value: Any) -> ConfigDict:
    """A copy with another value, past all checks of an override, as a config file may have it."""
    tree = configs.to_dict(config)
    *path, key = name.split(".")
    node = tree
    for one in path:
        node = node[one]
    node[key] = value
    return configs.from_dict(tree)


@pytest.mark.parametrize("file", CONFIGS)
def test_an_absurd_number_is_taken_or_one_line(file: str) -> None:
    """What is refused names the setting; what is accepted is a number that floats and int32 hold,
    and whole ones that cost nothing.
    """
    config = configs.load(file, CONFIGS[file].split())
    cases = [
        (name, old, value)
        for name, old in numbers(config)
        for value in (FLOATS if isinstance(old, float) else INTS)
    ]
    assert len(cases) > 150
    for name, old, wild in random.Random(f"{seed()} {file}").sample(cases, rounds(30, len(cases))):
        value = (*old[:-1], wild) if isinstance(old, tuple) else wild
        other = changed(config, name, value)
        try:
            (configs.prepare if value == 10**400 else configs.validate)(other)
        except UserError as error:
            line = str(error)
            assert name.rpartition(".")[2] in line and len(line) < 400, (name, value, line)
            continue
        assert not isinstance(old, float), (name, value)
        harmless = value in (10**9, 2**31) and (name in HARMLESS or "seed" in name)
        assert value == -1 or harmless, (name, value)


# the others take half a minute
@pytest.mark.parametrize("file", ["configs/language_modelling.py", "configs/classification.py"])
def test_what_the_checks_leave_is_built_or_refused(file: str) -> None:
    """-1 in every whole number, a large and a small number in every fraction: by shapes alone, as
    `train` does it before it reads data.
    """
    config = configs.load(file, CONFIGS[file].split())
    for name, old in numbers(config):
        node = name.partition(".")[0]
        if node not in ("system", "data", "optimizer", "schedule", "decoding") or "dropout" in name:
            continue
        for value in (-1.0, 1e37) if isinstance(old, float) else (-1,):
            other = changed(config, name, (value,) if isinstance(old, tuple) else value)
            try:
                prepared = configs.prepare(other)
                build(SOURCES, prepared.data, "data")()
                if node != "data":
                    check(TASKS.resolve(prepared.task), prepared)
            except UserError:
                continue


RANGE = "expected a whole number of at least {} and at most {}"
LARGE: list[tuple[str, str]] = [
    ("batch.size=1" + "0" * 30, "expected a whole number below 2^32"),
    ("batch.size=1" + "0" * 400, "config.batch.size=a number of 1329 bits: expected a whole"),
    ("batch.size=1000000000", RANGE.format("1", "16,777,216")),
    (
        "batch.size=10000000",
        "config.batch.size=10000000 sentences of up to batch.max_length=32 tokens are 320,000,000 "
        "positions in a batch",
    ),
    ("batch.max_length=1000000000", RANGE.format("1", "1,048,576")),
    ("batch.buckets=8,1000000000", "config.batch.buckets=(8, 1000000000): expected increasing"),
    ("decoding.max_extra=1" + "0" * 20, "expected a whole number below 2^32"),
    ("decoding.max_extra=1000000000", RANGE.format("0", "1,048,576")),
    ("decoding.max_extra=1000000", "batch=64 texts, 5 for each, of up to 1,000,064 tokens"),
    ("decoding.max_ratio=1e300", "config.decoding.max_ratio=1e+300: expected a number that"),
    ("decoding.max_ratio=1" + "0" * 400, "config.decoding.max_ratio="),
    ("schedule.peak=1e-320", "expected a number that float32 holds"),
    ("training.steps=2000000000", RANGE.format("1", "1,000,000,000")),
    ("training.accumulate=1000000000", RANGE.format("1", "65,536")),
    ("data.examples=1000000000", "expected a whole number of at least"),
    ("system.decoder=1000000000", RANGE.format("1", "1,048,576")),
    ("system.decoder=1000000", "config.system: its parameters would take 11,"),
    ("seed=4294967296", "expected a whole number below 2^32"),
    ("seed=-1", RANGE.format("0", "4,294,967,295")),
    ("data.seed=-1", RANGE.format("0", "4,294,967,295")),
    ("data.seed=4294967296", "expected a whole number below 2^32"),
]


@pytest.mark.parametrize(("override", "words"), LARGE)
def test_the_line_of_a_number_that_is_too_large(override: str, words: str, tmp_path: Path) -> None:
    line = refused(*train("translation.py:rnnsearch", tmp_path / "run", override))
    assert (f"config.{override}: {words}" if words.startswith("expected") else words) in line
    assert not (tmp_path / "run").exists()


def test_the_largest_seed_is_taken() -> None:
    """2^32 - 1 gives a key of its own, as all before it do."""
    assert configs.load(RNNSEARCH, [f"seed={2**32 - 1}"]).seed == 2**32 - 1


def test_a_sweep_bounds_its_seeds_alike(tmp_path: Path) -> None:
    (tmp_path / "which.py").write_text(
        "from attnlab.experiments import Experiment, rows\n\n\ndef get_experiment(argument=''):\n"
        f"    return Experiment(question='?', config={RNNSEARCH!r}, compare=rows({{'a': {{}}}}))\n"
    )
    for number in (2**32, -1, 10**30):
        sweep = ["sweep", str(tmp_path / "which.py"), f"--dir={tmp_path / 'sweep'}"]
        line = refused(*sweep, f"--seeds=0,{number}")
        assert "whole numbers of at least 0 are needed, all below 2**32" in line
    assert not (tmp_path / "sweep").exists()
