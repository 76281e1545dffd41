"""Optimizers and learning-rate schedules by name: plain functions over optax whose keyword defaults
are the config fields.

A schedule maps `count`, the updates done before this one (as in optax), to the learning rate of
update t = count + 1: the first is not zero, and warm-up reaches its peak at update `warmup`.

Args:
  peak: the highest learning rate, reached after the warm-up.
  warmup: updates in which the learning rate rises from 0 to the peak.
  floor: the learning rate at the last update.
  hold: updates before the learning rate is multiplied by `factor` for the first time.
  every: updates between two such times.
  factor: by which the learning rate is multiplied then.
  b1: decay of the running mean of gradients.
  b2: decay of the running mean of their squares.
  eps: added where it is divided by a root of squares, so that nothing is divided by 0.
  momentum: how much of the last step each step repeats; 0 for none.
  nesterov: whether the gradient counts as if the momentum's step were made already.
  initial: what the sums of squares begin with.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from attnlab.config.registry import Table, build
from attnlab.errors import UserError, reason, users_line
from attnlab.training.arguments import pack, unpack
from attnlab.training.hyperparameters import numbers
from attnlab.training.kinds import MASKS


def _paths(names: str) -> dict[str, str]:
    """Returns the dotted paths of functions of this module, by name."""
    return {name: f"{__name__}:{name}" for name in names.split()}


OPTIMIZERS: Table[Callable[..., optax.GradientTransformation]] = Table(
    "optimizer", _paths("adam adamw adafactor sgd adadelta adagrad"), given=("learning_rate",)
)
decay_mask = MASKS["rank"]
"""The older name of this mask, for optimizers of users; new ones take `MASKS["kind"]`."""
SCHEDULES: Table[Callable[..., optax.Schedule]] = Table(
    "schedule", _paths("constant inverse_sqrt cosine linear stepped"), given=("steps",)
)
Spec = Mapping[str, object]
"""A config node, `{"name": ..., field: value, ...}`."""


def build_optimizer(
    optimizer: Spec,
    schedule: Spec,
    *,
    steps: int,
    clip: float,
    instead: Mapping[str, object] | None = None,
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """Returns the optax optimizer of a config, behind clipping of the gradient norm to `clip` (0:
    none), and its schedule; `instead` has values, by dotted name, in place of those of the config.

    Args:
      optimizer: config node, `{"name": "adam", ...}` with the fields of that function below.
      schedule: config node, `{"name": "cosine", ...}`.
      steps: updates of the whole run; the decaying schedules end there.
      clip: larger gradients are scaled down to this global L2 norm; 0 for no clipping.
      instead: by dotted name ("schedule.peak", "training.clip") what replaces values of the
        config, unchecked: each a `Number` that is traced, so that one program serves all values.

    Returns:
      The optax transformation, and its `schedule(count) -> learning rate` for logging.

    Raises:
      UserError: an unknown name or field, a value of the wrong type or out of range.
    """
    _check_ranges("training", {"clip": clip, "steps": steps})
    instead = instead or {}
    with _naming_errors("schedule", schedule):
        make_rate = build(SCHEDULES, schedule, "schedule")
        updates = instead.get("training.steps", steps)
        rate = make_rate(steps=updates, **_fields_of("schedule", instead))
    with _naming_errors("optimizer", optimizer):
        make_transform = build(OPTIMIZERS, optimizer, "optimizer")
        transform = make_transform(learning_rate=rate, **_fields_of("optimizer", instead))
        if not callable(getattr(transform, "update", None)):
            raise UserError(
                f"optimizer={optimizer['name']}: makes a {type(transform).__name__}, expected an"
                " optax.GradientTransformation"
            )
    longest = instead.get("training.clip", clip)
    return (optax.chain(optax.clip_by_global_norm(longest), transform) if clip else transform), rate


def check_own(optimizer: Spec, schedule: Spec, *, steps: int) -> None:
    """Tries a schedule and an optimizer that a config names by dotted path on two small arrays, by
    shapes alone, their `numbers` as the step gives them; raises `UserError` unless the rate is a
    number and the updates are shaped as the parameters are.
    """
    tree = {"training": {"steps": steps}, "optimizer": optimizer, "schedule": schedule}
    if any(":" in str(node["name"]) for node in (optimizer, schedule)):
        jax.eval_shape(functools.partial(_check_traced_shapes, tree, steps), pack(tree))


def _check_traced_shapes(tree: Mapping[str, Spec], steps: int, packed: jax.Array) -> None:
    """Raises `UserError` if the schedule of a config, traced with the numeric settings `packed`,
    gives no scalar, or the optimizer gives updates of other shapes than the parameters.
    """
    optimizer, schedule = tree["optimizer"], tree["schedule"]
    traced = unpack(numbers(tree), packed)
    transform, rate = build_optimizer(optimizer, schedule, steps=steps, clip=0.0, instead=traced)
    with _naming_errors("schedule", schedule):
        number = jax.eval_shape(rate, jax.ShapeDtypeStruct((), jnp.int32))
        if getattr(number, "shape", None) != ():
            raise UserError(
                f"schedule={schedule['name']}: the learning rate of an update must be one number,"
                f" this is {number}"
            )
    params = {
        "kernel": jax.ShapeDtypeStruct((2, 3), jnp.float32),
        "bias": jax.ShapeDtypeStruct((3,), jnp.float32),
    }
    with _naming_errors("optimizer", optimizer):
        updates, _ = jax.eval_shape(
            lambda arrays: transform.update(arrays, transform.init(arrays), arrays), params
        )
        if updates != params:
            raise UserError(
                f"optimizer={optimizer['name']}: updates must be shaped as the parameters {params}"
                f" are, these are {updates}"
            )


@contextlib.contextmanager
def _naming_errors(node: str, spec: Spec) -> Iterator[None]:
    """A context that turns exceptions of users' code for `node` into `UserError`s with its name."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if ":" not in str(spec["name"]):
            raise
        raise UserError(
            f"{node}={spec['name']}: {f'{users_line(error)}: {reason(error)}'.removeprefix(': ')}"
        ) from error


def adam(
    learning_rate: optax.Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1): -lr m^ / (sqrt(v^) + eps),
    bias-corrected moments of decay b1, b2.

    Vaswani 2017 uses b2 = 0.98 and eps = 1e-9.
    """
    _check_ranges("optimizer", locals())
    return optax.adam(learning_rate, b1=b1, b2=b2, eps=eps)


def adamw(
    learning_rate: optax.Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    decayed: Literal["kind", "rank"] = "kind",
) -> optax.GradientTransformation:
    """Returns Adam with decoupled decay (Loshchilov & Hutter 2019, arXiv:1711.05101), which adds
    -lr weight_decay w for the weights that `decayed` chooses.

    Args:
      weight_decay: how much of a weight is taken away, times the learning rate.
      decayed: which weights: matrices, by the "kind" that their name says (see
        `attnlab.training.kinds`), or all of "rank" 2 and more that are no embeddings, as in earlier
        versions.
    """
    _check_ranges("optimizer", locals())
    return optax.adamw(
        learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, mask=MASKS[decayed]
    )


def adafactor(
    learning_rate: optax.Schedule,
    decay: float = 0.8,
    clipping: float = 1.0,
    minimum_factored: int = 128,
) -> optax.GradientTransformation:
    """Returns Adafactor (Shazeer & Stern 2018, arXiv:1804.04235), which stores second moments as
    row and column means, those of arrays without two axes of at least `minimum_factored` whole, and
    has no momentum.

    The learning rate is relative: the step is scaled by max(1e-3, RMS(w)) (section 8 there), so
    peaks of 1e-3 to 1e-2 fit.

    Args:
      decay: the second moment's decay at update t is 1 - t**-decay.
      clipping: each array's update is scaled down to this root mean square.
      minimum_factored: arrays with two axes of at least this size are factored.
    """
    _check_ranges("optimizer", locals())
    return optax.adafactor(
        learning_rate,
        min_dim_size_to_factor=minimum_factored,
        decay_rate=decay,
        clipping_threshold=clipping,
    )


def sgd(
    learning_rate: optax.Schedule, momentum: float = 0.0, nesterov: bool = False
) -> optax.GradientTransformation:
    """Returns gradient descent by -lr u with momentum u <- momentum u + g, or with Nesterov's
    look-ahead by -lr (g + momentum u), for which momentum 0 raises `UserError`.
    """
    _check_ranges("optimizer", locals())
    off = _is_plain(momentum) and momentum == 0
    if off and nesterov:
        raise UserError("optimizer.nesterov=True must be used with optimizer.momentum above 0")
    return optax.sgd(learning_rate, momentum=None if off else momentum, nesterov=nesterov)


def adadelta(
    learning_rate: optax.Schedule, rho: float = 0.95, eps: float = 1e-6
) -> optax.GradientTransformation:
    """Returns Adadelta (Zeiler 2012, arXiv:1212.5701): -lr RMS(past steps) / RMS(gradients) g.

    RNNsearch's, with a learning rate of 1.
    """
    _check_ranges("optimizer", locals())
    return optax.adadelta(learning_rate, rho=rho, eps=eps)


def adagrad(
    learning_rate: optax.Schedule, initial: float = 0.0, eps: float = 1e-7
) -> optax.GradientTransformation:
    """Adagrad (Duchi, Hazan, Singer 2011, JMLR 12): -lr g / sqrt(initial + sum of all squared
    gradients so far + eps).
    """
    _check_ranges("optimizer", locals())
    return optax.adagrad(learning_rate, initial_accumulator_value=initial, eps=eps)


def constant(steps: int, peak: float = 1e-3, warmup: int = 0) -> optax.Schedule:
    """peak min(1, t / warmup)."""
    _check_ranges("schedule", locals())
    return lambda count: _with_warmup(count, peak, warmup, jnp.asarray(peak, jnp.float32))


def inverse_sqrt(steps: int, peak: float = 1e-3, warmup: int = 4000) -> optax.Schedule:
    """Returns a schedule, count = t - 1 to learning rate: peak min(t / warmup, sqrt(warmup / t)),
    that of Vaswani 2017 (3) if peak = (d warmup)^-0.5; `steps` is not used.
    """
    _check_ranges("schedule", locals())

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        update, flat = _update_number(count), jnp.maximum(warmup, 1.0)
        return peak * jnp.minimum(update * (1.0 / flat), jnp.sqrt(flat / update))

    return rate


def cosine(steps: int, peak: float = 1e-3, warmup: int = 0, floor: float = 0.0) -> optax.Schedule:
    """Returns a schedule, count = t - 1 to learning rate: linear warm-up to `peak`, then floor +
    (peak - floor) (1 + cos(pi p)) / 2 with p = (t - warmup) / (steps - warmup). Loshchilov & Hutter
    2017, arXiv:1608.03983, without restarts.
    """
    _check_ranges("schedule", locals())
    _check_decay(peak, warmup, floor, steps)

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        wave = jnp.cos(jnp.pi * _decay_progress(count, warmup, steps))
        decayed = peak * (0.5 + 0.5 * wave) + floor * (0.5 - 0.5 * wave)
        return _with_warmup(count, peak, warmup, decayed)

    return rate


def linear(steps: int, peak: float = 1e-3, warmup: int = 0, floor: float = 0.0) -> optax.Schedule:
    """Returns a schedule, count = t - 1 to learning rate: linear warm-up to `peak`, then peak +
    (floor - peak) p with p = (t - warmup) / (steps - warmup), and `floor` from t = `steps` on.
    """
    _check_ranges("schedule", locals())
    _check_decay(peak, warmup, floor, steps)

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        p = _decay_progress(count, warmup, steps)
        return _with_warmup(count, peak, warmup, peak * (1.0 - p) + floor * p)

    return rate


def stepped(
    steps: int,
    peak: float = 1.0,
    warmup: int = 0,
    hold: int = 1000,
    every: int = 1000,
    factor: float = 0.5,
) -> optax.Schedule:
    """Returns a schedule, count = t - 1 to learning rate: peak min(1, t / warmup) factor^k, where k
    is 0 up to t = max(hold, warmup), and one more with each `every` updates begun after it; `steps`
    is not used.

    As for the recurrent systems: constant for some epochs, then a decay by one factor per epoch.
    """
    _check_ranges("schedule", locals())

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        """Returns the learning rate after `count` updates."""
        update, first, rise, interval = (
            jnp.asarray(number, jnp.int32) for number in (count, hold, warmup, every)
        )
        falls = jnp.maximum(update - jnp.maximum(first, rise) + interval, 0) // interval
        risen = _with_warmup(count, peak, warmup, jnp.asarray(peak, jnp.float32))
        return risen * factor**falls

    return rate


def _update_number(count: jax.typing.ArrayLike) -> jax.Array:
    """t, [] float32."""
    return jnp.asarray(count, jnp.float32) + 1


def _with_warmup(
    count: jax.typing.ArrayLike, peak: float, warmup: int, decayed: jax.Array
) -> jax.Array:
    """Returns peak t / warmup, rounded as optax does, up to update `warmup`; then `decayed`."""
    missing = 1.0 - _update_number(count) * (1.0 / jnp.maximum(warmup, 1.0))
    return jnp.where(missing > 0.0, peak - peak * missing, decayed)


def _decay_progress(count: jax.typing.ArrayLike, warmup: int, steps: int) -> jax.Array:
    """(t - warmup) / (steps - warmup), between 0 and 1."""
    per_step = 1.0 / jnp.maximum(steps - warmup, 1.0)
    return jnp.clip((_update_number(count) - warmup) * per_step, 0.0, 1.0)


def _check_decay(peak: float, warmup: int, floor: float, steps: int) -> None:
    """Raises `UserError` for a floor below 0 or above the peak, or a warm-up longer than all
    `steps`; traced values are not checked.
    """
    if _is_plain(peak, floor) and not 0 <= floor <= peak:
        raise UserError(f"schedule.floor={floor} must be between 0 and schedule.peak={peak}")
    if _is_plain(warmup, steps) and warmup > steps:
        raise UserError(
            f"schedule.warmup={warmup} must be at most training.steps={steps}, where the decay ends"
        )


def _fields_of(node: str, values: Mapping[str, object]) -> dict[str, object]:
    """Returns the entries of `values` named "node.field" for this node, by field."""
    return {
        name.removeprefix(f"{node}."): value
        for name, value in values.items()
        if name.startswith(f"{node}.")
    }


_RANGES: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "0 (off) or above": ("clip", lambda x: 0 <= x < math.inf),
    "0 or above": ("weight_decay initial warmup hold", lambda x: 0 <= x < math.inf),
    "above 0": ("eps clipping peak", lambda x: 0 < x < math.inf),
    "at least 1": ("steps minimum_factored every", lambda x: x >= 1),
    "in [0, 1)": ("b1 b2 momentum rho", lambda x: 0 <= x < 1),
    "in (0, 1]": ("decay", lambda x: 0 < x <= 1),
    "above 0 and at most 1": ("factor", lambda x: 0 < x <= 1),
}
"""In words: the fields of the functions above that must lie there, and the test."""


def _is_plain(*values: object) -> bool:
    """Whether these are numbers of a config; of a `Number` that is traced nothing can be asked."""
    return all(isinstance(value, int | float) for value in values)


def _check_ranges(node: str, fields: Mapping[str, Any]) -> None:
    """Raises `UserError` for a plain number of a config node that is out of its range."""
    for allowed, (names, fits) in _RANGES.items():
        for name in names.split():
            if name in fields and _is_plain(fields[name]) and not fits(fields[name]):
                raise UserError(f"{node}.{name}={fields[name]} must be {allowed}")
