"""Schedules equal their closed forms and optimizers the formulas of their papers; bad values are one
line.
"""

import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab import config as configs
from attnlab.config.tree import defaults
from attnlab.errors import UserError
from attnlab.training.arguments import pack, unpack
from attnlab.training.hyperparameters import numbers
from attnlab.training.kinds import MASKS
from attnlab.training.optimizers import (
    OPTIMIZERS,
    SCHEDULES,
    adam,
    build_optimizer,
    check_own,
    stepped,
)
from attnlab.training.updates import best_params
from tests.commands.tiny import under
from tests.refusals import check_refused
from tests.training import toy

STEPS, WARMUP, PEAK, FLOOR = 50, 10, 0.3, 0.02
HOLD, EVERY = 12, 7


def by_numbers(optimizer: Any, schedule: Any, steps: int, clip: float) -> Any:
    """`build_optimizer` in the program of a step: it is given the numbers as arguments, beside a
    config that has others.
    """
    training = {"steps": steps, "clip": clip}
    tree = {"training": training, "optimizer": optimizer, "schedule": schedule}
    values = unpack(numbers(tree), jnp.asarray(pack(tree)))
    for name in values:
        node, _, field = name.partition(".")
        tree[node] = {key: value for key, value in tree[node].items() if key != field}
    nodes = tree["optimizer"], tree["schedule"]
    return build_optimizer(*nodes, steps=1, clip=float(clip > 0), instead=values)


def rates(name: str, steps: int = STEPS, **fields: Any) -> np.ndarray:
    """The learning rates of updates 1..steps+5, as optax asks for them (count 0 first)."""
    _, schedule = by_numbers({"name": "sgd"}, {"name": name, **fields}, steps=steps, clip=0.0)
    return np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(steps + 5)))


def progress(update: int, warmup: int) -> float:
    return min(1.0, (update - warmup) / (STEPS - warmup))


CLOSED: dict[str, Any] = {
    "constant": lambda t, w: PEAK,
    "inverse_sqrt": lambda t, w: PEAK * math.sqrt(max(w, 1) / t),
    "cosine": lambda t, w: FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * progress(t, w))) / 2,
    "linear": lambda t, w: PEAK + (FLOOR - PEAK) * progress(t, w),
    "stepped": lambda t, w: PEAK * 0.9 ** max(0, math.ceil((t - max(HOLD, w)) / EVERY)),
}


def test_every_schedule_has_a_closed_form_here() -> None:
    """A new schedule needs an entry above."""
    assert list(CLOSED) == SCHEDULES.names()


@pytest.mark.quick
@pytest.mark.parametrize("name", CLOSED)
def test_schedule_equals_its_closed_form(name: str) -> None:
    """Update t uses t, not t - 1: the first one moves, the peak is at t = warmup, the floor at t =
    steps and after.
    """
    fields = {"floor": FLOOR} if name in ("cosine", "linear") else {}
    fields = {"hold": HOLD, "every": EVERY, "factor": 0.9} if name == "stepped" else fields
    for warmup in (0, 1, WARMUP):
        rising, rest = range(1, warmup), range(max(1, warmup), STEPS + 6)
        expected = [PEAK * t / warmup for t in rising] + [CLOSED[name](t, warmup) for t in rest]
        actual = rates(name, peak=PEAK, warmup=warmup, **fields)
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-8)
    # nothing is left to decay over: the peak comes last
    assert rates(name, peak=PEAK, warmup=STEPS)[STEPS - 1] == pytest.approx(PEAK)


def _adam(w: Any, g: Any, kept: dict[str, Any], t: int, of: dict[str, Any]) -> Any:
    kept["m"] = of["b1"] * kept.get("m", 0.0) + (1 - of["b1"]) * g
    kept["v"] = of["b2"] * kept.get("v", 0.0) + (1 - of["b2"]) * g**2
    return kept["m"] / (1 - of["b1"] ** t) / (np.sqrt(kept["v"] / (1 - of["b2"] ** t)) + of["eps"])


def _adamw(w: Any, g: Any, kept: dict[str, Any], t: int, of: dict[str, Any]) -> Any:
    return _adam(w, g, kept, t, of) + (of["weight_decay"] * w if w.ndim == 2 else 0.0)


def _adafactor(w: Any, g: Any, kept: dict[str, Any], t: int, of: dict[str, Any]) -> Any:
    decay = 1 - t ** -of["decay"]
    if w.ndim == 2 and min(w.shape) >= of["minimum_factored"]:
        for axis in (0, 1):
            mean = (g**2).mean(axis=axis, keepdims=True)
            kept[axis] = decay * kept.get(axis, 0.0) + (1 - decay) * mean
        update = g / np.sqrt(kept[0] * kept[1] / kept[1].mean())
    else:
        kept["v"] = decay * kept.get("v", 0.0) + (1 - decay) * g**2
        update = g / np.sqrt(kept["v"])
    size = max(1.0, np.sqrt((update**2).mean()) / of["clipping"])
    return update / size * max(1e-3, np.sqrt((w**2).mean()))


def _sgd(w: Any, g: Any, kept: dict[str, Any], t: int, of: dict[str, Any]) -> Any:
    kept["u"] = of["momentum"] * kept.get("u", 0.0) + g
    return g + of["momentum"] * kept["u"] if of["nesterov"] else kept["u"]


def _adadelta(w: Any, g: Any, kept: dict[str, Any], t: int, of: dict[str, Any]) -> Any:
    kept["g"] = of["rho"] * kept.get("g", 0.0) + (1 - of["rho"]) * g**2
    update = np.sqrt(kept.get("x", 0.0) + of["eps"]) / np.sqrt(kept["g"] + of["eps"]) * g
    kept["x"] = of["rho"] * kept.get("x", 0.0) + (1 - of["rho"]) * update**2
    return update


def _adagrad(w: Any, g: Any, kept: dict[str, Any], t: int, of: dict[str, Any]) -> Any:
    kept["sum"] = kept.get("sum", of["initial"]) + g**2
    return g / np.sqrt(kept["sum"] + of["eps"])


FACTORED = [
    {"decay": 0.4, "clipping": clipping, "minimum_factored": least}
    for clipping, least in ((0.6, 3), (5.0, 4))
]
FORMULAS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "adam": (_adam, [{"b1": 0.6, "b2": 0.7, "eps": 0.3}]),
    "adamw": (_adamw, [{"b1": 0.6, "b2": 0.7, "eps": 0.3, "weight_decay": 0.4, "decayed": "kind"}]),
    "adafactor": (_adafactor, FACTORED),
    "sgd": (_sgd, [{"momentum": 0.6, "nesterov": nesterov} for nesterov in (False, True)]),
    "adadelta": (_adadelta, [{"rho": 0.6, "eps": 0.2}]),
    "adagrad": (_adagrad, [{"initial": 2.0, "eps": 0.8}]),
}
"""One update without the rate, of one array, by the formula of the paper, and arguments away from
their defaults.
"""


@pytest.mark.parametrize("name", FORMULAS)
def test_five_steps_are_those_of_the_formula(name: str) -> None:
    """In float64, at the rates of the schedule, behind clipping of the gradients of all arrays
    together.
    """
    update, settings = FORMULAS[name]
    for fields in settings:
        check_five_steps(name, update, fields)


def check_five_steps(name: str, update: Any, fields: dict[str, Any]) -> None:
    """An optimizer from a config node against the formula."""
    node = {"name": "linear", "peak": 0.4, "warmup": 2, "floor": 0.1}
    transform, _ = by_numbers({"name": name, **fields}, node, steps=5, clip=4.0)
    assert {*fields} == {
        *defaults(OPTIMIZERS.resolve(name))
    }  # a new argument needs a value of its own
    rng = np.random.default_rng(4)
    wide = {"kernel": rng.normal(size=(4, 3)), "bias": rng.normal(size=3)}
    narrow = functools.partial(jax.tree.map, lambda leaf: jnp.asarray(leaf, jnp.float32))
    params = narrow(wide)
    state, kept, clipped = transform.init(params), {leaf: dict[str, Any]() for leaf in wide}, 0
    for t, rate in enumerate((0.2, 0.4, 0.3, 0.2, 0.1), 1):
        grads = {leaf: rng.normal(size=value.shape) for leaf, value in wide.items()}
        norm = math.sqrt(sum((grad**2).sum() for grad in grads.values()))
        clipped += norm > 4.0
        moves, state = transform.update(narrow(grads), state, params)
        params = optax.apply_updates(params, moves)
        for leaf, grad in grads.items():
            small, where = grad * min(1.0, 4.0 / norm), f"{leaf}, update {t}"
            wide[leaf] = wide[leaf] - rate * update(wide[leaf], small, kept[leaf], t, fields)
            np.testing.assert_allclose(params[leaf], wide[leaf], atol=2e-5, err_msg=where)
    assert 0 < clipped < 5


@pytest.mark.parametrize("decayed", ["kind", "rank"])
def test_weight_decay_spares_biases_norms_and_embeddings(decayed: str) -> None:
    """The mask, and its effect in AdamW with a zero gradient; by rank it reaches a gain of two axes
    and no kernel below an embedding, as in earlier versions.
    """
    shapes = {
        "encoder": {"Embed_0": {"embedding": (5, 2)}, "dense": {"kernel": (2, 2), "bias": (2,)}},
        "layers": {
            "norm": {"scale": (3, 2), "gain": (2,)},
            "dense": {"kernel": (3, 2, 2), "bias": (3, 2)},
        },
        "target_embedding": (5, 2),
    }
    differ = {"decay": (2, 3), "embed": {"kernel": (2, 2)}}
    is_shape = lambda node: isinstance(node, tuple)
    params = jax.tree.map(jnp.ones, {**shapes, **differ}, is_leaf=is_shape)
    reached = jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key == "kernel", params)
    if decayed == "rank":
        reached |= {"decay": True, "embed": {"kernel": False}}
    assert MASKS[decayed](params) == reached
    fields = {"name": "adamw", "weight_decay": 0.5, "decayed": decayed}
    transform, _ = build_optimizer(fields, {"name": "constant", "peak": 0.1}, steps=5, clip=0.0)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = transform.update(zeros, transform.init(params), params)
    assert jax.tree.map(lambda leaf: bool((leaf != 0).any()), updates) == reached
    np.testing.assert_allclose(updates["encoder"]["dense"]["kernel"], -0.1 * 0.5)


LATE = "must be at most training.steps=10, where the decay ends"
BESIDE = "must be used with optimizer.momentum above 0"
STEPPED = {"name": "stepped"}
BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "schedule": [
        ({"peak": 0.0}, "schedule.peak=0.0 must be above 0"),
        ({"peak": math.nan}, "schedule.peak=nan must be above 0"),
        ({"warmup": -1}, "schedule.warmup=-1 must be 0 or above"),
        ({"warmup": 11}, f"schedule.warmup=11 {LATE}"),
        ({"floor": 0.5}, "schedule.floor=0.5 must be between 0 and schedule.peak=0.1"),
        ({"flor": 0.5}, "schedule: cosine has no field 'flor' to set; did you mean 'floor'?"),
        ({"warmup": 1.5}, "schedule.warmup=1.5 is of type float, expected int"),
        ({"name": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'?"),
        (STEPPED | {"factor": 0.0}, "schedule.factor=0.0 must be above 0 and at most 1"),
        (STEPPED | {"every": 0}, "schedule.every=0 must be at least 1"),
        (STEPPED | {"hold": -1}, "schedule.hold=-1 must be 0 or above"),
    ],
    "optimizer": [
        ({"name": "adan"}, "unknown optimizer 'adan'; did you mean 'adam'"),
        ({"b1": 1.0}, "optimizer.b1=1.0 must be in [0, 1)"),
        ({"name": "attnlab.training.optimizers:adam", "b1": 2.0}, "optimizer.b1=2.0 must be in"),
        ({"b2": -0.1}, "optimizer.b2=-0.1 must be in [0, 1)"),
        ({"eps": 0.0}, "optimizer.eps=0.0 must be above 0"),
        ({"name": "adamw", "weight_decay": -1.0}, "optimizer.weight_decay=-1.0 must be 0"),
        ({"name": "sgd", "nesterov": True}, f"optimizer.nesterov=True {BESIDE}"),
        ({"name": "adafactor", "decay": 0.0}, "optimizer.decay=0.0 must be in (0, 1]"),
        ({"name": "adadelta", "rho": 1.0}, "optimizer.rho=1.0 must be in [0, 1)"),
        ({"name": "adagrad", "initial": -1.0}, "optimizer.initial=-1.0 must be 0 or above"),
    ],
    "training": [
        ({"clip": -1.0}, "training.clip=-1.0 must be 0 (off) or above"),
        ({"steps": 0}, "training.steps=0 must be at least 1"),
    ],
}


@pytest.mark.parametrize(
    ("node", "fields", "message"), [(node, *case) for node, cases in BAD.items() for case in cases]
)
def test_bad_values_are_one_line(node: str, fields: dict[str, Any], message: str) -> None:
    """Each names the field, the value and what would do."""
    nodes: dict[str, dict[str, Any]] = {
        "optimizer": {"name": "adam"},
        "schedule": {"name": "cosine", "peak": 0.1},
        "training": {"steps": 10, "clip": 1.0},
    }
    nodes[node] |= fields
    with pytest.raises(UserError) as raised:
        build_optimizer(nodes["optimizer"], nodes["schedule"], **nodes["training"])
    assert str(raised.value).startswith(message)


def test_bad_values_are_refused_where_users_code_calls_the_functions() -> None:
    check_refused("optimizer.b1=2 must be in", adam, optax.constant_schedule(0.1), b1=2)
    check_refused("schedule.every=0 must be at least 1", stepped, 9, every=0)


DECAYED: dict[str, Any] = {"b1": 0.7, "weight_decay": 0.1}
AHEAD: dict[str, Any] = {"momentum": 0.5, "nesterov": True}
OPTAX: dict[str, tuple[dict[str, Any], Any]] = {
    "lion": ({"b1": 0.8}, lambda rate: optax.lion(rate, b1=0.8)),
    "adamw": (DECAYED, lambda rate: optax.adamw(rate, **DECAYED)),
    "sgd": (AHEAD, lambda rate: optax.sgd(rate, **AHEAD)),
    "nadam": ({}, optax.nadam),
    "adafactor": ({"decay_rate": 0.7}, lambda rate: optax.adafactor(rate, decay_rate=0.7)),
}
"""Optimizers of another package: some have annotations that nobody can resolve, one is a partial, one has a default rate of its own."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name != "lion")) for name in OPTAX]
)
def test_an_optimizer_by_dotted_path_trains_at_the_rates_of_the_schedule(
    name: str, tmp_path: Path
) -> None:
    """Five steps of the training loop, from the settings of a command line, against optax by hand
    with the rates written out.
    """
    fields, by_hand = OPTAX[name]
    overrides = [f"optimizer=optax:{name}", *under("optimizer", **fields)]
    evaluated = {"training__evaluate_every": 5, "checkpoint__every": 5}
    config = toy.settings(training__steps=5, training__clip=0.0, **evaluated)
    config.schedule = {"name": "constant", "peak": 0.1, "warmup": 2}
    given = configs.load("configs/translation.py:rnnsearch", overrides).optimizer
    assert "learning_rate" not in given and given.name == f"optax:{name}"
    config.optimizer = given
    check_own(config.optimizer, config.schedule, steps=5)
    toy.run(tmp_path, config)
    actual, step = best_params(config, toy.Line(), tmp_path)
    rates = jnp.asarray([0.05, 0.1, 0.1, 0.1, 0.1])
    transform = by_hand(lambda count: rates[count])
    params = toy.Line().init(jax.random.key(0))
    state = transform.init(params)
    slope = jax.grad(lambda one, batch: toy.Line().loss(one, batch, jax.random.key(0))[0])
    for batch in map(toy.points, range(5)):
        rows = batch["real"].sum()
        grads = jax.tree.map(lambda x, rows=rows: x / rows, slope(params, batch))
        updates, state = transform.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert step == 5
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, actual, params)
