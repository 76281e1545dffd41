"""What a model of images reads, as its folder tells: how images become those of one size, what their
pixels are normalised by, and which classes it tells apart.

`preprocessor_config.json`, of the processors of ViT and DeiT; what another processor does by default
is not known here, so its name is refused.

    key                                   what becomes of it
    do_resize, do_rescale                 must be true; rescale_factor 1 / 255
    size, default_to_square               height and width, or the shortest edge; else refused
    resample                              the filter of Pillow that has this number
    do_center_crop, crop_size             the middle of what was resized; as large as the model reads
    do_normalize, image_mean, image_std   taken
    `SILENT`                              changes nothing that is computed here
    any other                             refused, unless null or false

`pretrained_cfg` of timm has input_size, mean, std, interpolation, crop_pct and crop_mode (center or
squash); what else it may have says where the weights come from, but for label_offset.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.foreign import ForeignConfig

RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Filters by their numbers in Pillow."""
READ = """
do_resize size default_to_square resample do_center_crop crop_size do_rescale rescale_factor
do_normalize image_mean image_std
"""
SILENT = """
image_processor_type feature_extractor_type processor_class data_format _valid_processor_keys
do_convert_rgb return_tensors device disable_grouping
"""
PROCESSORS: Mapping[str, Mapping[str, Any]] = {
    "ViT": {"size": 224, "resample": 2, "cut": False, "crop_size": None},
    "DeiT": {"size": 256, "resample": 3, "cut": True, "crop_size": 224},
}
"""What a key means that is not there."""
_SIDES = ({"height", "width"}, {"shortest_edge"})
_KIND = re.compile(r"(\w+?)(ImageProcessor(Fast|Pil)?|FeatureExtractor)")


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Images of a model from elsewhere.

    Attributes:
      shape: H, W, C that it was trained on.
      mean, deviation: of each channel, where 255 is 1.
      classes: in the order of its outputs.
      resize: height and width to which an image is resized, or its shorter side alone; the middle
        of that is read.
      resample: by which filter.
    """

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    classes: tuple[str, ...]
    resize: tuple[int, ...]
    resample: str = "bilinear"

    def check(self, where: str) -> "Pictures":
        """Returns itself; raises `UserError`, beginning with `where`, if a standard deviation of
        pixels is not above 0 and finite, or if images are resized to another size than the model
        reads, unless this is a square that fits into the resized image.
        """
        height, width, _ = self.shape
        if not all(0 < value < math.inf for value in self.deviation):
            raise UserError(f"{where}: a deviation of {self.deviation}; expected numbers above 0")
        cut = height == width <= min(self.resize)
        if self.resize != (height, width) and not cut:
            raise UserError(
                f"{where}: images resized to {' x '.join(map(str, self.resize))} have no middle of"
                f" {height} x {width}, which the model reads; only squares are cut out here"
            )
        return self

    def run(self) -> dict[str, Any]:
        """Returns the nodes of a run config that classifies images so prepared: "task", "data" (an
        image folder resized and resampled as the model expects), "batch" (16) and "checkpoint" (by
        accuracy); not the classes or the normalisation.
        """
        height, width, channels = self.shape
        data: dict[str, Any] = {"name": "image_folder", "side": height if height == width else 0}
        data |= {"resample": self.resample, "grey": channels == 1}
        if not data["side"] or self.resize != (height, width):
            data["resize"] = self.resize
        return {
            "task": "image_classification",
            "data": data,
            "batch": {"size": 16},
            "checkpoint": {"by": "accuracy"},
        }


def parse(file: ForeignConfig, shape: tuple[int, int, int], classes: tuple[str, ...]) -> Pictures:
    """Returns the `Pictures` (preparation of images) that a `preprocessor_config.json` describes,
    for a model that reads `shape` [height, width, channels] and has these classes; raises
    `UserError` for steps that attnlab does not compute or images of another size.
    """
    file.check_keys((*READ.split(), *SILENT.split()))
    kind = file.text("feature_extractor_type", "ViTImageProcessor")
    kind = file.text("image_processor_type", kind)
    named = _KIND.fullmatch(kind)
    if named is None or named[1] not in PROCESSORS:
        raise UserError(f"{file.where}: image_processor_type={kind!r}; known are: ViT, DeiT")
    usual = PROCESSORS[named[1]]
    file.only(do_resize=True, do_rescale=True)
    if abs(file.number("rescale_factor", 1 / 255) * 255 - 1) > 1e-6:
        raise file.error("rescale_factor", "1 / 255, by which pixels are divided here")
    resample = file.count("resample", usual["resample"], least=0)
    if resample >= len(RESAMPLES):
        raise file.error("resample", f"a filter of Pillow, 0 to {len(RESAMPLES) - 1}")
    cut, resize = file.flag("do_center_crop", usual["cut"]), _size(file, "size", usual["size"])
    size = _size(file, "crop_size", usual["crop_size"]) if cut else resize
    if size != shape[:2]:
        raise UserError(
            f"{file.where}: it makes images of {' x '.join(map(str, size))}, and the model reads"
            f" {shape[0]} x {shape[1]}"
        )
    mean, deviation = (0.0,) * shape[2], (1.0,) * shape[2]
    if file.flag("do_normalize", True):  # 0.5 is the default of transformers
        mean, deviation = (file.numbers(key, shape[2], 0.5) for key in ("image_mean", "image_std"))
    return Pictures(shape, mean, deviation, classes, resize, RESAMPLES[resample]).check(file.where)


def timm_sizes(file: ForeignConfig, height: int, width: int) -> tuple[tuple[int, ...], str]:
    """Returns a pair: the size that images are resized to (a single side if the middle is cut out)
    and the name of the filter, from a `pretrained_cfg` of timm for a model of this height and
    width; raises `UserError` for a crop, filter or label offset that attnlab does not compute.
    """
    file.only(label_offset=0)
    share, mode = file.number("crop_pct", 0.875), file.text("crop_mode", "center")
    if not 0 < share <= 1:
        raise file.error("crop_pct", "a share above 0")
    if mode != "squash" and (mode != "center" or height != width):
        raise file.error("crop_mode", "center, of squares alone, or squash")
    sides = tuple(math.floor(side / share) for side in (height, width))
    return sides[:1] if mode == "center" else sides, file.choice(
        "interpolation", dict(zip(RESAMPLES, RESAMPLES, strict=True)), "bilinear"
    )


def _size(file: ForeignConfig, key: str, usual: int | None) -> tuple[int, ...]:
    """Returns the size at a key of a preprocessor's config, (height, width) or (shorter side,)
    alone, by default `usual`; raises `UserError` for another form.
    """
    value, square = file.content.get(key), file.flag("default_to_square", True)
    if not isinstance(value, Mapping):
        sides = file.counts(key, 2, usual)
        return sides if square or isinstance(value, list) else sides[:1]
    inner = file.below(key)
    named = {name for name, side in value.items() if side is not None}
    if named not in _SIDES:
        raise file.error(key, "height and width, or shortest_edge alone")
    return tuple(inner.count(name) for name in sorted(named))
