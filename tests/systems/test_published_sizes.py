"""Systems have as many parameters as their papers say, by shapes alone."""

from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.tasks.pairs import build_system
from tests.systems.tiny import seldom

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
DEFAULT = ("Transformer base", "Sequence to Sequence", "ResNet-20", "ViT-B/32")


@pytest.mark.parametrize("name", seldom(COUNTS, *DEFAULT))
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
