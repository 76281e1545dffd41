"""ViT (Dosovitskiy et al. 2021) in the files of `transformers`, with the head of a classifier of
images; what it reads stands in its `preprocessor_config.json`, see `pictures.py`.

The pooler that older files have and no classifier reads is left out.
"""

import math
from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.bert import ENCODER
from attnlab.weights.foreign import ForeignConfig, Key, brief, content_of
from attnlab.weights.names import Name, Names, matrix, norm
from attnlab.weights.pictures import RESAMPLES, Pictures, parse

ARCHITECTURES = {"vit": "ViTForImageClassification"}
SYSTEMS = ("vit",)
_PREPROCESSOR = "preprocessor_config.json"

_H, _L = "vit.encoder.layer.{i}", "layer_{i}"
NAMES = Names(
    (
        Name("vit.embeddings.cls_token", "class_token", row=True),
        Name("vit.embeddings.position_embeddings", "positions/table", row=True),
        *matrix("vit.embeddings.patch_embeddings.projection", "patches"),
        *norm(f"{_H}.layernorm_before", f"{_L}/around_attention/normalisation"),
        *matrix(f"{_H}.attention.attention.query", f"{_L}/attention/w_query"),
        *matrix(f"{_H}.attention.attention.key", f"{_L}/attention/w_key"),
        *matrix(f"{_H}.attention.attention.value", f"{_L}/attention/w_value"),
        *matrix(f"{_H}.attention.output.dense", f"{_L}/attention/out"),
        *norm(f"{_H}.layernorm_after", f"{_L}/around_feed_forward/normalisation"),
        *matrix(f"{_H}.intermediate.dense", f"{_L}/feed_forward/inner"),
        *matrix(f"{_H}.output.dense", f"{_L}/feed_forward/outer"),
        *norm("vit.layernorm", "top"),
        *matrix("classifier", "out"),
    ),
    prefix="vit.",
    dropped=(r"vit\.pooler\..*",),
)


KEYS = {
    **ENCODER,
    "patch": Key("patch_size", 16),
    "attention.bias": Key("qkv_bias", True, {False: ("out",), True: True}),
    "attention.dropout": Key("attention_probs_dropout_prob", 0.0),
    "dropout": Key("hidden_dropout_prob", 0.0),
    "name": "vit",
    "class_token": True,
    "norm": "pre",
    "hidden_dropout": 0.0,
}


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of ViT, describes; raises `UserError` for another head, patches that do not divide the image, or
    other settings that attnlab does not compute.
    """
    architectures = file.content.get("architectures") or [ARCHITECTURES["vit"]]
    if architectures != [ARCHITECTURES["vit"]]:
        raise UserError(
            f"{file.where}: architectures={brief(architectures)}; known is {ARCHITECTURES['vit']}"
            " (others have no head, or another one; load them with this one and save that)"
        )
    file.only(problem_type="single_label_classification")
    patch = file.count("patch_size", 16)
    height, width = file.counts("image_size", 2, 224)
    if height % patch or width % patch:
        raise UserError(
            f"{file.where}: patch_size={patch} does not divide image_size={height} x {width}"
        )
    node = file.system(KEYS)
    patches = height // patch * (width // patch)
    return {**node, "positions": {**node["positions"], "length": patches + 1}}


def pictures(file: ForeignConfig) -> Pictures:
    """Returns the `Pictures` of a ViT: the preparation of images in `preprocessor_config.json`
    beside the config `file`, by default at the size of the model, and the classes in the config.
    """
    height, width = file.counts("image_size", 2, 224)
    processor = file.sibling(_PREPROCESSOR)
    if not processor.content:  # as of images of the size that it reads
        processor = ForeignConfig({"size": [height, width]}, processor.where)
    return parse(processor, (height, width, file.count("num_channels", 3)), file.labels())


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of ViT for a complete config node `system`, with an
    `image_size` of as many patches; `kind` is not used; raises `UserError` without learned
    positions. Settings that it cannot express are found by reading it back.
    """
    content = content_of(KEYS, system)
    patches = system["positions"]["length"] - 1
    side = math.isqrt(max(patches, 0))
    sides = (side, side) if side * side == patches else (1, patches)
    size = [length * system["patch"] for length in sides]
    return {"model_type": "vit", **content, "image_size": size}


def preprocessing_files(images: Pictures) -> dict[str, dict[str, Any]]:
    """Returns, by file name, the keys of `config.json` for image size and classes and the content
    of `preprocessor_config.json` for the preparation of images `images`.
    """
    height, width, channels = images.shape
    names = ("height", "width") if len(images.resize) == 2 else ("shortest_edge",)
    processor = {
        **{"image_processor_type": "ViTImageProcessor", "do_resize": True, "do_rescale": True},
        **{"do_normalize": True, "rescale_factor": 1 / 255},
        "resample": RESAMPLES.index(images.resample),
        "size": dict(zip(names, images.resize, strict=True)),
        "do_center_crop": images.resize != (height, width),
        "crop_size": {"height": height, "width": width},
        **{"image_mean": list(images.mean), "image_std": list(images.deviation)},
    }
    named = {str(number): name for number, name in enumerate(images.classes)}
    content = {
        **{"image_size": [height, width], "num_channels": channels, "id2label": named},
        "label2id": {name: int(number) for number, name in named.items()},
    }
    return {folders.CONFIG: content, _PREPROCESSOR: processor}
