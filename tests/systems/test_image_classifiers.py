"""All classifiers of images: whole forward passes against float64 oracles, the numbers of parameters
of the papers, statistics of batches, and sizes that make no network.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.layers.norms import STATISTICS
from attnlab.systems import SYSTEMS
from attnlab.systems.vision.protocol import ImageClassifier
from tests.systems.checks import check_every_parameter_is_read
from tests.systems.image_classifiers import SPECS, compared, images, make, parameters
from tests.systems.oracles import ORACLES


def test_every_classifier_of_images_has_an_oracle() -> None:
    kinds = {name: SYSTEMS.resolve(name) for name in SYSTEMS.names()}
    named = {name for name, kind in kinds.items() if issubclass(kind, ImageClassifier)}
    assert named == {spec["name"] for spec in SPECS.values()} <= set(ORACLES)


@pytest.mark.quick
@pytest.mark.parametrize("name", SPECS)
def test_logits_equal_the_papers(name: str) -> None:
    found, expected = compared(SPECS[name], ORACLES[SPECS[name]["name"]])
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_settings_change_the_formula_so_the_oracles_can_tell() -> None:
    logits = [compared(SPECS[name], ORACLES[SPECS[name]["name"]])[1] for name in SPECS]
    for one, other in itertools.combinations(logits, 2):
        assert np.abs(one - other).max() > 1e-2


@pytest.mark.parametrize(
    "name", ["cnn", "resnet-pre-bottleneck", "vit-linear", "vit-rope", "perceptron"]
)
def test_the_oracle_reads_every_parameter(name: str) -> None:
    spec, read = SPECS[name], images(4, rows=1, wider=2).astype(np.float64)
    params = parameters(make(spec), read, seed=1)
    check_every_parameter_is_read(
        lambda params: ORACLES[spec["name"]](params, spec, read), params, by=0.1
    )


COUNTS: dict[str, tuple[int, dict[str, Any]]] = {
    # of torchvision: with option B and 1,000 classes
    "ResNet-18": (11_689_512, {"stem": "imagenet", "depth": 18, "width": 64}),
    "ResNet-50": (25_557_032, {"stem": "imagenet", "depth": 50, "width": 64}),
    # "0.27 M" and "0.85 M" of the paper's table 6, exactly as its layers add up
    "ResNet-20": (269_722, {"stem": "cifar", "depth": 20, "width": 16}),
    "ResNet-56": (853_018, {"stem": "cifar", "depth": 56, "width": 16}),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_of_the_papers(name: str) -> None:
    """What is learned by gradients; running averages are no parameters there."""
    count, sizes = COUNTS[name]
    large = sizes["stem"] == "imagenet"
    block = "bottleneck" if sizes["depth"] == 50 else "basic"
    spec = {"name": "resnet", **sizes, "block": block, "shortcut": "project" if large else "pad"}
    system = build(SYSTEMS, ConfigDict(spec), "system")(classes=1000 if large else 10)
    read = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    shapes = jax.eval_shape(system.init, jax.random.key(0), read)["params"]
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    learned = [one.size for path, one in leaves if path[-1].key not in ("mean", "variance")]
    assert sum(learned) == count


def test_statistics_are_those_of_the_images_and_not_of_padding() -> None:
    """In training: rows of padding change nothing, neither logits nor what is seen, which is the mean
    and the variance of what a convolution gives, over all pixels.
    """
    spec, read = SPECS["cnn"], images(rows=3)
    system = make(spec)
    params = parameters(system, read)
    assert system.over_batch and not make({**spec, "normalisation": "layer_norm"}).over_batch

    def both(params: Any, read: jax.Array) -> Any:
        more = jnp.concatenate([read, jnp.full_like(read[:1], 9.0)])
        told = system.apply(
            {"params": params}, more, jnp.array([True] * 3 + [False]), mutable=[STATISTICS]
        )
        return told, system.apply({"params": params}, read, mutable=[STATISTICS])

    (padded, seen), (logits, wanted) = jax.jit(both)(params, read)
    np.testing.assert_allclose(padded[:3], logits, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), seen, wanted)
    kernel = params["convolution_0_0"]["kernel"]
    edged = np.pad(read, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(edged, (3, 3), axis=(1, 2))
    y = np.einsum("bijcuv,uvcf->bijf", windows, kernel).reshape(-1, kernel.shape[-1])
    ((_, found),) = seen[STATISTICS]["normalisation_0_0"]["seen"]
    np.testing.assert_allclose(found["mean"], y.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["variance"], y.var(axis=0, ddof=1), rtol=1e-4)


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "a depth between": ({"depth": 21}, r"resnet: depth=21: .*expected 6 n \+ 2, such as 20"),
    "too many": ({"depth": 600_002}, "resnet: depth=600002: expected at most 2000"),
    "too few": ({"depth": 2}, r"expected 6 n \+ 2, such as 8"),
    "of bottlenecks": (
        {"block": "bottleneck", "depth": 21},
        r"block=bottleneck expected 9 n \+ 2, such as 20",
    ),
    "of another block": (
        {"stem": "imagenet", "depth": 50},
        "resnet: depth=50: .*block=basic expected one of: 18, 34",
    ),
    "no width": ({"width": 0}, "resnet: width=0: expected at least 1"),
    "small images": ({"stem": "imagenet", "depth": 18}, "32 x 32 pixels.* these are 8 x 9"),
}


@pytest.mark.parametrize(("fields", "words"), MISFITS.values(), ids=MISFITS.keys())
def test_sizes_that_make_no_network(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        jax.eval_shape(make({**SPECS["resnet"], **fields}).init, jax.random.key(0), images())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"widths": ()}, r"cnn: widths=\(\): expected channels"),
        ({"layers": 0}, "cnn: layers=0"),
        ({"kernel": 4}, "cnn: kernel=4: expected an odd number"),
        ({"name": "perceptron", "widths": (3, 0)}, r"perceptron: widths=\(3, 0\): expected"),
        ({"widths": (2, 2, 2, 2)}, "cnn halves images until 16 x 16 pixels are one"),
    ],
)
def test_sizes_that_make_no_plain_network(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        spec = fields if "name" in fields else {**SPECS["cnn"], **fields}
        jax.eval_shape(make(spec).init, jax.random.key(0), images())
