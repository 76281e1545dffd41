"""ResNet (He et al. 2016) in the names of torchvision, which timm has too: a state dict as
`model.safetensors`, and beside it the `config.json` of timm, of which one line is enough:

    {"architecture": "resnet50"}

The stride of a bottleneck is in its second convolution ("v1.5"), as in both. Counters of batches
(`num_batches_tracked`) are left out; torch starts them at 0 where a file has none.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.names import Name, Names, matrix
from attnlab.weights.pictures import Pictures, timm_sizes

SYSTEMS = ("resnet",)
BLOCKS = {18: "basic", 34: "basic", 50: "bottleneck", 101: "bottleneck", 152: "bottleneck"}
_HEAD = "fc.weight"
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_SIDE = 224
WIDTH = 64  # channels of the first stage; torchvision has no other


def _convolution_names(convolution: str, norm: str, path: str, norm_path: str) -> tuple[Name, ...]:
    """Returns the `Name`s (tensor name in files, parameter path in attnlab) of a convolution and
    its batch norm, from their module names `convolution` and `norm` in files and their paths `path`
    and `norm_path`.
    """
    parts = (
        ("weight", "scale"),
        ("bias", "bias"),
        ("running_mean", "mean"),
        ("running_var", "variance"),
    )
    return (
        Name(f"{convolution}.weight", f"{path}/kernel", transposed=True),
        *(Name(f"{norm}.{tensor}", f"{norm_path}/{leaf}") for tensor, leaf in parts),
    )


def _stage_names(stage: int) -> tuple[Name, ...]:
    """Returns the `Name`s (tensor name in files, parameter path in attnlab) of the blocks of the
    ResNet stage `stage`, from 0: three convolutions (a basic block uses two) and the projection,
    with `{i}` for the block.
    """
    tensor, module = f"layer{stage + 1}.{{i}}", f"stage_{stage}_block_{{i}}"
    branch = [
        line
        for number in range(3)
        for line in _convolution_names(
            f"{tensor}.conv{number + 1}",
            f"{tensor}.bn{number + 1}",
            f"{module}/convolution_{number}",
            f"{module}/normalisation_{number}",
        )
    ]
    short = _convolution_names(
        f"{tensor}.downsample.0",
        f"{tensor}.downsample.1",
        f"{module}/projection",
        f"{module}/projection_normalisation",
    )
    return (*branch, *short)


NAMES = Names(
    (
        *_convolution_names("conv1", "bn1", "stem", "stem_normalisation"),
        *(line for stage in range(4) for line in _stage_names(stage)),
        *matrix("fc", "out"),
    ),
    prefix="",
    dropped=(r".*\.num_batches_tracked",),
)


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of the ResNet whose depth the architecture in a
    `ForeignConfig` of timm names, its width that of the tensors in the config's folder (without a
    folder, of the key `width`); raises `UserError` for `model_args`, another pooling, or a folder
    without these tensors.
    """
    if file.content.get("model_args"):
        raise file.error("model_args", "none, for they are not known here")
    file.only(global_pool="avg")
    depth = int(str(file.content["architecture"]).removeprefix("resnet"))
    # of the tensors, if they are there
    width = _shape(file, "conv1.weight")[0] if file.folder else file.count("width", WIDTH)
    return {
        "name": "resnet",
        **{"stem": "imagenet", "depth": depth, "block": BLOCKS[depth], "order": "post"},
        **{"width": width, "shortcut": "project", "residual": True, "strided": "second"},
        "normalisation": {"name": "batch_norm", "epsilon": 1e-5},
    }


def pictures(file: ForeignConfig) -> Pictures:
    """Returns the `Pictures` of a `ForeignConfig` of timm: the preparation of images in
    `pretrained_cfg`, by default that of ImageNet, and the classes (numbers if it names none);
    raises `UserError` unless images have 3 channels and names, if given, are as many as classes.
    """
    node = file.below("pretrained_cfg")
    sides = node.counts("input_size", 3, 1) if node.content.get("input_size") else (3, _SIDE, _SIDE)
    channels, height, width = sides
    mean, deviation = (
        node.numbers(key, 3, 0.0) if node.content.get(key) else usual
        for key, usual in (("mean", _MEAN), ("std", _DEVIATION))
    )
    count = file.count("num_classes", _shape(file, _HEAD)[0] if file.folder else 1000)
    classes = file.names("label_names") or tuple(map(str, range(count)))
    if channels != 3 or len(classes) != count:
        raise UserError(f"{file.where}: expected images of 3 channels, and {count} label_names")
    resize, resample = timm_sizes(node, height, width)
    images = Pictures((height, width, 3), mean, deviation, classes, resize, resample)
    return images.check(node.where)


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` ("architecture" and, unless it is 64, "width") for a
    complete node `system`; raises `UserError` unless its depth is that of `kind` and its stem
    "imagenet". Settings that it cannot express are found by reading it back.
    """
    if system["stem"] != "imagenet" or kind != f"resnet{system['depth']}":
        raise UserError(f"it has depth={kind.removeprefix('resnet')} and stem=imagenet")
    wide = {} if system["width"] == WIDTH else {"width": system["width"]}
    return {"architecture": kind, **wide}


def preprocessing_files(images: Pictures) -> dict[str, dict[str, Any]]:
    """Returns {"config.json": keys of it} that describe, as timm does, the preparation of images
    `images` and their classes.
    """
    height, width, channels = images.shape
    preprocessing = {
        "input_size": [channels, height, width],
        "mean": list(images.mean),
        "std": list(images.deviation),
        "interpolation": images.resample,
        "crop_pct": min(height, width) / min(images.resize),
        "crop_mode": "center" if len(images.resize) == 1 else "squash",
    }
    named = {"num_classes": len(images.classes), "label_names": list(images.classes)}
    return {folders.CONFIG: {**named, "pretrained_cfg": preprocessing}}


def _shape(file: ForeignConfig, name: str) -> tuple[int, ...]:
    """Returns the shape of the tensor `name` in the config's folder, read from its header; raises
    `UserError` if the folder has no such tensor.
    """
    assert file.folder is not None
    where = folders.files(file.folder)
    if name not in where:
        raise UserError(f"{file.folder} has no tensor {name}; expected those of torchvision")
    return folders.headers({name: where[name]})[name][0]
