"""ResNet (He et al. 2016) in the names of torchvision, which timm has too: a state dict as
`model.safetensors`, and beside it the `config.json` of timm, of which one line is enough:

    {"architecture": "resnet50"}

The stride of a bottleneck is in its second convolution ("v1.5"), as in both. Counters of batches
(`num_batches_tracked`) are left out; torch starts them at 0 where a file has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.bert import dense
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.names import Name, Names
from attnlab.weights.pictures import Pictures, timm_sizes

SYSTEMS = ("resnet",)
BLOCKS = {18: "basic", 34: "basic", 50: "bottleneck", 101: "bottleneck", 152: "bottleneck"}
_HEAD = "fc.weight"
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_SIDE = 224
WIDTH = 64  # channels of the first stage; torchvision has no other


def _lines_of_convolution(theirs: str, norm: str, ours: str, normed: str) -> tuple[Name, ...]:
    """Returns the table lines (tensor name, parameter path) of a convolution and the batch norm
    behind it.
    """
    parts = (
        ("weight", "scale"),
        ("bias", "bias"),
        ("running_mean", "mean"),
        ("running_var", "variance"),
    )
    return (
        Name(f"{theirs}.weight", f"{ours}/kernel", transposed=True),
        *(Name(f"{norm}.{tensor}", f"{normed}/{leaf}") for tensor, leaf in parts),
    )


def _lines_of_stage(stage: int) -> tuple[Name, ...]:
    """Returns the table lines of a stage's blocks with three convolutions each (a basic block uses
    two) and the projection.
    """
    theirs, ours = f"layer{stage + 1}.{{i}}", f"stage_{stage}_block_{{i}}"
    branch = [
        line
        for number in range(3)
        for line in _lines_of_convolution(
            f"{theirs}.conv{number + 1}",
            f"{theirs}.bn{number + 1}",
            f"{ours}/convolution_{number}",
            f"{ours}/normalisation_{number}",
        )
    ]
    short = _lines_of_convolution(
        f"{theirs}.downsample.0",
        f"{theirs}.downsample.1",
        f"{ours}/projection",
        f"{ours}/projection_normalisation",
    )
    return (*branch, *short)


NAMES = Names(
    (
        *_lines_of_convolution("conv1", "bn1", "stem", "stem_normalisation"),
        *(line for stage in range(4) for line in _lines_of_stage(stage)),
        *dense("fc", "out"),
    ),
    prefix="",
    dropped=(r".*\.num_batches_tracked",),
)


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of a ResNet whose config names its depth; raises `UserError`
    for `model_args` or another pooling.
    """
    if file.content.get("model_args"):
        raise file.refused("model_args", "none, for they are not known here")
    file.only(global_pool="avg")
    depth = int(str(file.content["architecture"]).removeprefix("resnet"))
    return {
        "name": "resnet",
        **{"stem": "imagenet", "depth": depth, "block": BLOCKS[depth], "order": "post"},
        **{"width": _width(file), "shortcut": "project", "residual": True, "strided": "second"},
        "normalisation": {"name": "batch_norm", "epsilon": 1e-5},
    }


def run(file: ForeignConfig) -> dict[str, Any]:
    """What else the config of a run says, see `attnlab.weights.run_config`."""
    return pictures(file).run()


def pictures(file: ForeignConfig) -> Pictures:
    """Reads from `pretrained_cfg` how images are prepared, by default as for ImageNet, and from the
    config the classes; raises `UserError` where they do not match.
    """
    of = file.below("pretrained_cfg")
    sides = of.counts("input_size", 3, 1) if of.content.get("input_size") else (3, _SIDE, _SIDE)
    channels, height, width = sides
    mean, deviation = (
        of.numbers(key, 3, 0.0) if of.content.get(key) else usual
        for key, usual in (("mean", _MEAN), ("std", _DEVIATION))
    )
    count = file.count("num_classes", _shape(file, _HEAD)[0] if file.folder else 1000)
    classes = file.names("label_names") or tuple(map(str, range(count)))
    if channels != 3 or len(classes) != count:
        raise UserError(f"{file.where}: expected images of 3 channels, and {count} label_names")
    resize, resample = timm_sizes(of, height, width)
    return Pictures((height, width, 3), mean, deviation, classes, resize, resample).check(of.where)


def config(of: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the config (architecture and width) of a complete node `system`; raises `UserError`
    for another depth or stem. Settings that it cannot express are found by reading it back.
    """
    if of["stem"] != "imagenet" or kind != f"resnet{of['depth']}":
        raise UserError(f"it has depth={kind.removeprefix('resnet')} and stem=imagenet")
    wide = {} if of["width"] == WIDTH else {"width": of["width"]}
    return {"architecture": kind, **wide}


def beside(read: Pictures) -> dict[str, dict[str, Any]]:
    """Returns, by file name, the keys of `config.json` that describe how images are prepared, and
    the classes.
    """
    height, width, channels = read.shape
    preprocessing = {
        "input_size": [channels, height, width],
        "mean": list(read.mean),
        "std": list(read.deviation),
        "interpolation": read.resample,
        "crop_pct": min(height, width) / min(read.resize),
        "crop_mode": "center" if len(read.resize) == 1 else "squash",
    }
    named = {"num_classes": len(read.classes), "label_names": list(read.classes)}
    return {folders.CONFIG: {**named, "pretrained_cfg": preprocessing}}


def _width(file: ForeignConfig) -> int:
    """Channels of the first stage: of the tensors, if they are there."""
    return _shape(file, "conv1.weight")[0] if file.folder else file.count("width", WIDTH)


def _shape(file: ForeignConfig, name: str) -> tuple[int, ...]:
    """Reads the shape of a tensor of the folder from its header; raises `UserError` if the folder
    has no such tensor.
    """
    assert file.folder is not None
    where = folders.files(file.folder)
    if name not in where:
        raise UserError(f"{file.folder} has no tensor {name}; expected those of torchvision")
    shape: tuple[int, ...] = folders.headers({name: where[name]})[name][0]
    return shape
