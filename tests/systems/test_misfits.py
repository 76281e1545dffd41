"""What no system can be is said in one line, when its config is checked or its parameters are made,
and names the field to change.
"""

import dataclasses
from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks.models import system_factory
from tests.systems import (
    captioners,
    checks,
    classifiers,
    image_systems,
    language_models,
    visual_answerers,
)
from tests.systems.own import read
from tests.systems.tiny import SIZES, kind_of
from tests.systems.transformers import test_transformers
from tests.test_lengths import check_refused

_KEY_VALUE = {"name": "key_value"}
_KEYED = {"attention": _KEY_VALUE}
_HEADS = {"name": "multihead", "heads": 2}
_NEAR = {"name": "window", "width": 2}
_SOME = {"name": "by_layer", "one": {"name": "full"}, "other": _NEAR}
_HYBRID = language_models.SPECS["decoder-hybrid"]["attention"]  # of a recurrence and heads


class Cacheless(MultiHead):
    """Cannot grow its memory."""

    capabilities = dataclasses.replace(MultiHead.capabilities, cache=False)


def single(**parts: Any) -> dict[str, Any]:
    return {"name": "single", **parts}


def short(length: int) -> dict[str, Any]:
    return {"name": "learned", "length": length}


FIELDS: dict[tuple[Any, str], dict[str, dict[str, Any]]] = {
    (checks, "transformer"): {
        "width=9.*heads=2": {"width": 9, "share": "none"},
        r"width=8 is not divisible by heads=3; .*, or set head_width": {
            "encoder_attention": {**_HEADS, "heads": 3}
        },
        r"head_width=-1, must be at least 0": {"encoder_attention": {**_HEADS, "head_width": -1}},
        r"bias='valu'; did you mean 'value'": {
            "encoder_attention": {**_HEADS, "bias": ("query", "valu")}
        },
    },
    (checks, "transformer-post-additive"): {
        "share_positions=true, but Single of encoder_attention": {"share_positions": True}
    },
    (language_models, "lstm_lm"): {
        "needs as wide an embedding as a layer, not embedding=5 and width=4": {"share": "output"}
    },
    (language_models, "attention_lm"): {
        "width=0, must be at least 1": {"window": 0},
        "7 wide, which cannot be cut.*6 or 8 can": {**_KEYED, "state": 7, "merge": "none"},
        "merge='tanh': KeyValue merges .* itself; set system.merge='none'": {**_KEYED, "state": 8},
        "Single only says what it found, .*set it to 'tanh'": {"merge": "none"},
        "looks at the length of the source": {"attention": single(alignment={"name": "local_p"})},
        "attention.*score: Location depends on positions": {
            "attention": single(score={"name": "location"})
        },
    },
    (language_models, "ngram_rnn"): {"order=1, must be at least 2": {"order": 1}},
    (language_models, "lstmn_lm"): {
        "span=0, must be at least 1": {"span": 0},
        "question='words'.*did you mean 'word'": {"question": "words"},
        "KeyValue does not support values apart from keys": _KEYED,
        "SoftCapped depends on positions": {
            "attention": single(score={"name": "soft_capped", "score": {"name": "location"}})
        },
    },
    (language_models, "decoder"): {
        "positions=Rope acts inside attention": {"positions": {"name": "rope"}},
        "a cap is at least 0": {"logit_cap": -1.0},
        "positions and words share a width of 8": {"position_width": 8},
        "but system.positions=none": {"position_width": 2, "positions": {"name": "none"}},
        "Cacheless does not support cached decoding; choose a mechanism with cache=True": {
            "attention": {"name": f"{__name__}:Cacheless"}
        },
        "Forward does not support the direction 'causal'": {
            "attention": {"name": f"{test_transformers.__name__}:Forward"}
        },
    },
    (language_models, "decoder-recurrent"): {
        "system.attention=recurrent: .* visibility of its own; choose 'full'": {
            "visibility": _NEAR
        },
        "system.attention=recurrent: .* visibility of its own": {"visibility": _SOME},
        "attention.one=recur": {
            "visibility": {**_SOME, "pattern": ("other",)},
            "attention": _HYBRID,
        },
        "by_layer: pattern=.*one layer": {"visibility": {**_SOME, "pattern": ()}},
        "stands for the parts": {"visibility": {"name": "any_of", "one": _SOME, "other": _NEAR}},
    },
    (classifiers, "lstmn_pair-deep"): {
        "inter_attention.*: KeyValue does not support values apart from keys": {
            "inter_attention": _KEY_VALUE
        },
        "attention.*: KeyValue does not support values apart": {**_KEYED, "fusion": "shallow"},
        "span=0, must be at least 1": {"span": 0},
        "needs all queries of a sequence at once|unknown alignment": {
            "attention": single(alignment={"name": "monotonic"})
        },
    },
    (classifiers, "lstmn_classifier"): {
        "lstmn_classifier has no field 'fusion' to set": {"fusion": "deep"}
    },
    (image_systems, "resnet"): {
        r"depth=21: .*expected 6 n \+ 2, such as 20": {"depth": 21},
        "depth=600002: expected at most 2000": {"depth": 600_002},
        r"expected 6 n \+ 2, such as 8": {"depth": 2},
        "block=basic expected one of: 18, 34": {"stem": "imagenet", "depth": 50},
        "resnet: width=0, must be at least 1": {"width": 0},
        "32 x 32 pixels.* these are 8 x 9": {"stem": "imagenet", "depth": 18},
    },
    (image_systems, "resnet-bottleneck"): {
        r"bottleneck expected 9 n \+ 2, such as 20": {"depth": 21}
    },
    (image_systems, "cnn"): {
        r"cnn: widths=\(\): expected channels": {"widths": ()},
        "cnn: layers=0": {"layers": 0},
        "cnn: kernel=4: expected an odd number": {"kernel": 4},
        "cnn halves images until 16 x 16 pixels are one": {"widths": (2, 2, 2, 2)},
    },
    (image_systems, "perceptron"): {r"perceptron: widths=\(3, 0\): expected": {"widths": (3, 0)}},
    (image_systems, "glimpses"): {
        "glimpses: glimpses=0, must be at least 1": {"glimpses": 0},
        "glimpses: scales=0": {"scales": 0},
        "deviation=0.0: expected a number above 0": {"deviation": 0.0},
    },
    (image_systems, "segmenter"): {"segmenter: width=-1, must be at least 0": {"width": -1}},
    (image_systems, "detr"): {
        "detr: queries=0, must be at least 1": {"queries": 0},
        "a map of 3 x 3 places, but .* end at 8": {"positions": short(8)},
    },
    (image_systems, "vit"): {
        "images of 4 x 6 pixels .* 3 x 3; patch could be 1 or 2": {"patch": 3},
        "patch=0: images of 4 x 6": {"patch": 0},
        r"7 tokens \(patches and a class token\), but positions end at 6; .*length=7": {
            "positions": short(6)
        },
        "a width of 7 has no halves; take 8": {
            "positions": "sinusoidal_2d",
            "width": 7,
            "attention": single(),
        },
        "rope_2d: a head width of 2, .* so that it is 4": {
            "attention": {**_HEADS, "heads": 4, "positions": "rope_2d"}
        },
    },
    (image_systems, "vit-rope"): {
        "choose 'full', or other positions": {"visibility": {"name": "window", "width": 2}}
    },
    (captioners, "show_attend_tell"): {
        "features=6, but what is looked at has 5 channels": {"features": 6},
        "system.image_positions=Rope acts inside": {"image_positions": {"name": "rope"}},
        "end at 5, but the feature map has 2 x 3 = 6 places; .*image_positions.length=6": {
            "image_positions": short(5)
        },
    },
    (visual_answerers, "stacked_attention"): {
        "stacked_attention: hops=0, must be at least 1": {"hops": 0}
    },
    (visual_answerers, "co_attention"): {
        r"system.levels=\(\): expected one or more": {"levels": ()},
        "in this order": {"levels": ("phrase", "word")},
        "unknown 'words'; did you mean 'word'": {"levels": ("words",)},
    },
    (visual_answerers, "cross_attention"): {
        "cross_attention: image_layers=-1": {"image_layers": -1},
        "images of 12 places, but system.image_positions end at 5": {"image_positions": short(5)},
        "acts inside attention": {"image_positions": "rope"},
        "rows of 9 tokens, but positions end at 4": {"positions": short(4)},
    },
    (visual_answerers, "cnn_lstm"): {
        "cnn halves images until 8 x 8": {"backbone": {"name": "cnn", "widths": (2, 2, 2)}}
    },
}


@pytest.mark.quick
@pytest.mark.parametrize(("room", "setting"), FIELDS)
def test_fields_that_fit_no_system(room: Any, setting: str) -> None:
    spec = room.SPECS[setting]
    kind: Any = kind_of(SYSTEMS.resolve(spec["name"]))
    for words, fields in FIELDS[room, setting].items():
        with pytest.raises(UserError, match=words) as caught:
            factory = system_factory(ConfigDict({"system": {**spec, **fields}}), kind)
            system = factory(**SIZES[kind])
            jax.eval_shape(system.init, jax.random.key(0), *read(room, spec))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("encoder", "system=encoder: .*decoder, .*; it reads whole texts, both ways"),
        ("bilstm_tagger", "system=bilstm_tagger: .*and writes none"),
    ],
)
def test_what_cannot_write_is_told_before_anything_is_read(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        system_factory(ConfigDict({"system": {"name": name}}), LanguageModel)
    assert "\n" not in str(caught.value)


def test_layers_without_attention_need_no_window_where_others_have_one() -> None:
    spec = {**language_models.SPECS["decoder-hybrid"], "visibility": _SOME}
    assert system_factory(ConfigDict({"system": spec}), LanguageModel)


WINDOWS = r"system.attention.alignment: the windows of local_m .* set system.order='plain'"
DEEPER = "system.attention=multi_step system.attention.looks=single"
CONFIGS: dict[str, list[tuple[str, str]]] = {
    "seq2seq": [
        ("system.order=backwards", "order='backwards'; choose from: plain, reversed"),
        ("system.uniform=-0.1", "uniform=-0.1: expected a number of at least 0"),
        ("system.layers=0", "config.system.layers=0: expected a whole number of at least 1"),
        ("system.attention=single", "config.system.attention: no such key"),
        ("decoding.coverage=0.2", "decoding.coverage=0.2 needs attention weights"),
    ],
    "rnn_encoder_decoder": [
        ("decoding.coverage=0.2", "decoding.coverage=0.2 needs attention weights"),
        ("auxiliary.doubly_stochastic=1.0", "nothing in this system hands out such a loss"),
        ("system.attention=single", "config.system.attention: no such key"),
        ("system.encoder=0", "config.system.encoder=0: expected a whole number"),
    ],
    "luong": [
        ("system.attention.alignment=local_m", WINDOWS),
        (f"{DEEPER} system.attention.looks.alignment=local_m system.feeding=none", WINDOWS),
    ],
    "gnmt": [
        (
            "system.first=encoder system.encoder_layers=3",
            "encoder_layers=3 and decoder_layers=2; make them equal or choose 'zeros'",
        )
    ],
    "pointer_generator": [
        (
            "vocabulary.shared=false",
            r"copying needs one vocabulary for both sides, .*set vocabulary.shared=true",
        ),
        (
            "system.attention=differential",
            r"weights of Differential sum to anything, here they must sum to one",
        ),
        (
            "system.attention.alignment=softmax_plus_one",
            r"sum to at most one, here they must sum to one",
        ),
        ("system.attention.kernel=blockwise", r"single.kernel: kernel 'blockwise' never has"),
        ("system.attention=key_value", r"does not support values apart from keys"),
        ("system.coverage=none", r"coverage=1.0: nothing in this system hands out"),
    ],
    "convs2s": [
        ("system.kernel=4", "kernel=4 has no middle; take 3 or 5"),
        ("system.positions=shaw", "positions=Shaw acts inside attention"),
        ("system.attention=key_value", "KeyValue does not support values apart from keys"),
        ("system.positions.length=20", "length=20, but a sequence is 32 long"),
        ("system.encoder_layers=0", "encoder_layers=0: expected a whole number"),
    ],
    "transformer": [
        (
            "system.leaking=true system.decoder_attention=recurrent",
            "does not support the direction 'bidirectional'",
        ),
        (
            "system.cross_attention=attnlab.mixers.passing:RecurrentMixer",
            "expected a class derived from",
        ),
    ],
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_that_fit_no_task(name: str) -> None:
    for overrides, words in CONFIGS[name]:
        check_refused(f"translation.py:{name} {overrides}", words)
