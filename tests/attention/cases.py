"""Every registered mechanism is tested: here are the settings worth a case, their parameters and
inputs, and the one table of tolerances.
"""

import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.features import FEATURES
from attnlab.attention.mixer import MAPS, Mixer
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import Attention
from attnlab.attention.scores import SCORES
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.config.registry import Table
from attnlab.mixers import MIXERS
from attnlab.training.kinds import kind_of
from attnlab.training.trained import leaves_by_path
from tests.attention.oracles import ORACLES, Oracle, part


@functools.cache
def committed(file: Path) -> dict[str, dict[str, Any]]:
    """The cases of a file of golden numbers, by name."""
    cases: dict[str, dict[str, Any]] = {}
    for key, array in np.load(file).items():
        case, _, name = key.partition("/")
        cases.setdefault(case, {})[name] = array
    return cases


WIDTH = 12
PARTS = (("score", "dot"), ("alignment", "softmax"), ("positions", "none"))
CAPPED = {"name": "soft_capped", "cap": 2.0, "score": {"name": "cosine", "strength": "emitted"}}
MOBA = {"name": "moba", "block": 2, "blocks": 2}
SPARSE = {"compress": 4, "stride": 2, "block": 2, "blocks": 3, "window": 2}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "single": [
        {"score": {"name": "additive", "hidden": 7}},
        {"score": {"name": "general"}},
        {"score": {"name": "concat", "hidden": 5}},
        {"score": {"name": "cosine", "strength": "emitted"}},
        {"score": {"name": "dot"}},
        {"score": {"name": "location", "limit": 9}},
        {"score": "scaled_dot", "alignment": {"name": "local_p", "reach": 3}},
        {"score": "dot", "alignment": "hard"},
        {"score": {"name": "source_only", "hidden": 5}},
        {"score": {"name": "location_aware", "hidden": 5, "filters": 3, "reach": 2}},
        {"score": {"name": "coverage", "hidden": 5}, "alignment": "monotonic"},
        {"score": "dot", "alignment": {"name": "temporal"}},
    ],
    "multihead": [
        {"heads": 3},
        {"heads": 1, "bias": True},
        {"heads": 4, "key_heads": 2, "head_width": 5, "bias": ("query", "value")},
        {"heads": 6, "key_heads": 2},
        {"heads": 3, "positions": {"name": "shaw", "clip": 2}},
        {"heads": 6, "key_heads": 2, "positions": {"name": "transformer_xl"}},
        {"heads": 3, "positions": {"name": "t5", "buckets": 8, "max_distance": 6}},
        {"heads": 3, "positions": {"name": "alibi"}},
        {"heads": 3, "key_heads": 1, "positions": {"name": "rope", "layout": "half", "share": 0.5}},
        {"heads": 3, "score": {"name": "qk_rmsnorm"}, "positions": {"name": "rope"}},
        {"heads": 2, "score": {"name": "gaussian", "spread": "fixed", "tau": 3.0}},
        {"heads": 3, "key_heads": 1, "score": CAPPED},
        {"heads": 3, "alignment": {"name": "sparsemax"}},
        {"heads": 3, "alignment": {"name": "entmax"}},
        {"heads": 3, "alignment": {"name": "sink"}},
        {"heads": 3, "alignment": {"name": "sigmoid"}},
        {"heads": 3, "alignment": "learned_entmax"},
        {"heads": 3, "alignment": "softmax_plus_one"},
        {"heads": 3, "score": "euclidean", "alignment": {"name": "local_m", "reach": 2}},
        {"heads": 2, "alignment": {"name": "local_p_renormalised", "reach": 2}},
        {"heads": 3, "alignment": "monotonic"},
        {"heads": 6, "key_heads": 3, "score": {"name": "coverage", "hidden": 4}},
        {"heads": 3, "alignment": "straight_through"},
        {"heads": 3, "alignment": "gumbel"},
        {"heads": 1, "positions": {"name": "cope", "count": 3}, "alignment": "stick_breaking"},
        {"heads": 3, "alignment": "selective"},
        {"heads": 6, "key_heads": 2, "positions": "rope", "alignment": MOBA},
    ],
    "talking_heads": [{"heads": 3}],
    "differential": [
        {"heads": 2, "head_width": 4},
        {"heads": 4, "alignment": {"name": "scalable_softmax", "length": 5}},
    ],
    "gated": [
        {"heads": 2, "head_width": 5, "gate": "head"},
        {"heads": 3, "alignment": {"name": "top_k", "keep": 3}},
    ],
    "forgetting": [{"heads": 6, "key_heads": 2, "alignment": "sink"}],
    "tensor_product": [{"heads": 3, "query_rank": 3, "score": "qk_rmsnorm", "positions": "rope"}],
    "path": [{"heads": 6, "key_heads": 2, "block": 4}],
    "lightning_indexer": [{"heads": 3, "keep": 2, "index_heads": 8, "index_width": 4}],
    "native_sparse": [{"heads": 2, "key_heads": 1, **SPARSE, "positions": "rope"}],
    "latent": [
        {"heads": 3, "latent": 5},
        {"heads": 2, "head_width": 5, "latent": 4, "alignment": "softpick"},
        {"heads": 2, "latent": 3, "rotary": 4, "query_latent": 5, "positions": {"name": "rope"}},
    ],
    "hops": [{"hops": 2, "hidden": 5}],
    "key_value": [
        {"score": {"name": "additive", "hidden": 6}},
        {"score": "scaled_dot", "alignment": "sigmoid"},
    ],
    "key_value_predict": [{"score": {"name": "additive", "hidden": 4}}, {"score": "general"}],
    "multi_step": [
        {"steps": 2, "looks": {"name": "multihead", "heads": 2}},
        {"steps": 2, "looks": {"name": "single", "score": "dot", "alignment": "temporal"}},
    ],
    "linformer": [
        {"heads": 3, "rank": 4, "length": 128},
        {"heads": 2, "rank": 3, "length": 130, "share": "none"},
        {"heads": 3, "rank": 4, "length": 128, "share": "key_value"},
    ],
    "synthesizer": [
        {"heads": 3, "length": 128, "hidden": 5},
        {"heads": 2, "length": 130, "form": "random"},
        {"heads": 3, "length": 128, "form": "random", "rank": 4},
    ],
    "linear": [
        {"heads": 3},
        {"heads": 2, "features": {"name": "cosine", "length": 9}, "bias": True, "chunk": 3},
        {"heads": 3, "features": "identity", "normalise": "norm", "chunk": 1},
    ],
}
PLAINEST = ("multihead", {"heads": 3})
CASES = [(name, config) for name in MECHANISMS.names() for config in SETTINGS.get(name, [{}])]
NAMES = [f"{name}-{json.dumps(config)}" for name, config in CASES]

NOT_LINEAR = {
    "differential": "a norm follows the weights, so that dropped weights do not average out",
    "key_value": "a tanh follows the weighted sum",
    "key_value_predict": "a tanh follows the weighted sum",
}

# alignments whose gradient is, by definition, not that of what they compute: compared with no
# oracle's
ESTIMATORS = {
    "straight_through": "the gradient is that of softmax",
    "gumbel": "the gradient is that of the relaxed sample",
}
# alignments that are not continuous: a rounded score may change a whole row, so that in bfloat16
# one row in five may be another
JUMPS = {
    **dict.fromkeys(("hard", "straight_through", "gumbel"), "one key is chosen"),
    **dict.fromkeys(("top_k", "lightning_indexer"), "keys are chosen"),
    **dict.fromkeys(("moba", "native_sparse"), "blocks are chosen"),
    **dict.fromkeys(("local_p", "local_p_renormalised"), "the window moves by whole keys"),
}

TOLERANCE = {"float32": 1e-6, "reordered": 2e-6, "gradient": 5e-6}
TOLERANCE |= {"bfloat16": 1e-2, "float64": 1e-10}


LOOKS_AT_POSITIONS: set[str] = {"forgetting", "path", "native_sparse", "synthesizer", "linformer"}
"""Mechanisms by dotted path that do so in themselves, and not by a part of theirs."""


def only(path: str, oracle: str | None = None) -> None:
    """Run over a mechanism that is not registered, by its dotted path, in place of those that are
    (`--mechanism` of pytest).

    Args:
      path: "module:Class". The module may have SETTINGS, a list of configs to test it in;
        LOOKS_AT_POSITIONS = True if the order of the source matters to it; NOT_LINEAR, the reason
        why dropped weights do not average out; and `oracle`.
      oracle: "module:function", a float64 reference as in `oracles.py`; without one the module's
        own, if it has it.
    """
    beside = importlib.import_module(MECHANISMS.resolve(path).__module__)
    settings = getattr(beside, "SETTINGS", [{}])
    CASES[:] = [(path, config) for config in settings]
    NAMES[:] = [f"{path}-{json.dumps(config)}" for config in settings]
    if getattr(beside, "LOOKS_AT_POSITIONS", False):
        LOOKS_AT_POSITIONS.add(path)
    if hasattr(beside, "NOT_LINEAR"):
        NOT_LINEAR[path] = beside.NOT_LINEAR
    reference = Table[Any]("oracle", {}).find(oracle) if oracle else getattr(beside, "oracle", None)
    if reference is not None:
        ORACLES[path] = reference


def reads(name: str) -> bool:
    """Whether a mixer can look at another sequence; what it cannot do is not asked of it."""
    return issubclass(MECHANISMS.resolve(name), Attention)


def over(
    cases: list[tuple[str, dict[str, Any]]],
    product: str = "",
    quick: bool = False,
    drawn: list[tuple[str, dict[str, Any]]] | None = None,
    always: list[tuple[str, dict[str, Any]]] | None = None,
) -> pytest.MarkDecorator:
    """A test over some of `CASES`, in a product of a file (`tests/sampling.py`); the plainest case is
    a product of its own, so that a default run has all its tests.

    Args:
      cases, product: which, and the name of the product.
      quick: the first setting of each mechanism is among those of `-m quick`.
      drawn: those that a default run draws from, by default all.
      always: those that a default run always has.
    """

    def marks(case: tuple[str, dict[str, Any]]) -> list[pytest.MarkDecorator]:
        result = [pytest.mark.quick] if quick and case in first_settings() else []
        if product:
            own = f"{product} of {case}" if case in (always or []) else product
            result.append(pytest.mark.product("plainest" if case == PLAINEST else own))
        return result + ([] if drawn is None or case in drawn else [pytest.mark.full])

    labelled = [pair for pair in zip(CASES, NAMES, strict=True) if pair[0] in cases]
    return pytest.mark.parametrize(
        ("name", "config"),
        [pytest.param(*case, id=label, marks=marks(case)) for case, label in labelled],
        scope="module",  # so that the tests of a case come together
    )


def over_all(product: str = "", quick: bool = False, **more: Any) -> pytest.MarkDecorator:
    """A test over every case, see `over`."""
    return over(CASES, product, quick, **more)


def first_settings() -> list[tuple[str, dict[str, Any]]]:
    """One case of each mechanism."""
    first = dict(reversed(CASES))
    return [(name, first[name]) for name in dict(CASES)]


def reference(name: str) -> Oracle:
    """The oracle of a mechanism; skips the test where somebody's own mechanism came without one."""
    if name not in ORACLES:
        pytest.skip(
            "compared with no oracle: name one by --oracle=module:function, or put a function"
            " `oracle` beside the mechanism"
        )
    return ORACLES[name]


def looks_at_positions(name: str, config: dict[str, Any]) -> bool:
    """Whether a mechanism or any part of it does."""
    score, alignment, scheme = (part(config, field, default)[0] for field, default in PARTS)
    features = FEATURES.resolve(part(config, "features", "elu")[0])
    hooks, looks_at = POSITIONS.resolve(scheme).hooks, ALIGNMENTS.resolve(alignment).looks_at
    of_score = score in ("location", "location_aware")
    return bool(of_score or looks_at or hooks or features.places or name in LOOKS_AT_POSITIONS)


def looks_back(config: dict[str, Any]) -> bool:
    """Whether a look depends on the looks before: a part of a mechanism does so, or of the one
    inside it.
    """
    inside = config.get("looks")
    if isinstance(inside, dict):
        return looks_back(inside)
    score = SCORES.resolve(part(config, "score", "dot")[0])(parent=None)
    return bool(score.looks_back) or alignment(config).form == "look"


def alignment(config: dict[str, Any]) -> Any:
    """The class of a mechanism's alignment."""
    return ALIGNMENTS.resolve(part(config, "alignment", "softmax")[0])


def stepwise(config: dict[str, Any]) -> bool:
    """Whether a mechanism may be read query by query, while its source grows: what the alignment of
    a row rests on is there by then.
    """
    return "lengths" not in alignment(config).looks_at


def causally(module: Mixer) -> View:
    """The causal view where a mechanism honours it, else that of everything."""
    return CAUSAL if "causal" in module.capabilities.directions else EVERYTHING


def own_place(mechanism: Any) -> dict[str, Any]:
    """A role and a direction that a mechanism declares, as arguments of `Need`."""
    can = mechanism.capabilities
    return {"role": min(can.roles), "direction": min(can.directions)}


def kept(made: Callable[..., Any]) -> Any:
    """A function of a case that keeps what it made of the last one, since pytest runs the tests of
    a case together.
    """

    @functools.lru_cache(maxsize=1)
    def of_text(name: str, config: str, *more: Any) -> Any:
        return made(name, json.loads(config), *more)

    return lambda name, config, *more: of_text(name, json.dumps(config), *more)


def make(name: str, config: dict[str, Any]) -> Attention:
    """The mechanism, or another mixer, of a case, WIDTH wide."""
    return MIXERS.resolve(name)(width=WIDTH, **config)


def prepared(name: str, config: dict[str, Any]) -> tuple[Any, Any]:
    """The `apply` of a case with parameters, and these."""
    module = make(name, config)
    params = parameters(module)
    return functools.partial(module.apply, {"params": params}), params


def parameters(module: Mixer, seed: int = 0) -> Any:
    """Parameters drawn so that no path is silent: N(0, 1/rows) for every array, zero-initialised
    ones too; `init` makes nothing else.
    """
    x = jnp.zeros((1, 2, WIDTH))
    if isinstance(module, Attention):
        variables = jax.eval_shape(module.init, jax.random.key(0), x, x)
    else:
        init = functools.partial(module.init, method="mix")
        variables = jax.eval_shape(init, jax.random.key(0), x)
    assert set(variables) <= {"params"}, "something was sown while parameters were made"
    shapes = variables.get("params", {})
    assert [path for path in leaves_by_path(shapes) if kind_of(path) is None] == []  # see `kinds`
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    drawn = [
        rng.normal(size=leaf.shape).astype(np.float32) / np.sqrt(leaf.shape[0]) for leaf in leaves
    ]
    return jax.tree.unflatten(tree, [leaf.astype(np.float32) for leaf in drawn])


def inputs(
    batch: int = 3, queries: int = 5, keys: int = 7, seed: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit-variance query [B,Tq,WIDTH] and source [B,Tk,WIDTH], and `valid` [B,Tk] with a row of
    one real token.
    """
    rng = np.random.default_rng(seed)
    sizes = (batch, queries, WIDTH), (batch, keys, WIDTH)
    query, source = (rng.normal(size=size).astype(np.float32) for size in sizes)
    lengths = np.array([keys, 1, max(1, keys - 3)] + [keys] * batch)[:batch]
    return query, source, np.arange(keys)[None] < lengths[:, None]


def recorded(collected: Any) -> Any:
    """The map of a mechanism, exact or effective, and not that of one inside it."""
    maps = collected[MAPS]
    return maps["weights" if "weights" in maps else "effective"][0]


def wide(tree: Any) -> Any:
    """Its arrays in float64."""
    return jax.tree.map(lambda a: np.asarray(a, np.float64), tree)


def without_biases(params: Any) -> Any:
    """The parameters with biases of 0."""
    is_bias = lambda path: "bias" in jax.tree_util.keystr(path)
    silent = lambda path, leaf: 0 * leaf if is_bias(path) else leaf
    return jax.tree_util.tree_map_with_path(silent, params)
