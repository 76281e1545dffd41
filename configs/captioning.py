"""Images to captions, on built-in scenes of coloured shapes unless told otherwise.

    python launch.py train --config=configs/captioning.py:show_attend_tell --workdir=runs/captions

Arguments: show_attend_tell, show_attend_tell_hard (REINFORCE), show_attend_tell_gumbel, top_down,
transformer (small, for two CPU cores), show_attend_tell_paper, top_down_paper (published sizes, not
measured here). Of 1,000 test captions show_attend_tell has 0.998 right as a whole after its 1,500
steps (seed 0); 0.448 of a word's attention is on its object, which has 0.053 of the image. The others,
one run each: transformer 0.988, top_down 0.982, show_attend_tell_hard 0.989 after 3,000 steps. More in
docs/results/images.md.

Your own images: --config.data=caption_folder --config.data.directory=FOLDER --config.data.side=64,
with lines of "file TAB caption" in FOLDER/train.tsv and FOLDER/test.tsv, or the fields "file" and
"caption" of JSON lines in files whose names end in .jsonl (`data.train`, `data.test`). Images and
captions in the form of COCO, FOLDER/NAME/*.jpg and FOLDER/annotations/captions_NAME.json:

    --config.data=coco_captions --config.data.directory=FOLDER --config.data.train=NAME --config.data.test=NAME --config.data.side=64

Those of a prepared TensorFlow Dataset: --config.data=tfds_images --config.data.dataset=coco_captions
--config.data.test=val --config.data.side=64, see docs/extending/data.md.

`generate` takes names of image files and gives their captions.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "show_attend_tell") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/captioning.py")())


SHARED = {
    "task": "captioning",
    "data": {
        "name": "scenes",
        "examples": 20_000,
        "side": 32,
        "grid": 3,
        "jitter": 1,
        "small": 3,
        "large": 5,
        "most": 3,
        "noise": 8,
    },
    "vocabulary": {"kind": "word", "min_frequency": 1},
    "batch": {"size": 64, "buckets": (16,), "max_length": 16},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 1500, "output_bias": "unigram", "evaluate_every": 250},
    "decoding": {"method": "greedy", "max_ratio": 0.0, "max_extra": 20},
}
"""What does not depend on the system."""

BACKBONE = {"name": "cnn", "widths": (16, 32), "layers": 2}
"""8 x 8 places of images of 32 x 32."""


def _additive(hidden: int, alignment: Any = "softmax") -> dict[str, Any]:
    """Attention of one head by the score of Bahdanau et al. 2015."""
    return {
        "name": "single",
        "score": {"name": "additive", "hidden": hidden},
        "alignment": alignment,
    }


def _recurrent(name: str, alignment: Any = "softmax") -> dict[str, Any]:
    """A recurrent captioner; places have positions, since the convolutions see too little of the
    image to know where they are.
    """
    return {
        "system": {
            "name": name,
            "backbone": BACKBONE,
            "image_positions": {"name": "learned", "length": 64, "stddev": 0.1},
            "features": 32,
            "attention": _additive(64, alignment),
        }
    }


def _show_attend_tell() -> dict[str, Any]:
    """Xu et al. 2015, soft attention."""
    return _recurrent("show_attend_tell")


def _show_attend_tell_hard() -> dict[str, Any]:
    """Xu et al. 2015, one sampled place, trained by REINFORCE; half of the looks in training are at
    the expectation, as in the paper. A reward that weighs 0.1 or more drowns what the words teach.
    """
    alignment = {"name": "hard", "soft": 0.5}
    return {**_recurrent("show_attend_tell", alignment), "reinforce": {"weight": 0.03}}


def _show_attend_tell_gumbel() -> dict[str, Any]:
    """One sampled place, with the gradient of a softmax (Jang et al. 2017)."""
    return _recurrent("show_attend_tell", "gumbel")


def _top_down() -> dict[str, Any]:
    """Anderson et al. 2018 over the places of a feature map."""
    return _recurrent("top_down")


def _transformer() -> dict[str, Any]:
    """The decoder of a Transformer over the feature map."""
    attention = {"name": "multihead", "heads": 4, "dropout": 0.0}
    return {
        "system": {
            "name": "captioning_transformer",
            "backbone": BACKBONE,
            "image_positions": {"name": "learned", "length": 64, "stddev": 0.1},
            "positions": "sinusoidal",
            "decoder_attention": attention,
            "cross_attention": attention,
            "encoder_attention": "none",
            "layers": 1,
            "decoder_layers": 2,
            "width": 64,
            "hidden": 128,
            "dropout": 0.0,
        },
        "training": {"output_bias": "zeros"},  # its scores have no bias
    }


def _show_attend_tell_paper() -> dict[str, Any]:
    """Xu et al. 2015, soft attention on COCO: 14 x 14 places of 512 channels, words of 512, a state of
    1,800, 10,000 words, lambda 1.

    Otherwise than there: the backbone has the widths of theirs (VGG), with norms, and is trained with
    the rest; the number of updates is ours.
    """
    backbone = {"name": "cnn", "widths": (64, 128, 256, 512), "layers": 2}
    sizes = {"features": 512, "embedding": 512, "width": 1800, "normal": 0.01, "dropout": 0.5}
    return {
        "system": {
            "name": "show_attend_tell",
            "backbone": backbone,
            **sizes,
            "attention": _additive(512),
        },
        "data": {"name": "caption_folder", "side": 224},
        "vocabulary": {"kind": "word", "size": 10_000},
        "batch": {"size": 64, "buckets": (10, 15, 20, 50), "max_length": 50},
        "schedule": {"name": "constant", "peak": 2e-4},
        "training": {"steps": 100_000, "per": "sentence", "evaluate_every": 5000},
        "checkpoint": {"every": 5000},
        "auxiliary": {"doubly_stochastic": 1.0},
        "decoding": {"method": "beam", "max_extra": 50},
    }


def _top_down_paper() -> dict[str, Any]:
    """Anderson et al. 2018 over the places of a feature map, which the paper has as a baseline: LSTMs
    and words of 1,000, 10,010 words, 60,000 updates at a rate that falls linearly from 0.01.

    Otherwise than there: the backbone is trained with the rest; captions are not trained by rewards
    in the end, and weights do not decay.
    """
    sizes = {"features": 512, "embedding": 1000, "width": 1000, "normal": 0.01}
    return {
        "system": {
            "name": "top_down",
            "backbone": {"name": "resnet", "stem": "imagenet", "depth": 18, "width": 64},
            **sizes,
            "attention": _additive(512),
        },
        "data": {"name": "caption_folder", "side": 224},
        "vocabulary": {"kind": "word", "size": 10_010},
        "batch": {"size": 100, "buckets": (10, 15, 20), "max_length": 20},
        "optimizer": {"name": "sgd", "momentum": 0.9},
        "schedule": {"name": "linear", "peak": 0.01, "warmup": 0},
        "training": {"steps": 60_000, "clip": 10.0, "evaluate_every": 5000},
        "checkpoint": {"every": 5000},
        "decoding": {"method": "beam", "beam": 5, "max_extra": 20},
    }


_ALL = (
    _show_attend_tell,
    _show_attend_tell_hard,
    _show_attend_tell_gumbel,
    _top_down,
    _transformer,
    _show_attend_tell_paper,
    _top_down_paper,
)
_SYSTEMS = {system.__name__[1:]: system for system in _ALL}
