"""Promises of every system that writes a text for an image, as functions that raise AssertionError;
tiny ones, and what they read.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.decoding.steps import by_row
from attnlab.layers.norms import STATISTICS
from attnlab.systems.vision.captioner import Captioner
from tests.systems import tiny
from tests.systems.checks import apart, check_heard
from tests.systems.tiny import make, once, wide

VOCABULARY = tiny.SIZES[Captioner]["target_vocabulary"]
FEATURES = 5
SHAPE = (8, 12, 3)
_CNN = {"name": "cnn", "widths": (4, FEATURES)}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 6}}
_HARD = {**_ADDITIVE, "alignment": {"name": "hard"}}
_HEADS = {"name": "multihead", "heads": 2}
_TELLER = {
    **{"name": "show_attend_tell", "backbone": _CNN, "features": FEATURES},
    **{"embedding": 6, "width": 7, "attention": _ADDITIVE},
}
_TRANSFORMER = {
    **{"name": "captioning_transformer", "backbone": _CNN, "scaled_embedding": False},
    **{"width": 8, "layers": 1, "hidden": 12, "dropout": 0.0, "positions": {"name": "sinusoidal"}},
    **{f"{slot}_attention": _HEADS for slot in ("encoder", "decoder", "cross")},
}

SPECS: dict[str, dict[str, Any]] = {
    "show_attend_tell": _TELLER,
    "show_attend_tell-vector": {**_TELLER, "gate": "vector"},
    "show_attend_tell-none": {**_TELLER, "gate": "none"},
    "show_attend_tell-non_local": {
        **_TELLER,
        "backbone": {**_CNN, "gate": {"name": "non_local", "reduction": 2}, "gated": (1,)},
    },
    "show_attend_tell-hard": {**_TELLER, "attention": _HARD},
    "top_down": {**_TELLER, "name": "top_down"},
    "captioning_transformer": _TRANSFORMER,
    "captioning_transformer-decoder": {
        **_TRANSFORMER,
        **{"encoder_attention": {"name": "none"}, "decoder_layers": 2, "share": "none"},
    },
}
COMPARED = SPECS


def images(seed: int = 1) -> np.ndarray:
    """[3,8,12,3], so that there are 2 x 3 places."""
    return np.random.default_rng(seed).normal(size=(3, *SHAPE)).astype(np.float32)


def regions(seed: int = 1, channels: int = FEATURES) -> np.ndarray:
    """[3,6,D]; of the second and the third there are 4 and 1, then zeros."""
    result = np.random.default_rng(seed).normal(size=(3, 6, channels)).astype(np.float32)
    result[1, 4:], result[2, 1:] = 0, 0
    return result


def words(seed: int = 1) -> np.ndarray:
    """Decoder input [3,5], BOS first."""
    target = np.random.default_rng(seed).integers(4, VOCABULARY, (3, 5)).astype(np.int32)
    target[:, 0] = 1
    return target


def parameters(system: Captioner, *read: np.ndarray) -> Any:
    """Parameters with no silent path; variances are above 0, and so are most features."""

    def rule(path: str, noise: np.ndarray) -> np.ndarray:
        name = path.rpartition("/")[2]
        if name in ("variance", "g"):
            return 1 + 0.3 * np.abs(noise)
        if name == "bias" and path.startswith("backbone"):
            return 1 + 0.3 * noise
        return noise / max(1, np.prod(noise.shape[:-1])) ** 0.5

    return tiny.drawn(system, *read, rule=rule)


@once
def made(spec: dict[str, Any], of: str = "images") -> tuple[Any, Captioner, Any]:
    """`call(*args, method=..., mutable=...)` with parameters bound, compiled; the system; and its
    parameters, those for "images" or for "regions".
    """
    system = make(spec)
    params = parameters(system, images() if of == "images" else regions(), words())
    return tiny.fetched(tiny.bound(system, params)), system, params


@once
def begun(spec: dict[str, Any]) -> Any:
    """Of `images`: the feature map, the memory, and a state with room for 5 words whose rows stand
    at one step, and one whose rows stand at steps of their own.
    """
    _, system, params = made(spec)

    @jax.jit
    def begin(params: Any, read: jax.Array) -> Any:
        of = functools.partial(system.apply, {"params": params})
        memory = of(read, method="encode")
        state = of(memory, 5, method="start")
        return of(read, method="feature_map"), memory, state, by_row(state, 3)

    return jax.device_get(begin(params, images()))


def passed(spec: dict[str, Any], target: np.ndarray) -> Any:
    """Of `images`: the logits, and what is collected of maps."""
    return made(spec)[0](images(), target, mutable=(MAPS,))


def check_places(spec: dict[str, Any]) -> None:
    """Places of an image are the regions of its feature map."""
    call, system, params = made(spec)
    x = np.asarray(begun(spec)[0])
    assert x.shape[1:3] == system.grid(SHAPE)
    if system.bind({"params": params}).image_scheme.hooks:
        return  # regions have no positions
    x = x.reshape(3, x.shape[1] * x.shape[2], -1)
    assert (x != 0).any(axis=-1).all()  # zeros would be padding
    np.testing.assert_allclose(call(x, words()), passed(spec, words())[0], atol=2e-6)


def check_causality(spec: dict[str, Any]) -> None:
    """Later words change no earlier logit."""
    before, _ = passed(spec, words())
    for t in range(1, 5):
        changed = words()
        changed[:, t:] = (changed[:, t:] + 2) % 7 + 4
        after, _ = passed(spec, changed)
        np.testing.assert_allclose(after[:, :t], before[:, :t], atol=1e-6)
        assert np.abs(after[:, t:] - before[:, t:]).max() > 1e-3


def check_cached_decoding(spec: dict[str, Any]) -> None:
    """Steps of decoding equal teacher forcing, in logits and, where there is attention, in maps."""
    call, system, _ = made(spec)
    full, collected = passed(spec, words())
    maps = system.maps(dict(collected).get(MAPS, {}))
    of_image = [one for one in maps.values() if (one.rows, one.columns) == ("target", "image")]
    height, width = system.grid(SHAPE)
    assert all(one.weights.shape[2:] == (5, height * width) for one in of_image)
    assert of_image or not system.needs
    for one in maps.values():
        np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-6)
    alignment = system.alignment(maps) if of_image else None
    _, memory, state, _ = begun(spec)
    for t in range(5):
        arguments = (state, memory, words()[:, t])
        (logits, state), seen = call(*arguments, method="step", mutable=(MAPS,))
        np.testing.assert_allclose(logits, full[:, t], atol=5e-6)
        if alignment is not None:
            now = system.alignment(system.maps(seen[MAPS]))[:, 0]
            np.testing.assert_allclose(now, alignment[:, t], atol=2e-6)


def check_rows_apart(spec: dict[str, Any]) -> None:
    """Rows at steps of their own decode as each alone."""
    call, _, _ = made(spec)
    full, _ = passed(spec, words())
    _, memory, _, state = begun(spec)
    state, at = apart(call, state, memory, words())
    logits, _ = call(state, memory, words()[np.arange(3), at], method="step")
    np.testing.assert_allclose(logits, full[np.arange(3), at], atol=5e-6)


def check_gradients(spec: dict[str, Any]) -> None:
    """Also those of the backbone; the sampled place has none, so its scores have none."""
    hard = spec["name"] == "show_attend_tell" and "alignment" in spec["attention"]
    _, system, params = made(spec)
    rngs = {"sample": jax.random.key(0)} if hard or ":" in spec["name"] else {}  # as in training

    def squares(params: Any) -> jax.Array:
        return (system.apply({"params": params}, images(), words(), rngs=rngs) ** 2).sum()

    grads = jax.jit(jax.grad(squares))(params)
    if hard:
        del grads["attention"]["score"]
    check_heard(spec, grads)


def check_padding(spec: dict[str, Any]) -> None:
    """In training rows that are no images change nothing; a batch has a row of them at its end."""
    _, system, params = made(spec)

    @jax.jit
    def run(params: Any, read: jax.Array, target: jax.Array, valid: jax.Array) -> Any:
        apply = functools.partial(system.apply, {"params": params}, mutable=[STATISTICS])
        logits, seen = apply(read, target, valid)
        return logits, dict(seen)

    target = np.concatenate([words(), words()[:1]])
    read = [np.concatenate([wide(images()), np.full((1, *SHAPE), by)]) for by in (0.0, 9.0)]
    with jax.enable_x64(True):
        actual = [run(wide(params), one, target, np.arange(4) < 3) for one in read]
    (one, seen), (other, also) = actual
    np.testing.assert_allclose(one[:3], other[:3], rtol=1e-9, atol=1e-10)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-10), seen, also)
    assert system.over_batch == bool(seen), "over_batch is not what a pass of training leaves"


def check_learning(spec: dict[str, Any]) -> None:
    """Eight captions can be learnt by heart."""
    rng = np.random.default_rng(0)
    read = rng.normal(size=(8, *SHAPE)).astype(np.float32)
    target = rng.integers(4, VOCABULARY, (8, 5)).astype(np.int32)
    target_in = np.pad(target, ((0, 0), (1, 0)), constant_values=1)[:, :-1]

    losses = tiny.fitted(make(spec), (read, target_in), tiny.entropy_of(target))
    tiny.check_learnt(losses, VOCABULARY, last=0.1 * np.log(VOCABULARY))


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of its oracle for regions, some of them padding, in float64."""
    system = make(spec)
    kept = jax.eval_shape(
        lambda key, read: system.init_with_output(key, read, method="feature_map")[0],
        jax.random.key(0),
        images(),
    )
    read = regions(channels=kept.shape[-1])
    params = wide(parameters(system, read, words()))
    with jax.enable_x64(True):
        result = jax.jit(system.apply)({"params": params}, jnp.asarray(wide(read)), words())
    return np.asarray(result), oracle(params, settings, wide(read), words())


CHECKS = {
    "places": check_places,
    "causality": check_causality,
    "padding": check_padding,
    "cached decoding": check_cached_decoding,
    "rows apart": check_rows_apart,
    "gradients": check_gradients,
}
