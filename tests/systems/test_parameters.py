"""Parameters of systems: as many as their papers say; how published settings start them, and what exactly
dropout acts on; and their precision, where arrays may be float64.
"""

import collections
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.tasks.pairs import build_system
from attnlab.training.updates import first_params
from tests.systems import classifiers
from tests.systems.checks import SPECS, batch, make, parameters
from tests.systems.language_models import SPECS as LANGUAGE
from tests.systems.own import FIRST, read
from tests.systems.tiny import named, seldom

IDS = np.ones((1, 2), np.int32)


def heads(number: int, **fields: Any) -> dict[str, Any]:
    return {"name": "multihead", "heads": number, **fields}


def pairs(vocabulary: int, target: int = 0) -> dict[str, int]:
    return {"source_vocabulary": vocabulary, "target_vocabulary": target or vocabulary}


def resnet(depth: int, width: int) -> dict[str, Any]:
    large = width == 64
    block = {"block": "bottleneck" if depth == 50 else "basic", "depth": depth, "width": width}
    stem = {"stem": "imagenet" if large else "cifar", "shortcut": "project" if large else "pad"}
    return {"name": "resnet", **block, **stem}


def vit(patch: int, width: int, layers: int, number: int) -> dict[str, Any]:
    """Of images of 224 pixels."""
    return {
        **{"name": "vit", "patch": patch, "width": width, "layers": layers, "hidden": 4 * width},
        "positions": {"name": "learned", "length": (224 // patch) ** 2 + 1},
        "attention": heads(number, bias=True),
    }


def published(name: str) -> dict[str, Any]:
    return configs.to_dict(configs.load(f"configs/text_to_text.py:{name}").system)


SLOTS = ("encoder_attention", "decoder_attention", "cross_attention")
_T5 = published("t5_small")
_T5_3B = {slot: {**_T5[slot], "heads": 32, "head_width": 128} for slot in SLOTS}
_T5_3B |= {"width": 1024, "layers": 24, "hidden": 16384}
_BASE = {"width": 512, "layers": 6, "hidden": 2048, "norm": "post", "positions": "sinusoidal"}
_PAIR = (IDS, IDS)
_IMAGENET, _CIFAR = ({"classes": number} for number in (1000, 10))
_SEQ2SEQ = {"name": "seq2seq", "embedding": 1000, "width": 1000, "layers": 4}


def image(side: int) -> tuple[Any, ...]:
    return (jax.ShapeDtypeStruct((1, side, side, 3), np.float32),)


COUNTS: dict[str, tuple[dict[str, Any], dict[str, int], Any, int]] = {
    # "63M computed"
    "Transformer base": (
        {"name": "transformer", **dict.fromkeys(SLOTS, heads(8)), **_BASE},
        pairs(37000),
        _PAIR,
        63_045_632,
    ),
    # where 32 heads of 128 are not its width
    "T5-3B": ({**_T5, **_T5_3B}, pairs(32128), _PAIR, 2_851_598_336),
    "T5 small": (_T5, pairs(32128), _PAIR, 60_506_624),
    # and here the bias of its logits too
    "BART base": (published("bart_base"), pairs(50265), _PAIR, 139_420_416 + 50265),
    # "384M", with two vocabularies of its own
    "Sequence to Sequence": (_SEQ2SEQ, pairs(160_000, 80_000), _PAIR, 384_112_000),
    # of torchvision
    "ResNet-18": (resnet(18, 64), _IMAGENET, image(32), 11_689_512),
    "ResNet-50": (resnet(50, 64), _IMAGENET, image(32), 25_557_032),
    "ViT-B/16": (vit(16, 768, 12, 12), _IMAGENET, image(224), 86_567_656),
    "ViT-B/32": (vit(32, 768, 12, 12), _IMAGENET, image(224), 88_224_232),
    "ViT-L/16": (vit(16, 1024, 24, 16), _IMAGENET, image(224), 304_326_632),
    # "0.27 M" and "0.85 M" of the paper's table 6, exactly as its layers add up
    "ResNet-20": (resnet(20, 16), _CIFAR, image(32), 269_722),
    "ResNet-56": (resnet(56, 16), _CIFAR, image(32), 853_018),
}
COUNTED = ("Transformer base", "Sequence to Sequence", "ResNet-20", "ViT-B/32")


@pytest.mark.parametrize("name", seldom(COUNTS, *COUNTED))
def test_parameters_of_the_papers(name: str) -> None:
    """What is learned by gradients; running averages are no parameters there."""
    spec, sizes, read, count = COUNTS[name]
    system = build(SYSTEMS, ConfigDict(spec), "system")(**sizes)
    shapes = jax.eval_shape(system.init, jax.random.key(0), *read)["params"]
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    learned = [one.size for path, one in leaves if path[-1].key not in ("mean", "variance")]
    assert sum(learned) == count


@pytest.mark.full
def test_an_rnn_encoder_decoder_is_as_large_as_rnnsearch() -> None:
    """At the default sizes within a sixth, so that a comparison starts nearly fair."""

    def count(name: str) -> int:
        system, _ = build_system(configs.load(f"configs/translation.py:{name}"), 64, 64)
        shapes = jax.eval_shape(system.init, jax.random.key(0), *_PAIR)["params"]
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    assert 5 / 6 < count("rnn_encoder_decoder") / count("rnnsearch") < 7 / 6


WIDE = {"embedding": 40, "width": 36}
GRUS = {"embedding": 40, "encoder": 36, "decoder": 36}
_SIDES = {(3, 6, 6): 1, (3, 5, 6): 1}  # words of the source and of the target
_SEARCH = {**_SIDES, (3, 6, 10): 1, (3, 5, 4): 1}  # annotations, and before the scores
DROPPED: dict[str, dict[tuple[int, ...], int]] = {
    "rctm": {(3, 6, 6): 1, (3, 5, 6): 2},  # states before the output
    "rnn_encoder_decoder": {**_SIDES, (3, 5): 1, (3, 5, 4): 1},  # c, maxout
    **dict.fromkeys(("rnnsearch", "cgru", "pointer_generator"), _SEARCH),
    "seq2seq": {**_SIDES, (3, 6, 5): 1, (3, 5, 5): 2},  # of both layers, and before the output
    # of both layers on both sides, the upper of the decoder by steps; a
    "luong": {**_SIDES, (3, 6, 5): 1, (3, 5): 2},
    "gnmt": {**_SIDES, (3, 6, 10): 1, (3, 6, 5): 1, (3, 5): 1, (3, 5, 10): 1},  # layers, a, [x ; a]
    # convolutions on both sides, before the output
    "convs2s": {(3, 6, 6): 1, (3, 8, 5): 2, (3, 5, 6): 2, (3, 7, 5): 2},
    "lstmn_seq2seq": {**_SIDES, (3, 5, 5): 1},  # before the output
}
"""By system: shape of what is dropped from (batch 3, source 6, target 5, sizes of `SPECS`) to how often in a training pass."""


def drawn(program: Any) -> collections.Counter[tuple[int, ...]]:
    """The shapes of random bits that a program draws, each place in it once, however often it
    runs.
    """
    result: collections.Counter[tuple[int, ...]] = collections.Counter()
    for equation in program.eqns:
        if equation.primitive.name == "random_bits":
            result[tuple(equation.outvars[0].aval.shape)] += 1
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                result += drawn(inner) if hasattr(inner, "eqns") else collections.Counter()
    return result


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_dropped(name: str) -> None:
    system, (source, target) = make(SPECS[name] | {"dropout": 0.5}), batch()

    def run(params: Any, key: jax.Array) -> Any:
        return system.apply({"params": params}, source, target, rngs={"dropout": key})

    assert drawn(jax.make_jaxpr(run)(parameters(system), jax.random.key(0)).jaxpr) == DROPPED[name]


@functools.cache
def start(name: str, **changes: float) -> dict[str, np.ndarray]:
    """The first parameters of a system of some width, by path."""
    grus = {**GRUS, "readout" if name == "cgru" else "maxout": 36}
    spec = {**SPECS[name], **(WIDE if "width" in SPECS[name] else grus), **changes}
    return named(first_params(make(spec).init, jax.random.key(0), *batch())["params"])


@pytest.mark.parametrize(
    ("name", "forget", "bound"),
    seldom(
        (("seq2seq", 0.0, 0.08), ("luong", 0.0, 0.1), ("luong", 1.0, 0.1), ("gnmt", 1.0, 0.04)),
        ("luong", 1.0, 0.1),
    ),
)
def test_uniform_starts(name: str, forget: float, bound: float) -> None:
    """All within the bound, up to it and as wide; the bias of a forget gate above that; the
    mechanism's own excepted.
    """
    actual = start(name, uniform=bound, **({} if name == "gnmt" else {"forget": forget}))
    for path, leaf in actual.items():
        if path.startswith("attention"):
            continue
        if path.endswith("of_input/bias"):
            leaf = leaf - forget * (np.arange(leaf.size) // 36 == 1)
        if path == "out/bias":
            assert (leaf == 0.0).all()
            continue
        assert 0.9 * bound < np.abs(leaf).max() <= bound * (1 + 1e-4), path
        assert leaf.std() == pytest.approx(bound / 3**0.5, rel=0.15), path


@pytest.mark.parametrize(
    "name",
    seldom(
        ("rnn_encoder_decoder", "rnnsearch", "cgru", "seq2seq", "luong", "gnmt", "lstmn_seq2seq"),
        *("cgru", "luong"),
    ),
)
def test_outputs_and_gates_start_wide(name: str) -> None:
    """The output layer by its 36 inputs alone; what the gates get, block by block as Glorot would
    have a matrix to 36 units.
    """
    gates = ("of_input/", "of_word/", "of_context/", "of_last/")
    bounds = {
        path: (6 / (len(leaf) + 36)) ** 0.5
        for path, leaf in start(name).items()
        if path.endswith("kernel") and any(gate in path for gate in gates)
    }
    bounds["out/kernel"] = (3 / 36) ** 0.5
    assert len(bounds) >= 3
    for path, bound in bounds.items():
        assert 0.97 * bound < np.abs(start(name)[path]).max() <= bound, path


OTHERS = {
    "rctm": SPECS,
    **dict.fromkeys(("lstm_lm", "attention_lm", "ngram_rnn", "lstmn_lm"), LANGUAGE),
}


@pytest.mark.parametrize("name", seldom(OTHERS, "attention_lm"))
def test_other_outputs_start_by_their_inputs_alone(name: str) -> None:
    system: Any = make({**OTHERS[name][name], "width": 36})
    params = first_params(system.init, jax.random.key(0), *batch()[: 2 if name == "rctm" else 1])
    kernel = np.asarray(params["params"]["out"]["kernel"])
    bound = (3 / kernel.shape[0]) ** 0.5
    assert kernel.shape[0] >= 36 and 0.97 * bound < np.abs(kernel).max() <= bound


@pytest.mark.parametrize("name", seldom(("rnn_encoder_decoder", "rnnsearch", "cgru"), "rnnsearch"))
def test_the_published_start_of_systems_with_grus(name: str) -> None:
    """N(0, 0.01^2), orthogonal recurrences, biases at zero; the alignment model N(0, 0.001^2) with
    v at zero, so that it is uniform.
    """
    for path, leaf in start(name, normal=0.01).items():
        if path.startswith("attention"):
            if name == "rnnsearch":
                expected = 0.0 if path.endswith("/v") else 0.001
                assert leaf.std() == pytest.approx(expected, rel=0.25), path
            continue
        if path.endswith(("kernel", "embedding")):
            assert leaf.std() == pytest.approx(0.01, rel=0.1), path
        elif path.endswith("bias"):
            assert (leaf == 0.0).all(), path
        else:
            for square in np.split(leaf, leaf.shape[1] // 36, axis=1):
                np.testing.assert_allclose(square.T @ square, np.eye(36), atol=1e-5)


def test_the_start_of_convs2s() -> None:
    """Embeddings and places N(0, 0.1^2); weights N(0, p / n), four times that before a gate; p is
    0.8 behind dropout, else 1.
    """
    of_words = ("into_encoder", "into_decoder")
    for path, leaf in start("convs2s", dropout=0.2).items():
        if path.endswith(("embedding", "table")):
            assert leaf.std() == pytest.approx(0.1, rel=0.1), path
        elif path.endswith("/v"):
            kept = 0.8 if "convolution" in path or path.startswith(("out/", *of_words)) else 1.0
            gain = 2.0 if "convolution" in path else 1.0
            assert leaf.std() == pytest.approx(gain * (kept / leaf.shape[0]) ** 0.5, rel=0.06), path
            np.testing.assert_allclose(
                start("convs2s", dropout=0.2)[path[:-1] + "g"],
                np.sqrt((leaf**2).sum(axis=0)),
                rtol=1e-5,
            )
        elif path.endswith("bias"):
            assert (leaf == 0.0).all(), path


@pytest.mark.full
def test_how_wide_the_embeddings_of_an_lstmn_classifier_start() -> None:
    """N(0, 1 / width), or as told."""
    for deviation, expected in ((0.0, 40**-0.5), (1.0, 1.0)):
        spec = {**classifiers.SPECS["lstmn_classifier"], "embedding": 40, "deviation": deviation}
        system = make(spec, vocabulary=50)
        params = first_params(system.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
        assert params["embed"]["embedding"].std() == pytest.approx(expected, rel=0.05)


def dtypes(tree: Any) -> dict[str, str]:
    """The dtypes of floating-point arrays in a tree, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): str(leaf.dtype)
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }


@pytest.mark.parametrize("name", seldom(SYSTEMS.names(), "gnmt", "bert", "top_down"))
def test_a_system_has_one_precision_where_float64_is_possible(name: str) -> None:
    room, spec = FIRST[name]
    system, given = make(spec), read(room, spec)

    def slopes(params: Any) -> Any:
        def total(params: Any) -> tuple[jax.Array, jax.Array]:
            made = system.apply({"params": params}, *given)
            logits = made[0] if isinstance(made, tuple) else made
            return logits.astype(jnp.float32).sum(), logits

        return jax.grad(total, has_aux=True)(params)

    with jax.enable_x64(True):
        params = jax.eval_shape(system.init, jax.random.key(0), *given)["params"]
        assert {path: dtype for path, dtype in dtypes(params).items() if dtype != "float64"} == {}
        assert set(dtypes(jax.eval_shape(slopes, params)).values()) == {"float64"}
        narrow = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float32), params)
        assert set(dtypes(jax.eval_shape(slopes, narrow)).values()) == {"float32"}
