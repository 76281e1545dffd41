"""Trials trained as one program record, save, end and go on as the same trials alone do."""

import functools
import io
import itertools
import os
import signal
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.progress import Progress
from attnlab.records import attempts
from attnlab.records.stream import read_records
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.parallel import place_trials
from attnlab.training.session import Interrupt, Outcome, Session
from attnlab.training.settings import Parallel
from attnlab.training.stacked import choose_trials, stack_batches, train, uses_randomness
from attnlab.training.updates import Updates
from tests.changed import changed
from tests.commands.tiny import under
from tests.refusals import check_refused
from tests.tasks.tiny import load
from tests.training import toy
from tests.training.toy import ROWS, Line, Noisy, Trailing, points, settings

pytestmark = pytest.mark.usefixtures("plain_steps")
Batches = Callable[[int], dict[str, np.ndarray]]
OfSeed = Callable[[int], Batches]
Configs = Sequence[ConfigDict]


class Lines(Line):
    """`Line`, several at once."""

    def evaluate_stacked(self, params: Any, split: str, rows: int = 0) -> list[dict[str, float]]:
        """One after another."""
        numbers = range(len(jax.tree.leaves(params)[0]))
        each = (jax.tree.map(lambda leaf, i=i: leaf[i], params) for i in numbers)
        return [self.evaluate(one, split) for one in each]


class NoisyLines(Noisy, Lines):
    """`Noisy`, several at once."""


def order(seed: int) -> Batches:
    """The batches of a seed."""
    return lambda step: points(1000 * seed + step)


def uneven(seed: int) -> Batches:
    """The same with half the rows in some steps, others for each seed."""

    def batch(step: int) -> dict[str, np.ndarray]:
        rows = ROWS if np.random.default_rng((seed, step)).integers(2) else ROWS // 2
        return {name: values[:rows] for name, values in order(seed)(step).items()}

    return batch


def together(
    folder: Path,
    configs: Configs,
    task: Any = None,
    of_seed: OfSeed = order,
    *,
    stop: int | None = None,
    devices: int = 1,
) -> list[Outcome]:
    """Train the trials as one program, in `folder`/0, /1, ...; with `stop` a SIGTERM comes when a
    batch of that number is asked for.
    """
    workdirs = [folder / str(number) for number in range(len(configs))]
    for workdir in workdirs:
        workdir.mkdir(parents=True, exist_ok=True)

    def watched(batches: Batches) -> Batches:
        def fetched(step: int) -> dict[str, np.ndarray]:
            if step == stop and interrupt.signal is None:
                os.kill(os.getpid(), signal.SIGTERM)
            return batches(step)

        return fetched

    own = [watched(of_seed(config.seed)) for config in configs]
    progress = Progress(configs[0].training.steps, stream=io.StringIO())
    with Interrupt() as interrupt, progress:
        session = Session(progress, interrupt, time.perf_counter())
        place, task = place_trials(len(configs), Parallel(devices=devices)), task or Lines()
        parts = zip(configs, workdirs, own, strict=True)
        return train([toy.made(*one[:2], task, one[2], place) for one in parts], session)


def alone(
    folder: Path, configs: Configs, task: Any = None, of_seed: OfSeed = order
) -> list[Outcome]:
    """The same trials one after another."""
    return [
        toy.run(folder / str(number), config, task or Lines(), batches=of_seed(config.seed))
        for number, config in enumerate(configs)
    ]


def numeric(records: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Records without the name of their split."""
    return [{name: one[name] for name in one if name != "split"} for one in records]


def records_of(folder: Path, number: int) -> list[dict[str, Any]]:
    """What a trial has recorded."""
    return read_records(folder / str(number) / "metrics.jsonl")


def assert_alike(
    one: Path,
    other: Path,
    configs: Configs,
    task: Any = None,
    close: float = 2e-6,
    stopped: bool = False,
) -> None:
    """Records and the newest states, all within `close` (relative for records, absolute for
    parameters), and steps saved, unless a stop left a checkpoint of its own.
    """
    for number, config in enumerate(configs):
        records, others = (records_of(folder, number) for folder in (one, other))
        fields, oracle = ([(record["split"], *record) for record in of] for of in (records, others))
        assert fields == oracle and records
        for value, expected in zip(numeric(records), numeric(others), strict=True):
            assert value == pytest.approx(expected, rel=close), number
        folders = [folder / str(number) / "checkpoints" for folder in (one, other)]
        stores = [Checkpoints(folder, 9, read_only=True) for folder in folders]
        states = [store.restore(Updates.of(config).saved_like(task or Lines())) for store in stores]
        assert states[0].step == states[1].step
        assert states[0].meta["best"] == pytest.approx(states[1].meta["best"], rel=close)
        if not stopped:
            assert stores[0].steps() == stores[1].steps() and stores[0].best == stores[1].best
        for leaf, expected in zip(*(jax.tree.leaves(state.tree) for state in states), strict=True):
            assert leaf.dtype == expected.dtype
            np.testing.assert_allclose(leaf, expected, atol=close)
        for store in stores:
            store.close()


def check_trained_both_ways(
    folder: Path, configs: Configs, task: Any = None, of_seed: OfSeed = order, close: float = 2e-6
) -> tuple[list[Outcome], list[Outcome]]:
    """Train the trials as one program and alone: all is alike. What came of both."""
    stacked = together(folder / "stacked", configs, task, of_seed)
    apart = alone(folder / "alone", configs, task, of_seed)
    assert_alike(folder / "stacked", folder / "alone", configs, task, close)
    return stacked, apart


@pytest.mark.quick
def test_seeds_and_numbers_train_as_they_do_alone(tmp_path: Path) -> None:
    """Each with its own batches, first parameters, learning rate, warm-up, clipping, average,
    evaluations and checkpoints.
    """
    own = {"training__clip": 0.5, "schedule__peak": 0.03, "schedule__warmup": 3}
    numbers = ((0, 0.9, {}), (1, 0.9, {}), (1, 0.5, own))
    configs = [settings(seed=seed, training__ema=ema, **more) for seed, ema, more in numbers]
    outcomes, expected = check_trained_both_ways(tmp_path, configs)
    for outcome, oracle in zip(outcomes, expected, strict=True):
        assert (outcome.state, outcome.step) == (oracle.state, oracle.step)
        assert outcome.message == oracle.message
        assert (outcome.seconds_to_first_step or 0) > 0
    losses = [[record["loss"] for record in records_of(tmp_path / "stacked", i)] for i in range(3)]
    assert losses[0][0] != losses[1][0] and losses[1][-1] != losses[2][-1]
    for number in range(3):
        timing = read_records(tmp_path / "stacked" / str(number) / "timing.jsonl")
        paces = [record for record in timing if "step_seconds" in record]
        assert [record["step"] for record in paces] == [2, 4, 6, 8, 9]
        assert {record["together"] for record in paces} == {3}
        assert [record["step"] for record in timing if "compile_seconds" in record] == [1]
        events = [one["event"] for one in attempts.read(tmp_path / "stacked" / str(number))]
        assert events[0] == "start" and "end" not in events  # the last word is the caller's


@pytest.mark.parametrize("draws", [False, True])
def test_batches_of_other_sizes_are_trained_as_alone(draws: bool, tmp_path: Path) -> None:
    """Smaller ones are padded where nothing is drawn. Draws depend on the shape of a batch: trials
    wait for others with the same, and are then not all at the same step.
    """
    configs = [settings(seed=seed) for seed in range(2)]
    check_trained_both_ways(tmp_path, configs, NoisyLines() if draws else None, uneven)


def test_one_that_diverges_is_left_behind(tmp_path: Path) -> None:
    """By its loss, or by parameters that are not finite when they are to be saved; the others do
    not notice.
    """
    same = {"seed": 1, "training__clip": 0.0, "checkpoint__every": 1}
    sgd = {"optimizer__name": "sgd", "schedule__warmup": 0}
    configs = [settings(schedule__peak=peak, **sgd, **same) for peak in (0.1, 1e30, 0.05, 3e38)]
    outcomes, expected = together(tmp_path / "stacked", configs), alone(tmp_path / "alone", configs)
    assert [one.state for one in outcomes] == ["done", "diverged", "done", "diverged"]
    for outcome, oracle in zip(outcomes, expected, strict=True):
        assert outcome.step == oracle.step
        assert outcome.message.split()[-1:] == oracle.message.split()[-1:]
    for number in (0, 2):
        records = (records_of(tmp_path / name, number) for name in ("stacked", "alone"))
        value, oracle = map(numeric, records)
        assert len(value) == len(oracle)
        assert value[-1] == pytest.approx(oracle[-1], rel=2e-6)
    assert Checkpoints(tmp_path / "stacked" / "3" / "checkpoints", 1, read_only=True).steps() == []


@pytest.mark.parametrize(
    "stop",
    [pytest.param(3, marks=pytest.mark.stored_by_orbax), pytest.param(5, marks=pytest.mark.full)],
)
def test_stopped_together_each_goes_on_alone(stop: int, tmp_path: Path) -> None:
    """The batch of that number is asked for after that step; 3 is also a step of evaluation."""
    configs = [settings(seed=seed, training__ema=0.5) for seed in range(2)]
    alone(tmp_path / "whole", configs)
    outcomes = together(tmp_path / "cut", configs, stop=stop)
    assert [(one.state, one.step) for one in outcomes] == [("interrupted", stop)] * 2
    assert "signal 15" in outcomes[0].message
    assert [one.state for one in alone(tmp_path / "cut", configs)] == ["done"] * 2
    assert_alike(tmp_path / "cut", tmp_path / "whole", configs, stopped=True)


@pytest.mark.full
def test_stopped_alone_they_go_on_together(tmp_path: Path) -> None:
    """From different steps: one done, one in the middle, one not begun."""
    configs = [settings(seed=seed) for seed in range(3)]
    alone(tmp_path / "whole", configs)
    toy.run(tmp_path / "cut" / "0", configs[0], Lines(), batches=order(0))
    toy.run(tmp_path / "cut" / "1", configs[1], Lines(), batches=order(1), stop=5)
    done = (tmp_path / "cut" / "0" / "metrics.jsonl").read_bytes()
    outcomes = together(tmp_path / "cut", configs)
    assert [(outcome.state, outcome.step) for outcome in outcomes] == [("done", 9)] * 3
    assert_alike(tmp_path / "cut", tmp_path / "whole", configs, stopped=True)
    assert (tmp_path / "cut" / "0" / "metrics.jsonl").read_bytes() == done


@pytest.mark.parametrize(
    ("trials", "devices"), [(3, 2), pytest.param(5, 4, marks=pytest.mark.full)]
)
def test_over_devices(trials: int, devices: int, tmp_path: Path) -> None:
    """Also where they do not divide the trials: what fills up the last device leaves no trace."""
    configs = [settings(seed=seed, schedule__peak=0.1 / (1 + seed)) for seed in range(trials)]
    together(tmp_path / "wide", configs, of_seed=uneven, devices=devices)
    together(tmp_path / "one", configs, of_seed=uneven)
    assert_alike(tmp_path / "wide", tmp_path / "one", configs)
    folders = {path.name for path in (tmp_path / "wide").iterdir()}
    assert folders == {str(number) for number in range(trials)}


@pytest.mark.full
def test_a_system_with_dropout_and_two_widths(tmp_path: Path) -> None:
    """The real task: batches of 8 and of 5 columns in another order for each seed, all of it as
    alone.
    """
    shared = ["batch.buckets=5,8", "system.dropout=0.2", "schedule.warmup=2"]
    shared += under("training", steps=6, log_every=1, evaluate_every=3)
    shared.append("optimizer.eps=1e-3")  # Adam divides by the size of a gradient, also of zero
    task = load("rnn_encoder_decoder", *shared)
    configs = [changed(task.config, seed=seed) for seed in range(2)]
    assert len({task.batches(1, i)(j)["source"].shape for i in range(2) for j in range(4)}) == 2
    check_trained_both_ways(tmp_path, configs, task, functools.partial(task.batches, 1), close=2e-5)


def test_every_trial_has_an_equal_share_of_the_step_and_its_own_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens over its share of the seconds; a step of three trials takes three shares. The clock
    says that every step takes a second.
    """
    clock = types.SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("attnlab.training.stacked.time", clock)
    steps = {"training__steps": 4, "training__log_every": 1}
    together(tmp_path, [settings(seed=seed, **steps) for seed in range(3)])
    shares = []
    for number in range(3):
        folder = tmp_path / str(number)
        records = [one for one in records_of(tmp_path, number) if one["split"] == "train"]
        tokens = {one["step"]: one["tokens"] for one in records}
        paces = [one for one in read_records(folder / "timing.jsonl") if "step_seconds" in one]
        assert [(one["step"], one["together"]) for one in paces] == [(step, 3) for step in tokens]
        for one in paces:
            counted = one["tokens_per_second"] * one["step_seconds"]
            assert counted == pytest.approx(tokens[one["step"]], rel=1e-6)
        shares += [one["step_seconds"] for one in paces]
    assert shares == pytest.approx([1 / 3] * 12)


def test_what_cannot_be_stacked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="differ in more than their seeds and numbers"):
        together(tmp_path, [settings(), settings(training__accumulate=2)])


def test_records_of_a_trial_that_were_changed_are_refused(tmp_path: Path) -> None:
    """As those of a run alone; the other trial is as it was."""
    configs = [settings(seed=seed, training__steps=4, checkpoint__every=2) for seed in (0, 1)]
    together(tmp_path, configs, stop=3)
    path, other = tmp_path / "1" / "metrics.jsonl", (tmp_path / "0" / "metrics.jsonl").read_bytes()
    path.write_bytes(path.read_bytes() * 2)
    check_refused(f"{path} holds", together, tmp_path, configs)
    assert (tmp_path / "0" / "metrics.jsonl").read_bytes() == other


def test_who_moves_next() -> None:
    assert choose_trials({0: (8, 4), 3: (8, 6), 4: (8, 6)}, pads=False) == [3, 4]
    assert choose_trials({0: (8, 4), 3: (8, 6)}, pads=False) == [0]
    assert choose_trials({0: (8, 4), 3: (8, 6)}, pads=True) == [0, 3]
    # neither fits into the other
    assert choose_trials({0: (32, 4), 3: (8, 16), 5: (8, 16)}, pads=True) == [3, 5]


def test_a_loss_that_draws_is_known() -> None:
    key_free, drawing = Line(), Noisy()
    params = key_free.init(jax.random.key(0))
    assert not uses_randomness(key_free, params, points(0)) and uses_randomness(
        drawing, params, points(0)
    )


def test_smaller_batches_are_padded_and_who_waits_has_zeros() -> None:
    first, second = np.ones((2, 3), np.int32), np.full((1, 4), 7, np.int32)
    fed = stack_batches({0: {"ids": first}, 2: {"ids": second}}, 3)
    assert fed["moves"].tolist() == [True, False, True] and fed["batch"]["ids"].shape == (3, 2, 4)
    assert fed["batch"]["ids"][0].tolist() == [[1, 1, 1, 0]] * 2
    assert not fed["batch"]["ids"][1].any()
    assert fed["batch"]["ids"][2].tolist() == [[7] * 4, [0] * 4]


class TrailingLines(Trailing, Lines):
    """`Trailing`, several at once."""


@pytest.mark.stored_by_orbax
def test_every_trial_remembers_its_own_rows(tmp_path: Path) -> None:
    """Each is stopped together with the other, on two devices, and goes on alone; one learns faster
    than the other, and does not end for it.
    """
    configs = [settings(seed=seed, schedule__peak=0.1 / (1 + seed)) for seed in range(2)]
    alone(tmp_path / "alone", configs, TrailingLines())
    together(tmp_path / "stacked", configs, TrailingLines(), stop=5, devices=2)
    ended = alone(tmp_path / "stacked", configs, TrailingLines())
    assert [outcome.state for outcome in ended] == ["done"] * 2
    folders = tmp_path / "stacked", tmp_path / "alone"
    assert_alike(*folders, configs, TrailingLines(), stopped=True)
