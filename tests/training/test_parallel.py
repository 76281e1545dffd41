"""Both backends learn the same on 1, 2 and 4 devices, with one kind of checkpoint; mistakes are named."""

import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

from attnlab.training.checkpoints import Checkpoints
from attnlab.training.parallel import AXIS, PmapBackend, backend, place_trials
from attnlab.training.settings import Parallel
from attnlab.training.step import TrainState, first_state, make_step
from attnlab.training.updates import first_params
from tests.commands.tiny import under
from tests.refusals import check_refused
from tests.tasks.tiny import batch_of, load
from tests.training.toy import FEATURES, ROWS, Line, Noisy, Trailing, points, steps_on

STEPS = 4
# Adam divides by the size of a gradient, also where the true one is zero (a key's bias): a larger
# eps keeps rounding rounding.
ADAM = optax.adam(3e-3, eps=1e-3)
MOVES = ("all-gather", "all-to-all", "collective-permute")  # of rows to other devices


def begun(task: Any, ema: float = 0.0) -> TrainState:
    """The first state of a task, on the host."""
    params = first_params(task.init, jax.random.key(0))
    extras = {"carried": task.carried(), "remembered": task.remembered()}
    return jax.device_get(first_state(params, ADAM, ema, **extras))  # type: ignore[no-any-return]


def trace(
    task: Any, batches: list[Any], name: str, devices: int, accumulate: int = 1
) -> list[tuple[TrainState, dict[str, Any]]]:
    """State and metrics on the host after each of several steps."""
    place = backend(Parallel(backend=name, devices=devices))
    step = make_step(task.loss, task.weight, ADAM, accumulate=accumulate, follow=task.follow)
    steps = steps_on(place, step, begun(task), batches)
    return [(place.fetch(state), place.fetch(metrics)) for state, metrics in steps]


def assert_close(actual: list[Any], expected: list[Any]) -> None:
    """Losses within 1e-6, gradients of the first step within 1e-6 of their norm, parameters after
    the last within 2e-6.
    """
    for (_, metrics), (_, expectation) in zip(actual, expected, strict=True):
        assert metrics.keys() == expectation.keys()
        for name, value in expectation.items():
            np.testing.assert_allclose(metrics[name], value, rtol=2e-6)
    scale = 10 * float(expected[0][1]["grad_norm"])  # mu = (1 - 0.9) g after one step
    for part, atol in (
        (lambda trace: jax.tree.map(lambda mu: 10 * mu, trace[0][0].opt_state[0].mu), 1e-7 * scale),
        (lambda trace: trace[-1][0].params, 2e-6),
    ):
        close = functools.partial(np.testing.assert_allclose, atol=atol)
        jax.tree.map(close, part(actual), part(expected))


GRID = list(itertools.product(("pmap", "mesh"), (1, 2, 4), (1, 2)))


@pytest.mark.quick
@pytest.mark.parametrize(("name", "devices", "accumulate"), GRID)
def test_a_line_is_fitted_the_same_everywhere(name: str, devices: int, accumulate: int) -> None:
    """Rows without weight lie on the last device only, so that a mean of means would show."""
    batches = [points(3 * number + 2) for number in range(STEPS)]
    expected = trace(Line(), batches, "mesh", 1)
    assert_close(trace(Line(), batches, name, devices, accumulate), expected)


class Following(Line):
    """Its loss carries the moving average of the error, and is shifted by it."""

    def loss(
        self, params: Any, batch: Any, key: jax.Array, carried: Any = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        off = batch["source"] @ params["w"] + params["b"] - batch["target"] - carried["mean"]
        error = off * batch["real"]
        tracked = {"error": error.sum(), "rows": batch["real"].sum()}
        return 0.5 * (error**2).sum(), {"tracked": tracked}

    def carried(self) -> Any:
        return {"mean": np.float32(0.5)}

    def follow(self, carried: Any, tracked: Any) -> Any:
        return {"mean": 0.9 * carried["mean"] + 0.1 * tracked["error"] / tracked["rows"]}


@pytest.mark.product("kept between steps")
@pytest.mark.parametrize(
    ("name", "devices", "accumulate"), [("pmap", 4, 1), ("pmap", 2, 2), ("mesh", 4, 2)]
)
def test_what_a_loss_carries_is_the_same_everywhere(
    name: str, devices: int, accumulate: int
) -> None:
    """Also within a step: every microbatch sees what was carried into the step."""
    batches = [points(3 * number + 2) for number in range(STEPS)]
    actual = trace(Following(), batches, name, devices, accumulate)
    expected = trace(Following(), batches, "mesh", 1)
    assert_close(actual, expected)
    means = [[float(state.carried["mean"]) for state, _ in one] for one in (actual, expected)]
    np.testing.assert_allclose(*means, rtol=2e-6)
    assert len(set(means[0])) == STEPS and "tracked" not in actual[0][1]


@pytest.mark.product("kept between steps")
@pytest.mark.parametrize(
    ("name", "devices", "accumulate"),
    [("pmap", 4, 1), ("pmap", 2, 2), ("pmap", 1, 2), ("mesh", 4, 2), ("mesh", 2, 1)],
)
def test_what_is_remembered_stays_with_its_row(name: str, devices: int, accumulate: int) -> None:
    """Whatever device and microbatch a row is in; on the host there is no device axis, and rows are
    in the order of the batch.
    """
    batches = [points(3 * number + 2) for number in range(STEPS)]
    actual = trace(Trailing(), batches, name, devices, accumulate)
    expected = trace(Trailing(), batches, "mesh", 1)
    assert_close(actual, expected)
    m, steps = np.ones((ROWS, FEATURES)), np.zeros(ROWS)
    for batch, (state, metrics) in zip(batches, actual, strict=True):
        m, steps = m / 2 + batch["source"], steps + batch["real"]
        np.testing.assert_allclose(state.remembered["m"], m, atol=1e-6)
        np.testing.assert_array_equal(state.remembered["steps"], steps)
        assert state.remembered["steps"].dtype == np.int32 and "remembered" not in metrics


HOPS = [
    *under("system.cross_attention", hops=2, hidden=4, alignment="hard"),
    *under("auxiliary", hops=0.1, doubly_stochastic=0.1),
    *("system.width=8", "system.cross_attention=hops"),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("system", "overrides", "name", "devices", "accumulate"),
    [
        ("rnnsearch", [], "mesh", 4, 2),
        ("transformer", [], "pmap", 2, 2),
        ("transformer", HOPS, "mesh", 4, 1),
    ],
)  # a line is fitted in all other ways too
def test_systems_learn_the_same_everywhere(
    system: str, overrides: list[str], name: str, devices: int, accumulate: int
) -> None:
    """As on one device; one batch several times, of 13 sentences and 3 rows of padding. With
    penalties and sampled choices too: a mesh draws the same samples however many devices it has.
    """
    task = load(system, *overrides)
    batches = [batch_of(task)] * STEPS
    actual = trace(task, batches, name, devices, accumulate)
    expected = trace(task, batches, "mesh", 1)
    assert_close(actual, expected)
    if overrides:
        terms = {"hops", "doubly_stochastic", "choice_entropy", "cross_entropy"}
        assert terms <= actual[0][1].keys()
        baselines = [states[-1][0].carried["baseline"] for states in (actual, expected)]
        np.testing.assert_allclose(*baselines, rtol=2e-6)


@pytest.mark.parametrize("task", [Line(), Noisy()], ids=["line", "noise"])
def test_on_one_device_pmap_is_the_mesh_to_the_last_bit(task: Any) -> None:
    batches = [points(number) for number in range(STEPS)]
    pmap, mesh = (trace(task, batches, name, 1) for name in ("pmap", "mesh"))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, pmap, mesh)))


def test_devices_draw_apart() -> None:
    """Under pmap each device has a key of its own, under the mesh the batch is drawn for as a
    whole; nowhere twice the same.
    """
    key = jax.random.fold_in(jax.random.key(0), 0)
    keys = (jax.random.fold_in(key, index) for index in range(4))
    apart = np.concatenate([jax.random.uniform(key, (ROWS // 4,)) for key in keys])
    for name, draws in (("pmap", apart), ("mesh", np.asarray(jax.random.uniform(key, (ROWS,))))):
        metrics = trace(Noisy(), [points(0)], name, 4)[0][1]
        assert len(np.unique(draws)) == ROWS
        assert float(metrics["loss"]) == pytest.approx(draws.mean(), rel=1e-6)


@pytest.mark.parametrize(("trials", "devices", "expected"), [(3, 2, 2), (3, 0, 3), (8, 0, 4)])
def test_stacked_trials_are_dealt_to_the_devices(trials: int, devices: int, expected: int) -> None:
    """To no more devices than there are trials; what is fetched keeps the trial axis, and no device
    waits for another.
    """
    place = place_trials(trials, Parallel(devices=devices))
    assert place.count == expected and place.about == {"stacked": trials}
    slots = -(-trials // expected) * expected
    w = np.arange(2.0 * slots).reshape(slots, 2)
    state = place.place({"w": w})
    fed = place.feed({"inner": {"x": np.ones((slots, 2))}})
    step = lambda state, batch: ({"w": state["w"] + batch["inner"]["x"]}, state["w"].sum(axis=1))
    program: Any = place.compile(step, state, fed)
    after, sums = program(state, fed)
    assert len(after["w"].sharding.device_set) == expected
    assert len({str(shard.index) for shard in after["w"].addressable_shards}) == expected
    np.testing.assert_array_equal(place.fetch(after)["w"], w + 1)
    np.testing.assert_array_equal(place.fetch(sums), 4.0 * np.arange(slots) + 1)
    assert not any(word in program.as_text() for word in ("all-reduce", *MOVES))


@pytest.mark.parametrize("name", ["pmap", "mesh"])
def test_what_is_fetched_has_no_device_axis_and_replicas_are_equal(name: str) -> None:
    task, place = Line(), backend(Parallel(backend=name, devices=4))
    host = begun(task, ema=0.9)
    state = place.place(host)
    old = jax.tree.leaves(state)
    step = make_step(task.loss, task.weight, ADAM, ema=0.9)
    program = place.compile(step, state, place.feed(points(2)))
    for number in range(3):
        state, metrics = program(state, place.feed(points(number)))
    assert all(leaf.is_deleted() for leaf in old)  # donated: the state is in memory once
    for leaf in jax.tree.leaves(state):
        first, *copies = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        assert len(copies) == 3 and all((other == first).all() for other in copies)
    fetched, one = place.fetch(state), place.arrays(state.params)
    assert jax.tree.map(np.shape, fetched) == jax.tree.map(np.shape, host)
    assert int(fetched.step) == 3
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(fetched))
    assert np.shape(place.fetch(metrics)["loss"]) == ()
    assert Line().evaluate(one, "valid") == pytest.approx(Line().evaluate(fetched.params, "valid"))
    assert {len(leaf.devices()) for leaf in jax.tree.leaves(one)} == {1}


def test_a_pmap_program_is_compiled_once() -> None:
    """The state it gives back must fit the compiled program: under another axis name the second
    step would compile anew.
    """
    task, place = Line(), backend(Parallel(backend="pmap", devices=2))
    state = place.place(begun(task))
    program = place.compile(make_step(task.loss, task.weight, ADAM), state, place.feed(points(0)))
    after, _ = program(state, place.feed(points(0)))
    placed = place.place(place.fetch(after))
    assert jax.tree.map(lambda x: x.sharding, after) == jax.tree.map(lambda x: x.sharding, placed)
    assert isinstance(place, PmapBackend)
    assert jax.tree.leaves(placed)[0].sharding.mesh.axis_names == (AXIS,)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_no_row_moves_to_another_device(accumulate: int) -> None:
    """Microbatches cut along the devices would be gathered and computed by every device alike:
    right, and no faster than one.
    """
    task, place = Trailing(), backend(Parallel(backend="mesh", devices=4))
    state = place.place(begun(task))
    step = make_step(task.loss, task.weight, ADAM, accumulate=accumulate)
    program: Any = place.compile(step, state, place.feed(points(0)))
    text = program.as_text()
    assert "all-reduce" in text
    assert not any(word in text for word in MOVES)


@pytest.mark.parametrize(
    ("task", "names"),
    [(Line(), ("pmap", "mesh")), (Trailing(), ("pmap", "mesh")), (Trailing(), ("mesh", "pmap"))],
)
def test_a_checkpoint_of_four_devices_goes_on_on_one(
    task: Any, names: tuple[str, str], tmp_path: Path
) -> None:
    wide = backend(Parallel(backend=names[0], devices=4))
    narrow = backend(Parallel(backend=names[1], devices=1))
    step = make_step(task.loss, task.weight, ADAM)
    host = begun(task)
    steps = steps_on(wide, step, host, [points(number) for number in range(3)])
    next(steps)
    state, _ = next(steps)
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(2, wide.fetch(state), {})
    restored = checkpoints.restore(jax.eval_shape(lambda: host))
    checkpoints.close()
    assert restored.step == 2
    here, _ = next(steps)
    ((there, _),) = steps_on(narrow, step, restored.tree, [points(2)])
    close = functools.partial(np.testing.assert_allclose, atol=1e-6)
    jax.tree.map(close, narrow.fetch(there), wide.fetch(here))


@pytest.mark.parametrize(
    ("name", "devices", "words"),
    [
        ("mesh", 5, "parallel.devices=5, but there are 4 of kind 'cpu'; 0 takes all"),
        ("mesh", -1, "parallel.devices=-1"),
    ],
)
def test_mistakes_are_named(name: str, devices: int, words: str) -> None:
    check_refused(words, backend, Parallel(backend=name, devices=devices))
    assert backend(Parallel(backend="mesh")).count == 4
    assert backend(Parallel(backend="pmap", devices=2)).count == 2
