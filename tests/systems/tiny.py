"""Tiny systems of every kind: how they are built, the parameters they are given, and what is
promised of all kinds alike.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.layers.norms import STATISTICS
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier, LanguageModel, Seq2Seq, System, TokenClassifier
from attnlab.systems.vision import protocol as vision
from attnlab.systems.vision.captioner import Captioner
from attnlab.training.updates import first_params

SIZES: Mapping[type[System], dict[str, int]] = {
    Seq2Seq: {"source_vocabulary": 17, "target_vocabulary": 17},
    LanguageModel: {"vocabulary": 13},
    Classifier: {"vocabulary": 17, "classes": 3},
    TokenClassifier: {"vocabulary": 11, "outputs": 11},  # as many as a masked language model needs
    **{
        kind: {"classes": 3}
        for kind in (vision.ImageClassifier, vision.PixelClassifier, vision.Detector)
    },
    Captioner: {"target_vocabulary": 11},
    vision.VisualAnswerer: {"vocabulary": 17, "classes": 3},
}
"""What a task would supply, by kind."""
STEPS = 120


def kind_of(system: Any) -> type[System] | None:
    """The kind of a class of systems; None for what is none."""
    kinds = (kind for kind in SIZES if isinstance(system, type) and issubclass(system, kind))
    return next(kinds, None)


def make(spec: Mapping[str, Any], **sizes: int) -> Any:
    """A tiny system; `sizes` other than the usual ones of its kind."""
    factory: Any = build(SYSTEMS, ConfigDict(spec), "system")
    return factory(**{**SIZES[kind_of(factory.func)], **sizes})  # type: ignore[index]


def once(make: Callable[..., Any]) -> Callable[..., Any]:
    """`make(spec, ...)`, called once for each setting, so that each program is compiled once."""
    cached = functools.cache(lambda text, *rest: make(json.loads(text), *rest))
    return functools.wraps(make)(
        lambda spec, *rest: cached(json.dumps(spec, sort_keys=True), *rest)
    )


def seldom(cases: Iterable[Any], *default: Any) -> list[Any]:
    """Cases of which all but the `default` ones run in the full mode only."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if case in default else [pytest.mark.full],
        )
        for case in cases
    ]


def alone(variables: Any) -> Any:
    """The parameters of what `init` made, which is nothing else: no maps, no losses, no samples."""
    assert set(variables) == {"params"}, "something was sown while parameters were made"
    return variables["params"]


def drawn(
    system: Any, *read: Any, seed: int = 0, rule: Callable[[str, np.ndarray], np.ndarray]
) -> Any:
    """Parameters with no silent path, also where a paper starts at zero: of each array what
    `rule` makes of its path and of N(0, 1).
    """
    rng = np.random.default_rng(seed)

    def array(path: Any, shape: Any) -> np.ndarray:
        noise = rng.normal(size=shape.shape)
        return rule(jax.tree_util.keystr(path, simple=True, separator="/"), noise).astype("f4")

    shapes = alone(jax.eval_shape(system.init, jax.random.key(0), *read))
    return jax.tree_util.tree_map_with_path(array, shapes)


def by_rows(noise: np.ndarray) -> np.ndarray:
    """N(0, 1 / rows)."""
    return noise / np.sqrt(max((1, *noise.shape[:1])))


def bound(system: Any, params: Any) -> Callable[..., Any]:
    """`call(*arguments, method=..., mutable=...)` of a system with its parameters, compiled; one
    program serves all tests of a method.
    """

    @functools.partial(jax.jit, static_argnames=("method", "mutable"))
    @jax.default_matmul_precision("highest")  # as the oracles
    def compiled(params: Any, *arguments: Any, method: str, mutable: tuple[str, ...]) -> Any:
        return system.apply(
            {"params": params}, *arguments, method=method, mutable=list(mutable) or False
        )

    def call(*arguments: Any, method: str = "__call__", mutable: Sequence[str] = ()) -> Any:
        if method == "start":  # its length is no array
            return system.apply({"params": params}, *arguments, method=method)
        return compiled(params, *arguments, method=method, mutable=tuple(mutable))

    return call


def compiled(system: Any) -> Callable[..., Any]:
    """`call(parameters, ..., name=...)` of a system, one program for all tests of a shape."""

    @jax.jit
    @jax.default_matmul_precision("highest")  # as the oracles
    def call(params: Any, *read: Any, **beside: Any) -> Any:
        return system.apply({"params": params}, *read, **beside)

    return call


def fetched(call: Callable[..., Any]) -> Callable[..., Any]:
    """What a test takes of the outcome of `call` needs no program."""
    return lambda *arguments, **named: jax.device_get(call(*arguments, **named))


def entropy_of(labels: Any) -> Callable[[Any], jax.Array]:
    """The mean cross-entropy of logits with labels."""
    return lambda logits: optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def wide(tree: Any) -> Any:
    """Its arrays in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def named(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their paths, a/b/c."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in leaves
    }


def fitted(
    system: Any,
    read: tuple[Any, ...],
    cost: Callable[[Any], jax.Array],
    steps: int = STEPS,
    rate: float = 2e-2,
) -> tuple[float, float]:
    """`cost` of what a tiny system says of `read`, before the first and after the last update of
    Adam, whose rate falls to zero: at a constant pace the last loss would be a matter of rounding.

    Norms see the batch, and what draws is given a random stream, as in training.
    """
    params = first_params(system.init, jax.random.key(0), *read)["params"]
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def update(carry: Any, key: Any) -> tuple[Any, jax.Array]:
        params, state = carry

        def loss(params: Any) -> jax.Array:
            said, _ = system.apply(
                {"params": params}, *read, mutable=[STATISTICS], rngs={"sample": key}
            )
            return cost(said)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def losses_of(params: Any) -> jax.Array:
        keys = jax.random.split(jax.random.key(1), steps)
        return jax.lax.scan(update, (params, optimizer.init(params)), keys)[1]

    losses = losses_of(params)
    return float(losses[0]), float(losses[-1])


def check_learnt(
    losses: tuple[float, float], choices: int, last: float, above: float = 1.5, below: float = 0.5
) -> None:
    """The first loss is about that of chance, so that no target leaks in (tied tables start above
    it), and the last one at most `last`.
    """
    chance = np.log(choices)
    assert -below < losses[0] - chance < above, f"the first loss is {losses[0]:.2f}, {chance=:.2f}"
    assert losses[1] < last, f"the loss ends at {losses[1]:.4f}"


def check_equal(found: np.ndarray, expected: np.ndarray, error: float = 1e-6) -> None:
    """To `error` of the largest."""
    assert found.shape == expected.shape, (
        f"the oracle gives {list(expected.shape)}, the system {list(found.shape)}"
    )
    apart = np.abs(found - expected).max() / np.abs(expected).max()
    assert apart <= error, f"they differ by {apart:.1e} of the largest logit"


def check_every_parameter_is_read(
    oracle: Callable[[Any], Any], params: Any, by: float = 0.1, silent: Sequence[str] = ()
) -> None:
    """An array that an oracle of parameters forgot would be one that the system may get wrong; each
    is moved by N(0, by^2) in turn, but for `silent` ones, on which no output depends, and a key's
    bias, which shifts all scores of a row alike.
    """

    def outputs(leaves: list[np.ndarray]) -> np.ndarray:
        parts = jax.tree.leaves(oracle(jax.tree.unflatten(tree, leaves)))
        return np.concatenate([np.ravel(part) for part in parts])

    leaves, tree = jax.tree.flatten(wide(params))
    before, rng = outputs(leaves), np.random.default_rng(1)
    for number, path in enumerate(named(params)):
        if path.endswith(("w_key/bias", *silent)):
            continue
        moved = leaves[number] + by * rng.normal(size=leaves[number].shape)
        changed = outputs([*leaves[:number], moved, *leaves[number + 1 :]])
        difference = np.abs(changed - before).max()
        assert difference > 1e-5, f"{path} makes no difference to the oracle"
