"""What no system can be is said in one line, when its config is checked or its parameters are made,
and names the field to change.
"""

from __future__ import annotations

from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.tasks import TASKS
from attnlab.tasks.models import system_factory
from attnlab.training import run
from tests.systems import (
    captioners,
    checks,
    classifiers,
    image_systems,
    language_models,
    visual_answerers,
)
from tests.systems.tiny import SIZES, kind_of

_KEY_VALUE = {"name": "key_value"}
_HEADS = {"name": "multihead", "heads": 2}


def single(**parts: Any) -> dict[str, Any]:
    return {"name": "single", **parts}


def short(length: int) -> dict[str, Any]:
    return {"name": "learned", "length": length}


FIELDS: dict[Any, list[tuple[str, dict[str, Any], str]]] = {
    checks: [
        ("transformer", {"width": 9, "share": "none"}, "width=9.*heads=2"),
        (
            "transformer-post-additive",
            {"share_positions": True},
            "share_positions=true, but Single of encoder_attention",
        ),
        *(
            ("transformer", {"encoder_attention": {**_HEADS, **fields}}, words)
            for fields, words in (
                ({"heads": 3}, r"width=8 is not divisible by heads=3; .*, or set head_width"),
                ({"head_width": -1}, r"head_width=-1, must be at least 0"),
                ({"bias": ("query", "valu")}, r"bias='valu'; did you mean 'value'"),
            )
        ),
    ],
    language_models: [
        (
            "lstm_lm",
            {"share": "output"},
            "needs as wide an embedding as a layer, not embedding=5 and width=4",
        ),
        ("attention_lm", {"window": 0}, "width=0 is too small; the least is 1"),
        (
            "attention_lm",
            {"attention": _KEY_VALUE, "state": 7, "merge": "none"},
            "7 wide, which cannot be cut.*6 or 8 can",
        ),
        (
            "attention_lm",
            {"attention": _KEY_VALUE, "state": 8},
            "merge='tanh': KeyValue merges .* itself; set system.merge='none'",
        ),
        ("attention_lm", {"merge": "none"}, "Single only says what it found, .*set it to 'tanh'"),
        (
            "attention_lm",
            {"attention": single(alignment={"name": "local_p"})},
            "looks at the length of the source",
        ),
        (
            "attention_lm",
            {"attention": single(score={"name": "location"})},
            "attention.*score: Location depends on positions",
        ),
        ("ngram_rnn", {"order": 1}, "order=1, must be at least 2"),
        ("lstmn_lm", {"span": 0}, "span=0, must be at least 1"),
        ("lstmn_lm", {"question": "words"}, "question='words'.*did you mean 'word'"),
        (
            "lstmn_lm",
            {"attention": _KEY_VALUE},
            "KeyValue does not support values apart from keys",
        ),
        (
            "lstmn_lm",
            {"attention": single(score={"name": "soft_capped", "score": {"name": "location"}})},
            "SoftCapped depends on positions",
        ),
        ("decoder", {"positions": {"name": "rope"}}, "positions=Rope acts inside attention"),
        ("decoder", {"logit_cap": -1.0}, "a cap is at least 0"),
        ("decoder", {"position_width": 8}, "positions and words share a width of 8"),
        (
            "decoder",
            {"position_width": 2, "positions": {"name": "none"}},
            "but system.positions=none",
        ),
    ],
    classifiers: [
        (
            "lstmn_pair-deep",
            {"inter_attention": _KEY_VALUE},
            "inter_attention.*: KeyValue does not support values apart from keys",
        ),
        (
            "lstmn_pair-deep",
            {"attention": _KEY_VALUE, "fusion": "shallow"},
            "attention.*: KeyValue does not support values apart",
        ),
        ("lstmn_pair-deep", {"span": 0}, "span=0, must be at least 1"),
        (
            "lstmn_pair-deep",
            {"attention": single(alignment={"name": "monotonic"})},
            "needs all queries of a sequence at once|unknown alignment",
        ),
        ("lstmn_classifier", {"fusion": "deep"}, "lstmn_classifier has no field 'fusion' to set"),
    ],
    image_systems: [
        ("resnet", {"depth": 21}, r"depth=21: .*expected 6 n \+ 2, such as 20"),
        ("resnet", {"depth": 600_002}, "depth=600002: expected at most 2000"),
        ("resnet", {"depth": 2}, r"expected 6 n \+ 2, such as 8"),
        ("resnet-bottleneck", {"depth": 21}, r"bottleneck expected 9 n \+ 2, such as 20"),
        ("resnet", {"stem": "imagenet", "depth": 50}, "block=basic expected one of: 18, 34"),
        ("resnet", {"width": 0}, "resnet: width=0: expected at least 1"),
        ("resnet", {"stem": "imagenet", "depth": 18}, "32 x 32 pixels.* these are 8 x 9"),
        ("cnn", {"widths": ()}, r"cnn: widths=\(\): expected channels"),
        ("cnn", {"layers": 0}, "cnn: layers=0"),
        ("cnn", {"kernel": 4}, "cnn: kernel=4: expected an odd number"),
        ("cnn", {"widths": (2, 2, 2, 2)}, "cnn halves images until 16 x 16 pixels are one"),
        ("perceptron", {"widths": (3, 0)}, r"perceptron: widths=\(3, 0\): expected"),
        ("glimpses", {"glimpses": 0}, "glimpses: glimpses=0: expected at least 1"),
        ("glimpses", {"scales": 0}, "glimpses: scales=0"),
        ("glimpses", {"deviation": 0.0}, "deviation=0.0: expected a number above 0"),
        ("segmenter", {"width": -1}, "segmenter: width=-1: expected at least 0"),
        ("detr", {"queries": 0}, "detr: queries=0: expected at least 1"),
        ("detr", {"positions": short(8)}, "a map of 3 x 3 places, but .* end at 8"),
        ("vit", {"patch": 3}, "images of 4 x 6 pixels .* 3 x 3; patch could be 1 or 2"),
        ("vit", {"patch": 0}, "patch=0: images of 4 x 6"),
        (
            "vit",
            {"positions": short(6)},
            r"7 tokens \(patches and a class token\), but positions end at 6; .*length=7",
        ),
        (
            "vit",
            {"positions": "sinusoidal_2d", "width": 7, "attention": {"name": "single"}},
            "a width of 7 has no halves; take 8",
        ),
        (
            "vit-rope",
            {"visibility": {"name": "window", "width": 2}},
            "choose 'full', or other positions",
        ),
        (
            "vit",
            {"attention": {**_HEADS, "heads": 4, "positions": "rope_2d"}},
            "rope_2d: a head width of 2, .* so that it is 4",
        ),
    ],
    captioners: [
        ("show_attend_tell", {"features": 6}, "features=6, but what is looked at has 5 channels"),
        (
            "show_attend_tell",
            {"image_positions": {"name": "rope"}},
            "system.image_positions=Rope acts inside",
        ),
        (
            "show_attend_tell",
            {"image_positions": short(5)},
            "end at 5, but the feature map has 2 x 3 = 6 places; .*image_positions.length=6",
        ),
    ],
    visual_answerers: [
        ("stacked_attention", {"hops": 0}, "system.hops=0: expected at least 1"),
        ("co_attention", {"levels": ()}, r"system.levels=\(\): expected one or more"),
        ("co_attention", {"levels": ("phrase", "word")}, "in this order"),
        ("co_attention", {"levels": ("words",)}, "unknown 'words'; did you mean 'word'"),
        ("cross_attention", {"image_layers": -1}, "system.image_layers=-1"),
        (
            "cross_attention",
            {"image_positions": short(5)},
            "images of 12 places, but system.image_positions end at 5",
        ),
        ("cross_attention", {"image_positions": "rope"}, "acts inside attention"),
        ("cross_attention", {"positions": short(4)}, "rows of 9 tokens, but positions end at 4"),
        (
            "cnn_lstm",
            {"backbone": {"name": "cnn", "widths": (2, 2, 2)}},
            "cnn halves images until 8 x 8",
        ),
    ],
}


def read(room: Any, spec: dict[str, Any]) -> tuple[Any, ...]:
    """What a system of a room reads."""
    if room is image_systems:
        return (image_systems.shown(spec),)
    if room is captioners:
        return captioners.images(), captioners.words()
    if room is classifiers:
        return tuple(classifiers.batch(2 if "inter_attention" in spec else 1))
    found = room.batch()
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.quick
@pytest.mark.parametrize("room", FIELDS, ids=lambda room: room.__name__.rpartition(".")[2])
def test_fields_that_fit_no_system(room: Any) -> None:
    for setting, fields, words in FIELDS[room]:
        spec = room.SPECS[setting]
        kind: Any = kind_of(SYSTEMS.resolve(spec["name"]))
        with pytest.raises(UserError, match=words) as caught:
            factory = system_factory(ConfigDict({"system": {**spec, **fields}}), kind)
            system = factory(**SIZES[kind])
            jax.eval_shape(system.init, jax.random.key(0), *read(room, spec))
        assert "\n" not in str(caught.value)


DEEPER = [f"system.attention{part}" for part in ("=multi_step", ".looks=single")]
CONFIGS: dict[str, list[tuple[list[str], str]]] = {
    "seq2seq": [
        (["system.order=backwards"], "order='backwards'; choose from: plain, reversed"),
        (["system.uniform=-0.1"], "uniform=-0.1: expected a number of at least 0"),
        (["system.layers=0"], "config.system.layers=0: expected a whole number of at least 1"),
        (["system.attention=single"], "config.system.attention: no such key"),
        (["decoding.coverage=0.2"], "decoding.coverage=0.2 needs attention weights"),
    ],
    "rnn_encoder_decoder": [
        (["decoding.coverage=0.2"], "decoding.coverage=0.2 needs attention weights"),
        (["auxiliary.doubly_stochastic=1.0"], "nothing in this system hands out such a loss"),
        (["system.attention=single"], "config.system.attention: no such key"),
        (["system.encoder=0"], "config.system.encoder=0: expected a whole number"),
    ],
    "luong": [
        (
            overrides,
            r"system.attention.alignment: the windows of local_m .* set system.order='plain'",
        )
        for overrides in (
            ["system.attention.alignment=local_m"],
            [*DEEPER, "system.attention.looks.alignment=local_m", "system.feeding=none"],
        )
    ],
    "gnmt": [
        (
            ["system.first=encoder", "system.encoder_layers=3"],
            "encoder_layers=3 and decoder_layers=2; make them equal or choose 'zeros'",
        )
    ],
    "pointer_generator": [
        (
            ["vocabulary.shared=false"],
            r"copying needs one vocabulary for both sides, .*set vocabulary.shared=true",
        ),
        (
            ["system.attention=differential"],
            r"weights of Differential sum to anything, here they must sum to one",
        ),
        (
            ["system.attention.alignment=softmax_plus_one"],
            r"sum to at most one, here they must sum to one",
        ),
        (["system.attention.kernel=blockwise"], r"single.kernel: kernel 'blockwise' never has"),
        (["system.attention=key_value"], r"does not support values apart from keys"),
        (["system.coverage=none"], r"coverage=1.0: nothing in this system hands out"),
    ],
    "convs2s": [
        (["system.kernel=4"], "kernel=4 has no middle; take 3 or 5"),
        (["system.positions=shaw"], "positions=Shaw acts inside attention"),
        (["system.attention=key_value"], "KeyValue does not support values apart from keys"),
        (["system.positions.length=20"], "length=20, but a sequence is 32 long"),
        (["system.encoder_layers=0"], "encoder_layers=0: expected a whole number"),
    ],
    "transformer": [
        (
            ["system.leaking=true", "system.decoder_attention=recurrent"],
            "does not support the direction 'bidirectional'",
        ),
        (
            ["system.cross_attention=attnlab.mixers.recurrent:RecurrentMixer"],
            "expected a class derived from",
        ),
    ],
}
FITS = [
    ("luong", ["system.attention.alignment=local_m", "system.order=plain"]),
    ("luong", ["system.attention.alignment=local_p"]),
    ("gnmt_paper", ["decoding.length_penalty=0.2", "decoding.coverage=0.2"]),
    ("pointer_generator", ["system.attention=multihead", "system.attention.heads=4"]),
    (
        "pointer_generator",
        ["system.coverage=none", "auxiliary.coverage=0", "system.attention=key_value"],
    ),
    (
        "transformer",
        ["system.decoder_attention=recurrent", "system.decoder_attention.cell=gru"],
    ),
    (
        "transformer",
        ["system.decoder_attention=convolution", "system.decoder_attention.kernel=2"],
    ),
]


def checked(name: str, overrides: list[str]) -> None:
    config = configs.load(f"configs/translation.py:{name}", overrides)
    task = TASKS.resolve(config.task)
    if name == "pointer_generator":  # what is handed out is traced
        run.check(task, config)
    task.check(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_that_fit_no_task(name: str) -> None:
    for overrides, words in CONFIGS[name]:
        with pytest.raises(UserError, match=words) as caught:
            checked(name, overrides)
        assert "\n" not in str(caught.value)


@pytest.mark.full
def test_configs_that_fit() -> None:
    for name, overrides in FITS:
        checked(name, overrides)
