"""Parameters that are frozen, paced or adapted by low-rank products are trained so, and no others. Runs
that train a part of the parameters learn the same on several devices, in microbatches, stopped and
gone on with, and several as one program.
"""

import dataclasses
import types
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.errors import UserError
from attnlab.training.kinds import decayed_by_kind
from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import backend
from attnlab.training.settings import Lora, Parallel, Stop, Training
from attnlab.training.step import TrainState, first_state, make_step
from attnlab.training.trained import Trained, leaves_by_path
from attnlab.training.updates import Updates, best_params
from tests.training.test_stacked import Lines, check_trained_both_ways
from tests.training.toy import FEATURES, Line, last_state, points, run, settings, steps_on

PATHS = ("embed/embedding", "layer_0/w/kernel", "layer_0/w/bias", "layer_1/w/kernel", "top/scale")
SHAPES = ((5, 4), (4, 4), (4,), (4, 4), (4,))
LOW_RANK = Trained(rank=2, alpha=6.0, on=("w/kernel",), also=("top/",))


def params() -> dict[str, Any]:
    """Of a made-up model."""
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=shape).astype(np.float32) for shape in SHAPES]
    return flax.traverse_util.unflatten_dict(dict(zip(PATHS, arrays, strict=True)), sep="/")


def change(before: TrainState, after: TrainState, path: str) -> Any:
    return leaves_by_path(after.params)[path] - leaves_by_path(before.params)[path]


class Model:
    """A loss that depends on all of the parameters above, whatever the batch."""

    @staticmethod
    def loss(params: Any, batch: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        actual = leaves_by_path(params)
        assert set(actual) == set(PATHS)  # nothing of LoRA is seen
        x = actual["embed/embedding"] @ actual["layer_0/w/kernel"] + actual["layer_0/w/bias"]
        total = (jnp.tanh(x) @ actual["layer_1/w/kernel"] * actual["top/scale"]).sum()
        return total, {"tokens": jnp.ones(())}

    @staticmethod
    def weight(batch: Any) -> Any:
        return jnp.ones(())


def trained(selection: Trained, steps: int = 1, ema: float = 0.0, optimizer: Any = None) -> Any:
    """The state after some steps of gradient descent, and that before."""
    optimizer = optimizer or optax.sgd(0.1)
    begun = selection.with_adapters(params(), jax.random.key(1))
    state: TrainState = first_state(begun, optimizer, ema, trained=selection)
    step = jax.jit(make_step(Model.loss, Model.weight, optimizer, ema=ema, trained=selection))
    after, metrics = state, {}
    for _ in range(steps):
        after, metrics = step(after, points(0))
    return state, after, metrics


@pytest.mark.quick
def test_what_is_frozen_stays_to_the_last_bit_and_the_rest_moves_as_before() -> None:
    _, untouched, _ = trained(Trained())
    before, after, metrics = trained(Trained(freeze=("embed", "layer_0/.*kernel")), ema=0.5)
    frozen = {"embed/embedding", "layer_0/w/kernel"}
    for path, leaf in leaves_by_path(after.params).items():
        if path in frozen:
            np.testing.assert_array_equal(leaf, leaves_by_path(before.params)[path])
            np.testing.assert_array_equal(
                leaves_by_path(after.ema)[path], leaves_by_path(before.params)[path]
            )
        else:
            np.testing.assert_array_equal(leaf, leaves_by_path(untouched.params)[path])
    gradients = jax.grad(lambda tree: Model.loss(tree, None, None)[0])(params())
    rest = [leaf for path, leaf in leaves_by_path(gradients).items() if path not in frozen]
    assert float(metrics["grad_norm"]) == pytest.approx(float(optax.tree.norm(rest)), rel=1e-6)


def test_the_optimizer_keeps_nothing_of_what_is_frozen() -> None:
    before, *_ = trained(Trained(freeze=("layer_0",)), 0, optimizer=optax.adam(0.1))
    count = sum(leaf.size for leaf in jax.tree.leaves(before.opt_state) if leaf.ndim)
    assert count == 2 * (20 + 16 + 4)
    before, *_ = trained(LOW_RANK, 0, optimizer=optax.adam(0.1))
    count = sum(leaf.size for leaf in jax.tree.leaves(before.opt_state) if leaf.ndim)
    assert count == 2 * (2 * (4 * 2 + 2 * 4) + 4)


def test_weight_decay_is_of_what_is_trained() -> None:
    """Matrices that are trained and products shrink, biases, embeddings and what is frozen do not:
    the difference that decay makes to one step, over the rate and the decay, is the parameter."""

    def after(selection: Trained, decay: float) -> Any:
        optimizer = optax.adamw(0.1, weight_decay=decay, mask=decayed_by_kind)
        return trained(selection, optimizer=optimizer)

    for which, shrink in (
        (Trained(freeze=("layer_0",)), {"layer_1/w/kernel"}),
        (LOW_RANK, {f"lora/layer_{n}/w/kernel/a" for n in (0, 1)}),  # B begins at 0
    ):
        before, plain, _ = after(which, 0.0)
        _, decayed, _ = after(which, 0.5)
        for path, leaf in leaves_by_path(before.params).items():
            moved = leaves_by_path(plain.params)[path] - leaves_by_path(decayed.params)[path]
            expected = 0.05 * np.asarray(leaf) if path in shrink else np.zeros_like(leaf)
            np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-6, err_msg=path)


def test_low_rank_products_begin_at_nothing_and_are_added() -> None:
    before, after, _ = trained(LOW_RANK, 3)
    for path, leaf in leaves_by_path(LOW_RANK.merge(before.params)).items():
        np.testing.assert_array_equal(leaf, leaves_by_path(params())[path])
    seen, own = leaves_by_path(LOW_RANK.merge(after.params)), leaves_by_path(after.params)
    assert set(seen) == set(PATHS)
    for path in PATHS:
        if path == "top/scale":
            assert np.abs(own[path] - leaves_by_path(params())[path]).max() > 1e-3
            continue
        np.testing.assert_array_equal(own[path], leaves_by_path(params())[path])  # the model's own
        if path.endswith("w/kernel"):
            a, b = (np.asarray(own[f"lora/{path}/{factor}"], np.float64) for factor in "ab")
            assert np.abs(b).max() > 1e-3
            np.testing.assert_allclose(seen[path], own[path] + 3.0 * a @ b, rtol=1e-6, atol=1e-6)


def test_a_product_of_full_rank_learns_what_its_matrix_would() -> None:
    """The gradient of B is A^T G alpha / rank, G that of W: with A the identity one step of B
    moves W as one of W does."""
    full = dataclasses.replace(LOW_RANK, rank=4, alpha=4.0, on=("layer_1/w/kernel",), also=())
    begun = full.with_adapters(params(), jax.random.key(1))
    begun["lora"]["layer_1"]["w"]["kernel"]["a"] = jnp.eye(4)
    state = first_state(begun, optax.sgd(0.1), 0.0, trained=full)
    step = make_step(Model.loss, Model.weight, optax.sgd(0.1), trained=full)
    after, _ = step(state, points(0))
    _, matrix, _ = trained(Trained())
    actual = leaves_by_path(full.merge(after.params))["layer_1/w/kernel"]
    np.testing.assert_allclose(
        actual, leaves_by_path(matrix.params)["layer_1/w/kernel"], rtol=0, atol=1e-6
    )


def test_factors_of_paths_and_layers() -> None:
    actual = Trained(rates=("bias=0.5", "layer_1=3"), layer_decay=0.1).factors(params())
    assert actual == pytest.approx(dict(zip(PATHS, (0.1**2, 0.1, 0.05, 3.0, 1.0), strict=True)))
    plain, paced = Trained(), Trained(rates=("layer_1=3",), layer_decay=0.1)
    (before, one, _), (_, other, _) = trained(plain), trained(paced)
    for path, factor in paced.factors(params()).items():
        moved, scaled = (change(before, each, path) for each in (one, other))
        np.testing.assert_allclose(scaled, factor * moved, rtol=0, atol=1e-6)


def test_layers_that_are_frozen_count() -> None:
    """The factor of a layer is that of its depth in the model, not among those that are trained."""
    paced = Trained(layer_decay=0.1)
    (before, one, _), (_, other, _) = (
        trained(dataclasses.replace(one, freeze=("layer_1",))) for one in (Trained(), paced)
    )
    moved, scaled = (change(before, each, "layer_0/w/kernel") for each in (one, other))
    assert np.abs(moved).max() > 1e-2
    np.testing.assert_allclose(scaled, 0.1 * moved, rtol=0, atol=1e-6)
    products = LOW_RANK.with_adapters(params(), jax.random.key(0))
    factors = dataclasses.replace(LOW_RANK, rates=("/b$=16",), layer_decay=0.1).factors(products)
    assert factors["lora/layer_0/w/kernel/b"] == pytest.approx(1.6)
    assert factors["lora/layer_1/w/kernel/a"] == 1.0


def test_what_is_frozen_is_so_with_products_too() -> None:
    """Whether it is a factor of a product, or a parameter that is to be trained beside them."""
    frozen = dataclasses.replace(LOW_RANK, freeze=("/a$", "top"))
    frozen.check(params())
    before, after, _ = trained(frozen, 2)
    first, last = leaves_by_path(before.params), leaves_by_path(after.params)
    moved = {path for path in last if not np.array_equal(last[path], first[path])}
    assert moved == {f"lora/layer_{n}/w/kernel/b" for n in (0, 1)}


def test_dropped_rows_of_a_product() -> None:
    """Rows of A are left out whole, the others count so that the mean is what it was; each matrix
    has a mask of its own, evaluation none.
    """
    dropped = dataclasses.replace(LOW_RANK, dropout=0.25)
    begun = dropped.with_adapters(params(), jax.random.key(1))
    for layer in ("layer_0", "layer_1"):
        begun["lora"][layer]["w"]["kernel"]["b"] = np.ones((2, 4), np.float32)
    plain = leaves_by_path(dropped.merge(begun))
    keys = jax.random.split(jax.random.key(0), 400)
    drawn = leaves_by_path(jax.jit(jax.vmap(lambda key: dropped.merge(begun, key)))(keys))
    masks = []
    for path in ("layer_0/w/kernel", "layer_1/w/kernel"):
        own = leaves_by_path(begun)[path]
        changes, full = np.asarray(drawn[path]) - own, np.asarray(plain[path]) - own
        used = np.abs(changes).max(axis=2) > 1e-6
        expected = np.where(used[..., None], full / 0.75, 0.0)
        np.testing.assert_allclose(changes, expected, rtol=0, atol=1e-5)
        assert abs(used.mean() - 0.75) < 0.05  # of 1600 rows: a standard deviation is 0.011
        masks.append(used)
    assert not np.array_equal(*masks)
    np.testing.assert_array_equal(plain["top/scale"], drawn["top/scale"][0])


@pytest.mark.parametrize(
    ("training", "lora", "message"),
    [
        ({"freeze": ("embde",)}, {}, "training.freeze: no parameter has 'embde' in its path"),
        ({"freeze": ("(",)}, {}, r"config.training.freeze: '\(' is no regular expression"),
        ({"freeze": ("((a+)b)+c",)}, {}, r"training.freeze: '.*' may take very long; expected at"),
        ({"rates": ("(a|ab)*=2",)}, {}, r"training.rates: '.*' may take very long; .* or a choice"),
        ({}, {"on": (".*" * 5,)}, r"lora.on: '.*' may take very long; expected at most 4"),
        ({"freeze": (".",)}, {}, "config.training.freeze: every parameter is frozen"),
        ({"rates": ("embed",)}, {}, "config.training.rates: 'embed' is not 'REGEX=FACTOR'"),
        ({"rates": ("embed=-1",)}, {}, "config.training.rates: 'embed=-1' is not"),
        ({}, {"on": ("bias",)}, r"config.lora.on: layer_0/w/bias has the shape \[4\]"),
        ({}, {"on": ("kernle",)}, "lora.on: no parameter has 'kernle' in its path; they end in"),
        ({}, {"on": ()}, "config.lora.on: every parameter is frozen"),
        ({"rates": ("kernel/c=2",)}, {"on": ("kernel",)}, "path; they end in: .*kernel/a"),
    ],
)
def test_what_does_not_fit_is_one_line(training: Any, lora: Any, message: str) -> None:
    rest = {"rank": 2 if lora else 0, "alpha": 1.0, "on": (), "also": ()}
    config: Any = types.SimpleNamespace(
        training=Training(steps=1, stop=Stop(), **training), lora=Lora(**{**rest, **lora})
    )
    with pytest.raises(UserError, match=message) as error:
        Trained.of(config).check(params())
    assert "\n" not in str(error.value)


def test_what_stays_as_it_was_drawn_is_told() -> None:
    """A head that was not in the pretrained weights is to be trained, too."""
    drawn = ("layer_0/w/kernel", "layer_0/w/bias", "top/scale")
    frozen = Trained(freeze=("bias", "embed"))
    expected = ["drawn anew and not trained: layer_0/w/bias; name them in lora.also"]
    assert LOW_RANK.warnings(params(), drawn) == expected
    expected = ["drawn anew and not trained: layer_0/w/bias; leave them out of training.freeze"]
    assert frozen.warnings(params(), drawn) == expected
    assert frozen.warnings(params(), ("top/scale",)) == []


FROZEN = {"training__freeze": ("layer_1",), "training__rates": ("b$=0.5",)}
ADAPTED = {"lora": {"rank": 2, "alpha": 4.0, "dropout": 0.0, "on": ("layer_0",), "also": ("b$",)}}
DROPPED = {"lora": {**ADAPTED["lora"], "dropout": 0.3}}
PARTLY = pytest.mark.parametrize(
    "which", [pytest.param(FROZEN, marks=pytest.mark.full), DROPPED], ids=["frozen", "dropped"]
)


def set_to(**changes: Any) -> Any:
    """A config of 9 steps with the settings above, which those of the line have not."""
    nodes = {name: changes.pop(name) for name in ("lora",) if name in changes}
    own = {name: changes.pop(name) for name in list(changes) if name in FROZEN}
    config = settings(**changes)
    for name, value in own.items():
        config.training[name.partition("__")[2]] = value
    config.lora = Lora(**nodes.get("lora", {}))
    return config


class Deep(Lines):
    """y = (x W_0) w_1 + b."""

    def init(self, key: jax.Array) -> Any:
        first, other = jax.random.split(key)
        return {
            "layer_0": {"kernel": jax.random.normal(first, (FEATURES, FEATURES))},
            "layer_1": {"kernel": jax.random.normal(other, (FEATURES,))},
            "b": jnp.zeros(()),
        }

    def loss(self, params: Any, batch: Any, key: jax.Array) -> Any:
        assert set(params) == {"layer_0", "layer_1", "b"}  # the model knows nothing of LoRA
        w = params["layer_0"]["kernel"] @ params["layer_1"]["kernel"]
        return Line.loss(self, {"w": w, "b": params["b"]}, batch, key)


@pytest.mark.parametrize("which", [FROZEN, ADAPTED], ids=["frozen", "adapted"])
@pytest.mark.parametrize(
    ("name", "devices", "accumulate"), [("pmap", 4, 1), ("pmap", 2, 2), ("mesh", 4, 2)]
)
def test_the_same_everywhere(name: str, devices: int, accumulate: int, which: Any) -> None:
    """Parameters, moving averages and norms after some steps, on however many devices."""
    config = set_to(training__ema=0.5, **which)
    trained = Trained.of(config)
    optimizer, _ = build_optimizer(config.optimizer, config.schedule, steps=9, clip=1.0)

    def after(name: str, devices: int, accumulate: int) -> Any:
        place, task = backend(Parallel(backend=name, devices=devices)), Deep()
        options = {"accumulate": accumulate, "ema": 0.5, "trained": trained}
        step = make_step(task.loss, task.weight, optimizer, **options)
        batches = [points(3 * number + 2) for number in range(3)]
        *_, after = steps_on(place, step, Updates.of(config).first_states(task)(0), batches)
        return tuple(map(place.fetch, after))

    (actual, told), (expectation, expected) = after(name, devices, accumulate), after("mesh", 1, 1)
    assert float(told["grad_norm"]) == pytest.approx(float(expected["grad_norm"]), rel=1e-5)
    for one, other in (actual.params, expectation.params), (actual.ema, expectation.ema):
        for path, leaf in leaves_by_path(one).items():
            np.testing.assert_allclose(leaf, leaves_by_path(other)[path], atol=2e-6, err_msg=path)


@PARTLY
def test_stopped_and_resumed_equals_uninterrupted(which: Any, tmp_path: Path) -> None:
    config, task = set_to(training__ema=0.5, training__log_every=1, **which), Deep()
    run(tmp_path / "whole", config, task)
    assert run(tmp_path / "cut", config, task, stop=5).state == "interrupted"
    assert run(tmp_path / "cut", config, task).state == "done"
    states = [last_state(tmp_path / name, config, task).tree for name in ("whole", "cut")]
    jax.tree.map(np.testing.assert_array_equal, *states)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "cut")]
    assert metrics[0] == metrics[1]
    begun, still = (
        leaves_by_path(Updates.of(config).first_states(task)(0).params),
        {"layer_1/kernel"},
    )
    still |= {"layer_0/kernel"} if "lora" in which else set()
    for path, leaf in leaves_by_path(states[0].params).items():
        assert np.array_equal(leaf, begun[path]) == (path in still), path
    used, _ = best_params(config, task, tmp_path / "whole")
    assert set(leaves_by_path(used)) == {"layer_0/kernel", "layer_1/kernel", "b"}
    if "lora" in which:  # what is used is what was evaluated: the sum, of the moving averages
        assert not np.array_equal(leaves_by_path(used)["layer_0/kernel"], begun["layer_0/kernel"])


@PARTLY
def test_several_as_one_program(which: Any, tmp_path: Path) -> None:
    configs = [
        set_to(seed=seed, schedule__peak=peak, training__ema=0.5, **which)
        for seed, peak in ((0, 0.1), (1, 0.03))
    ]
    stacked, _ = check_trained_both_ways(tmp_path, configs, Deep())
    assert [outcome.state for outcome in stacked] == ["done", "done"]
