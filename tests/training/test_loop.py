"""The training loop writes what is due when it is due, and a stop changes nothing; tried on a straight
line.
"""

import functools
import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.records import attempts
from attnlab.records.stream import Metrics, read_records
from attnlab.training import loop
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import backend
from attnlab.training.settings import Parallel
from attnlab.training.updates import best_params
from tests.refusals import check_refused
from tests.training.toy import Line, Noisy, Trailing, last_state, points, run, settings

pytestmark = pytest.mark.usefixtures("plain_steps")
FULL = pytest.mark.full


def saved(workdir: Path) -> list[int]:
    return Checkpoints(workdir / "checkpoints", 1, read_only=True).steps()


def of_split(workdir: Path, split: str) -> list[dict[str, Any]]:
    """The records of one split."""
    records = read_records(workdir / "metrics.jsonl")
    return [record for record in records if record["split"] == split]


def recorded(workdir: Path) -> bytes:
    return (workdir / "metrics.jsonl").read_bytes()


def files(folder: Path) -> dict[Path, bytes]:
    """All files below a folder, and what is in them."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.quick
def test_records_come_in_order_with_the_loss_of_the_formula(tmp_path: Path) -> None:
    config = settings(training__clip=0.0)
    outcome = run(tmp_path, config)
    assert (outcome.state, outcome.step, outcome.message) == ("done", 9, "")
    assert (outcome.seconds_to_first_step or 0) > 0
    records = read_records(tmp_path / "metrics.jsonl")
    expected = [(2, "train"), (3, "valid"), (4, "train"), (6, "train"), (6, "valid")]
    expected += [(8, "train"), (9, "train"), (9, "valid")]
    assert [(record["step"], record["split"]) for record in records] == expected

    params = jax.tree.map(lambda x: np.asarray(x, np.float64), Line().init(jax.random.key(0)))
    _, schedule = build_optimizer(config.optimizer, config.schedule, steps=9, clip=0.0)
    m, v = ({name: np.zeros_like(value) for name, value in params.items()} for _ in range(2))
    for step in range(1, 10):  # the same in NumPy: mean over the real rows, Adam
        batch, rate = points(step - 1), float(schedule(step - 1))
        error = (batch["source"] @ params["w"] + params["b"] - batch["target"]) * batch["real"]
        loss, count = 0.5 * (error**2).sum(), batch["real"].sum()
        grads = {"w": error @ batch["source"] / count, "b": error.sum() / count}
        for record in records:
            if (record["step"], record["split"]) == (step, "train"):
                norm = math.sqrt(sum((grad**2).sum() for grad in grads.values()))
                oracle = {"loss": loss / count, "tokens": count}
                oracle |= {"grad_norm": norm, "learning_rate": rate}
                assert {name: record[name] for name in oracle} == pytest.approx(oracle, rel=2e-5)
        for name, grad in grads.items():
            m[name], v[name] = 0.9 * m[name] + 0.1 * grad, 0.999 * v[name] + 0.001 * grad**2
            root = np.sqrt(v[name] / (1 - 0.999**step)) + 1e-8
            params[name] = params[name] - rate * (m[name] / (1 - 0.9**step)) / root
    for name, value in last_state(tmp_path, config).tree.params.items():
        np.testing.assert_allclose(value, params[name], atol=1e-5)


EVERY = settings(training__ema=0.5, training__log_every=1)
"""A config that records every step."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    """The records of a run of `EVERY` that nothing disturbed, and its last checkpoint."""
    workdir = tmp_path_factory.mktemp("whole")
    run(workdir, EVERY)
    return (workdir / "metrics.jsonl").read_bytes(), last_state(workdir, EVERY)


STOPS = [(3, 2), pytest.param(5, 0, marks=pytest.mark.stored_by_orbax)]
STOPS += [pytest.param(*stop, marks=FULL) for stop in ((1, 0), (3, 0), (8, 9))]


@pytest.mark.parametrize(("stop", "lag"), STOPS)
def test_interrupted_and_resumed_equals_uninterrupted_byte_for_byte(
    stop: int, lag: int, whole: tuple[bytes, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "on_processor", lambda: not lag)
    outcome = run(
        tmp_path / "cut",
        settings(training__ema=0.5, training__log_every=1, training__lag=lag),
        stop=stop,
    )
    assert (outcome.state, outcome.step) == ("interrupted", stop) and "signal 15" in outcome.message
    assert saved(tmp_path / "cut")[-1] == stop
    assert read_records(tmp_path / "cut" / "metrics.jsonl")[-1]["step"] == stop
    assert run(tmp_path / "cut", EVERY).state == "done"
    records, expected = whole
    assert (tmp_path / "cut" / "metrics.jsonl").read_bytes() == records
    cut = last_state(tmp_path / "cut", EVERY)
    assert cut.meta == expected.meta
    jax.tree.map(np.testing.assert_array_equal, cut.tree, expected.tree)


@pytest.mark.parametrize("name", ["mesh", pytest.param("pmap", marks=FULL)])
def test_what_is_remembered_of_rows_survives_a_stop_and_other_devices(
    name: str, tmp_path: Path
) -> None:
    """Byte for byte on as many devices; on fewer, the same rows go on."""
    config, task = settings(training__log_every=1), Trailing()
    run(tmp_path / "whole", config, task, place=backend(Parallel(backend=name, devices=4)))
    for devices in (4, 2):
        workdir = tmp_path / str(devices)
        run(workdir, config, task, stop=5, place=backend(Parallel(backend=name, devices=4)))
        run(workdir, config, task, place=backend(Parallel(backend=name, devices=devices)))
        whole, cut = (last_state(folder, config, task) for folder in (tmp_path / "whole", workdir))
        assert whole.step == cut.step == 9 and whole.tree.remembered["m"].shape == (8, 3)
        assert whole.tree.remembered["steps"].tolist() == [9] * 6 + [6, 3]
        close = functools.partial(np.testing.assert_allclose, atol=0 if devices == 4 else 2e-6)
        jax.tree.map(close, cut.tree, whole.tree)
    assert recorded(tmp_path / "4") == recorded(tmp_path / "whole")


@pytest.mark.parametrize("until", [3, pytest.param(4, marks=FULL), pytest.param(9, marks=FULL)])
def test_until_a_step_is_the_beginning_of_the_whole_run(until: int, tmp_path: Path) -> None:
    """No record more or less than the whole run has up to there, nor asked again; and it can go on.
    At the last step it is simply done.
    """
    config = settings(training__log_every=2)
    run(tmp_path / "whole", config)
    outcome = run(tmp_path / "part", config, until=until)
    assert run(tmp_path / "part", config, until=until).step == until
    assert (outcome.state, outcome.step) == ("done" if until == 9 else "interrupted", until)
    assert saved(tmp_path / "part")[-1] == until
    assert ("stopped as asked" in outcome.message) == (until != 9)
    whole, part = (read_records(tmp_path / name / "metrics.jsonl") for name in ("whole", "part"))
    assert part == [record for record in whole if record["step"] <= until]
    assert run(tmp_path / "part", config).state == "done"
    assert recorded(tmp_path / "part") == recorded(tmp_path / "whole")


def test_checkpoints_hold_no_seed(tmp_path: Path) -> None:
    """The config has it: checkpoints of before it was part of the state go on."""
    config = settings(seed=5, checkpoint__every=3)
    run(tmp_path / "whole", config, Noisy())
    run(tmp_path / "cut", config, Noisy(), stop=5)
    assert last_state(tmp_path / "cut", config).tree.seed is None
    run(tmp_path / "cut", config, Noisy())
    assert recorded(tmp_path / "cut") == recorded(tmp_path / "whole")


def test_a_run_killed_between_checkpoints_drops_the_records_it_cannot_continue(
    whole: tuple[bytes, Any], tmp_path: Path
) -> None:
    """Records are as after kill -9 at step 6: the newest checkpoint is 4, metrics and a torn line
    go further.
    """
    run(tmp_path, EVERY, stop=4)
    path, lines = tmp_path / "metrics.jsonl", whole[0].splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["step"] <= 6]
    path.write_bytes(b"".join(kept) + b'{"step": 7, "spl')
    run(tmp_path, EVERY)
    assert path.read_bytes() == whole[0]


def exchanged(stream: bytes) -> bytes:
    """The records with the first two lines exchanged."""
    first, second, *rest = stream.splitlines(keepends=True)
    return b"".join([second, first, *rest])


SHORTER, OTHER = r"holds \d+ bytes up to step 8", "holds other bytes up to step 8"
HARMS: dict[str, tuple[Any, str]] = {
    "cut": (lambda stream: stream[: stream.index(b"\n") + 1], SHORTER),
    "cut within a line": (lambda stream: stream[: len(stream) // 2], SHORTER),
    "doubled": (lambda stream: stream + stream, SHORTER),
    "edited": (lambda stream: stream.replace(b'"tokens": 8', b'"tokens": 9', 1), OTHER),
    "ends of lines of another system": (lambda stream: stream.replace(b"\n", b"\r\n"), SHORTER),
    "two lines exchanged": (exchanged, OTHER),
    "empty": (lambda stream: b"", "holds 0 bytes up to step 8"),
    "deleted": (None, "is gone"),
}


def test_records_that_are_not_those_of_the_checkpoint_are_refused(tmp_path: Path) -> None:
    """Nothing is written, so that a good copy can be put back; then the run goes on as if nothing
    had been.
    """
    path = tmp_path / "metrics.jsonl"
    run(tmp_path, EVERY, stop=8)
    good = path.read_bytes()
    for case, (harm, words) in HARMS.items():
        path.unlink() if harm is None else path.write_bytes(harm(good))
        before = files(tmp_path)
        told = f"{path} {words}.* was saved with {len(good)}: .*put back a good copy"
        check_refused(told, run, tmp_path, EVERY)
        assert files(tmp_path) == before, case
        path.write_bytes(good)
    assert run(tmp_path, EVERY).state == "done" and path.read_bytes().startswith(good)


def earlier(
    self: Checkpoints, step: int, tree: Any, meta: Any, best: bool, save: Any = Checkpoints.save
) -> Any:
    """An earlier version kept less beside a checkpoint."""
    return save(self, step, tree, {"best": meta["best"]}, best)


@pytest.mark.stored_by_orbax
def test_records_are_compared_with_the_checkpoint_that_the_run_falls_back_to(
    whole: tuple[bytes, Any], tmp_path: Path
) -> None:
    """They are not compared with the damaged newer one; and a checkpoint of before there was
    anything to compare with goes on.
    """
    config, path = EVERY, tmp_path / "cut" / "metrics.jsonl"
    run(tmp_path / "cut", config, stop=8)
    good = path.read_bytes()
    for file in files(tmp_path / "cut" / "checkpoints" / "8"):
        file.write_bytes(b"")
    path.write_bytes(good.replace(b'"step": 2', b'"step": 1', 1))
    check_refused("holds other bytes up to step 6", run, tmp_path / "cut", config)
    path.write_bytes(good)
    assert run(tmp_path / "cut", config, stop=8).state == "interrupted"
    assert path.read_bytes() == good

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", earlier)
        run(tmp_path / "older", config, stop=5)
    (tmp_path / "older" / "metrics.jsonl").unlink()
    assert run(tmp_path / "older", config, stop=7).state == "interrupted"  # as it always was
    assert run(tmp_path / "older", config).state == "done"  # and from then on it is compared
    run(tmp_path / "cut", config)
    assert path.read_bytes() == whole[0]


def test_a_workdir_that_is_removed_ends_the_run(tmp_path: Path) -> None:
    """It is not made again with half a run in it, and training does not go on for nobody."""
    config = settings(training__log_every=1, training__evaluate_every=0, checkpoint__every=0)

    def removed(step: int) -> dict[str, np.ndarray]:
        if step == 5:
            shutil.rmtree(tmp_path / "run")
        return points(step)

    words = f"{tmp_path}/run/metrics.jsonl was removed while it was being written"
    check_refused(words, run, tmp_path / "run", config, batches=removed)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("field", "bad", "lag"), [("target", np.nan, 0), ("source", np.inf, 0), ("target", np.nan, 2)]
)
def test_divergence_ends_the_run_and_keeps_the_last_good_checkpoint(
    field: str, bad: float, lag: int, tmp_path: Path
) -> None:
    def poisoned(step: int) -> dict[str, np.ndarray]:
        batch = points(step)
        return {**batch, field: batch[field] + bad} if step == 6 else batch

    config = settings(training__log_every=1, training__lag=lag)
    for _ in range(2):  # the same command again comes to the same end
        outcome = run(tmp_path, config, batches=poisoned)
        assert (outcome.state, outcome.step) == ("diverged", 7) and "at step 7" in outcome.message
        assert read_records(tmp_path / "metrics.jsonl")[-1]["step"] == 6
        restored = last_state(tmp_path, config)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(restored.tree))
        assert restored.step <= 6
    assert run(tmp_path, config).state == "done"  # with good data it goes on


class Rooted(Line):
    """A line whose gradient is no number at any step, its loss being finite: sqrt has no slope
    at 0.
    """

    def loss(self, params: Any, batch: Any, key: jax.Array) -> Any:
        """The line's and sqrt(0 b)."""
        loss, sums = super().loss(params, batch, key)
        return loss + jax.numpy.sqrt(0.0 * params["b"]), sums


def test_a_gradient_that_is_not_finite_ends_the_run_though_the_loss_is(tmp_path: Path) -> None:
    outcome = run(tmp_path, settings(training__log_every=1, checkpoint__every=1), Rooted())
    assert (outcome.state, outcome.step) == ("diverged", 1)
    assert "gradient norm nan at step 1" in outcome.message
    assert "loss nan" not in outcome.message
    assert saved(tmp_path) == []
    assert read_records(tmp_path / "metrics.jsonl") == []


def test_an_update_that_overflows_is_not_saved(tmp_path: Path) -> None:
    large = {"optimizer__name": "sgd", "schedule__peak": 3e38, "schedule__warmup": 0}
    outcome = run(tmp_path, settings(**large, training__clip=0.0, checkpoint__every=1))
    assert outcome.state == "diverged" and "not finite" in outcome.message
    assert saved(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "steps", "evaluated"),
    [
        ({"checkpoint__every": 2, "checkpoint__keep": 3}, [6, 8, 9], [3, 6, 9]),
        ({"checkpoint__every": 0, "training__evaluate_every": 0}, [9], [9]),
        # each evaluation was the best so far
        ({"checkpoint__every": 100, "checkpoint__keep": 9}, [3, 6, 9], [3, 6, 9]),
    ],
)
def test_how_often_it_evaluates_and_saves(
    changes: dict[str, Any], steps: list[int], evaluated: list[int], tmp_path: Path
) -> None:
    run(tmp_path, settings(**changes))
    assert saved(tmp_path) == steps
    assert [record["step"] for record in of_split(tmp_path, "valid")] == evaluated


LOSS, FIT = {}, {"checkpoint__by": "fit"}
CHOSEN: list[tuple[dict[str, str], list[Any], int]] = [
    (LOSS, [3.0, 1.0, 2.0], 6),  # a resumed run must not take its first one for the best
    (LOSS, [2.0, math.nan, 3.0], 3),
    (LOSS, [2.0, 2.0, 2.0], 3),  # of equal scores the first
    (FIT, [(3.0, 0.5), (2.0, 0.75), (1.0, 0.6)], 6),
    (FIT, [(1.0, 0.5), (2.0, 0.75), (3.0, 0.8)], 9),
    (FIT, [(3.0, 0.75), (2.0, 0.75), (2.5, 0.75)], 6),  # of equal scores that of the lower loss
    (FIT, [(3.0, math.nan), (2.0, 0.1), (1.0, math.nan)], 6),
]
"""What chooses, what is evaluated at steps 3, 6 and 9, and the step that is the best."""


@pytest.mark.parametrize("stop", [None, 4, 7])
@pytest.mark.parametrize(("by", "scores", "best"), CHOSEN)
def test_the_best_step_is_kept_and_remembered_across_a_resume(
    by: dict[str, str], scores: list[Any], best: int, stop: int | None, tmp_path: Path
) -> None:
    config, task = settings(checkpoint__keep=1, **by), Line([*scores])
    if stop is not None:
        assert run(tmp_path, config, task, stop=stop).state == "interrupted"
    run(tmp_path, config, task)
    assert task.scripted == [] and saved(tmp_path) == sorted({best, 9})
    assert best_params(config, Line(), tmp_path)[1] == best
    if by is LOSS:
        assert last_state(tmp_path, config).meta["best"] == [min(scores)] * 2


def test_the_pace_is_tokens_over_seconds(tmp_path: Path) -> None:
    """Of every logged step its own tokens and seconds."""
    run(tmp_path, settings(training__log_every=1))
    records = of_split(tmp_path, "train")
    tokens = {record["step"]: record["tokens"] for record in records}
    paces = [one for one in read_records(tmp_path / "timing.jsonl") if "step_seconds" in one]
    assert [one["step"] for one in paces] == list(tokens) and len({*tokens.values()}) > 1
    for pace in paces:
        counted = pace["tokens_per_second"] * pace["step_seconds"]
        assert counted == pytest.approx(tokens[pace["step"]], rel=1e-6)


def test_the_moving_average_is_what_is_evaluated_and_handed_out(tmp_path: Path) -> None:
    config = settings(training__ema=0.9)
    run(tmp_path, config)
    restored = last_state(tmp_path, config)
    params, step = best_params(config, Line(), tmp_path)
    assert step == 9 and np.abs(restored.tree.params["w"] - restored.tree.ema["w"]).max() > 1e-3
    np.testing.assert_array_equal(params["w"], restored.tree.ema["w"])
    last = of_split(tmp_path, "valid")[-1]["loss"]
    assert last == pytest.approx(Line().evaluate(params, "valid")["loss"], rel=1e-6)


def test_everything_of_a_step_is_on_disk_before_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log, evaluate, sync, save: what a resumed run drops and repeats is then exactly what came
    after the checkpoint.
    """
    done: list[tuple[str, int]] = []

    def noted(name: str, plain: Any) -> Any:
        def act(self: Any, step: int = 0, *rest: Any, **how: Any) -> Any:
            done.append((rest[0] if name == "write" else name, step))
            return plain(self, *((step,) if name != "sync" else ()), *rest, **how)

        return act

    for owner, name in ((Metrics, "write"), (Metrics, "sync"), (Checkpoints, "save")):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    run(tmp_path, settings(training__steps=6, checkpoint__every=6))
    last = [("train", 6), ("valid", 6), ("sync", 0), ("save", 6)]
    assert done[-5:] == [*last, ("sync", 0)]  # the last one is from closing


def test_how_far_it_is_and_the_note_of_every_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(attempts, "INTERVAL", 0.0)

    def watched(step: int) -> dict[str, np.ndarray]:
        seen.append(attempts.last_word(attempts.read(tmp_path)))
        times = 1 if step % 2 else 2
        return {name: np.repeat(rows, times, axis=0) for name, rows in points(step).items()}

    stream = io.StringIO()
    run(tmp_path, settings(), batches=watched, stream=stream)
    assert seen[0] == ("pending", 0, "")
    assert seen[-1] == ("interrupted", 7, "")  # as if it had died there
    shapes = re.findall(r"compiled batches of (\S+)", stream.getvalue())
    assert sorted(shapes) == ["16x3", "8x3"]
    timing = read_records(tmp_path / "timing.jsonl")
    assert [record["step"] for record in timing if "compile_seconds" in record] == [1, 2]
    assert [record["step"] for record in timing if "step_seconds" in record] == [2, 4, 6, 8, 9]
    asked = len(seen)
    monkeypatch.setattr(loop, "on_processor", lambda: False)
    monkeypatch.setattr(watched, "shapes", ("8x3", "16x3"), raising=False)
    run(tmp_path / "ahead", settings(), batches=watched)
    assert len(seen) == 2 * asked + 2  # of the first while the state is drawn, and of the second
    assert recorded(tmp_path / "ahead") == recorded(tmp_path)


def test_no_checkpoint_and_one_that_does_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint in .*checkpoints: train there first"):
        best_params(settings(), Line(), tmp_path)
    run(tmp_path, settings())
    check_refused("ema", run, tmp_path, settings(training__ema=0.9))
