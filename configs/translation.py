"""Sequence-to-sequence learning, on the built-in dates unless told otherwise.

    python launch.py train --config=configs/translation.py:rnnsearch --workdir=runs/dates
    python launch.py train --config=configs/translation.py:transformer --workdir=runs/dates-transformer

Arguments: rnnsearch, transformer, rnn_encoder_decoder, seq2seq, luong, gnmt, cgru, rctm, convs2s,
lstmn_seq2seq, pointer_generator (small, for two CPU cores), rnnsearch_paper,
rnn_encoder_decoder_paper, seq2seq_paper, luong_paper, gnmt_paper, cgru_paper, rctm_paper,
convs2s_paper, transformer_base (the published sizes). On two cores: rnnsearch 79 s, all test dates
right, 1.0 GB; all of them too: cgru, convs2s after 500 steps, luong after 400; seq2seq 0.888 after
400, rctm 0.003; pointer_generator, on words to copy: all of 1,000 test texts, about 40 s of
processor time; every other size: not measured here. Your own text: --config.data=files
--config.data.directory=my/folder --config.data.source=de --config.data.target=en (train.de,
train.en, valid.de ..., plain or .gz) with --config.vocabulary.kind=bpe.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/translation.py")())


SHARED = {
    "task": "translation",
    "data": "dates",
    "vocabulary": {"kind": "char", "min_frequency": 1},
    "batch": {"buckets": (16, 24, 32), "max_length": 32},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 1000, "output_bias": "unigram"},
}
"""What does not depend on the system."""


def _additive(hidden: int) -> dict[str, Any]:
    """Attention of one head by the score of Bahdanau et al. 2015."""
    return {"name": "single", "score": {"name": "additive", "hidden": hidden}}


def _rnnsearch() -> dict[str, Any]:
    return {"system": {"name": "rnnsearch", "attention": _additive(128)}}


def _rnn_encoder_decoder() -> dict[str, Any]:
    """Cho et al. 2014, without attention; about as many parameters as `rnnsearch`."""
    return {"system": "rnn_encoder_decoder"}


def _seq2seq() -> dict[str, Any]:
    """Sutskever et al. 2014, without attention; by Glorot's initializer, with which two small layers learn
    faster than from U(-0.08, 0.08).
    """
    return {"system": "seq2seq", "training": {"steps": 2000}}


def _luong() -> dict[str, Any]:
    """Luong et al. 2015: one layer, the score "general" over the whole source, input feeding."""
    return {"system": {"name": "luong", "attention": {"name": "single", "score": "general"}}}


def _gnmt() -> dict[str, Any]:
    """Wu et al. 2016 with two layers on either side; it takes longer to learn where to look."""
    sizes = {"width": 96, "encoder_layers": 2, "decoder_layers": 2}
    return {
        "system": {"name": "gnmt", **sizes, "attention": _additive(64)},
        "training": {"steps": 1500},
    }


def _cgru() -> dict[str, Any]:
    """Sennrich et al. 2017, in the widths of `rnnsearch`."""
    return {"system": {"name": "cgru", "attention": _additive(128)}}


def _rctm() -> dict[str, Any]:
    """Kalchbrenner and Blunsom 2013: a sentence model of convolutions, without attention."""
    return {"system": {"name": "rctm", "width": 192}}


def _convs2s() -> dict[str, Any]:
    """Gehring et al. 2017 with three layers of 64 on either side."""
    return {
        "system": {
            "name": "convs2s",
            "attention": {"name": "single", "score": "dot"},
            "positions": {"name": "learned", "length": 256, "stddev": 0.1},
        }
    }


def _lstmn_seq2seq() -> dict[str, Any]:
    """Cheng et al. 2016, deep fusion; the paper describes it and has no figures for translation."""
    return {
        "system": {
            "name": "lstmn_seq2seq",
            "attention": _additive(64),
            "inter_attention": _additive(64),
        }
    }


def _pointer_generator() -> dict[str, Any]:
    """See et al. 2017, copying 1 to 10 of 26 words, with coverage and its loss from the first step.

        python launch.py train --config=configs/translation.py:pointer_generator --workdir=runs/copy

    On dates: --config.data=dates --config.vocabulary.kind=char --config.batch.buckets=16,24,32
    --config.batch.max_length=32.
    """
    return {
        "system": {"name": "pointer_generator", "attention": _additive(64)},
        "data": {"name": "copying", "longest": 10, "symbols": 26},
        "vocabulary": {"kind": "word"},
        "batch": {"buckets": (11,), "max_length": 11},
        "training": {"steps": 400, "evaluate_every": 100},
        "auxiliary": {"coverage": 1.0},
    }


def _three_times(attention: dict[str, Any]) -> dict[str, Any]:
    """One kind of attention in all places of a Transformer."""
    return {f"{place}_attention": attention for place in ("encoder", "decoder", "cross")}


def _transformer() -> dict[str, Any]:
    attention = {"name": "multihead", "heads": 4, "dropout": 0.0}
    return {
        "system": {
            "name": "transformer",
            **_three_times(attention),
            "positions": "sinusoidal",
            "dropout": 0.1,
        },
        "schedule": {"name": "inverse_sqrt", "peak": 2e-3, "warmup": 200},
        "optimizer": {"name": "adam", "b2": 0.98, "eps": 1e-9},
        "training": {"output_bias": "zeros"},  # its scores have no bias
    }


PAPER = {
    "checkpoint": {"every": 5000},
    "training": {
        "per": "sentence",
        "output_bias": "zeros",
        "clip": 5.0,
        "evaluate_every": 10_000,
        "log_every": 100,
    },
    "decoding": {"beam": 12, "length_penalty": 0.0},
}
"""What the published recurrent and convolutional systems have in common here."""
ADADELTA = {
    "optimizer": {"name": "adadelta", "rho": 0.95, "eps": 1e-6},
    "schedule": {"name": "constant", "peak": 1.0},
}
UP_TO_50 = {"buckets": (20, 30, 40, 51), "max_length": 51}
"""Sentences of up to 50 words or pieces."""


def _word_vocabulary(size: int) -> dict[str, Any]:
    """So many words on each side."""
    return {"kind": "word", "size": size, "shared": False}


def _rnnsearch_paper() -> dict[str, Any]:
    """Bahdanau et al. 2015: 30,000 words a side, sentences up to 50 words, Adadelta, gradient norm
    1, no dropout.

    The width of their beam is not checked; scores are divided by nothing.
    """
    sizes = {"embedding": 620, "encoder": 1000, "decoder": 1000, "maxout": 500, "normal": 0.01}
    return {
        **merge(PAPER, ADADELTA, {"training": {"steps": 300_000, "clip": 1.0}}),
        "system": {"name": "rnnsearch", **sizes, "attention": _additive(1000)},
        "vocabulary": _word_vocabulary(30_000),
        "batch": {"size": 80, **UP_TO_50},
    }


def _rnn_encoder_decoder_paper() -> dict[str, Any]:
    """Cho et al. 2014, trained on pairs of phrases, with 15,000 words a side and Adadelta; to score
    phrases: `generate --score`.

    Otherwise than there: no low rank of the last matrix. The number of updates and the bound of 20
    words are ours.
    """
    sizes = {"embedding": 100, "encoder": 1000, "decoder": 1000, "maxout": 500, "normal": 0.01}
    return {
        **merge(PAPER, ADADELTA, {"training": {"steps": 300_000, "clip": 0.0}}),
        "system": {"name": "rnn_encoder_decoder", **sizes},
        "vocabulary": _word_vocabulary(15_000),
        "batch": {"buckets": (6, 11, 21), "max_length": 21},
    }


def _seq2seq_paper() -> dict[str, Any]:
    """Sutskever et al. 2014: 4 layers of 1,000, gradient norm 5, 7.5 epochs of 12 million pairs at
    the rate 0.7, beam of 12.

    After the fifth epoch the rate is halved every half epoch. Otherwise than there: one size for
    both vocabularies (there 160,000 and 80,000 words), and no sentences of more than 50 words.
    """
    sizes = {"embedding": 1000, "width": 1000, "layers": 4, "uniform": 0.08, "forget": 0.0}
    falls = {"peak": 0.7, "hold": 468_750, "every": 46_875, "factor": 0.5}
    return {
        **merge(PAPER, {"training": {"steps": 703_125}}),
        "system": {"name": "seq2seq", **sizes},
        "vocabulary": _word_vocabulary(80_000),
        "batch": {"size": 128, **UP_TO_50},
        "optimizer": "sgd",
        "schedule": {"name": "stepped", **falls},
    }


def _luong_paper() -> dict[str, Any]:
    """Luong et al. 2015, their best single model: local-p, the score "general", input feeding, 12
    epochs of 4.5 million pairs.

    The rate is halved after the eighth epoch and each that follows. Otherwise than there: LSTMs and
    the words' scores have biases, and the matrix of the attention's score starts by Glorot's initializer,
    theirs like all others.
    """
    alignment = {"name": "local_p", "reach": 10}
    sizes = {"embedding": 1000, "width": 1000, "layers": 4, "dropout": 0.2}
    falls = {"peak": 1.0, "hold": 281_250, "every": 35_156, "factor": 0.5}
    return {
        **merge(PAPER, {"training": {"steps": 421_872}}),
        "system": {
            "name": "luong",
            **sizes,
            **{"uniform": 0.1, "forget": 0.0},
            "attention": {"name": "single", "score": "general", "alignment": alignment},
        },
        "vocabulary": _word_vocabulary(50_000),
        "batch": {"size": 128, **UP_TO_50},
        "optimizer": "sgd",
        "schedule": {"name": "stepped", **falls},
    }


def _gnmt_paper() -> dict[str, Any]:
    """Wu et al. 2016: 8 + 8 layers of 1,024, 32,000 shared pieces, length and coverage penalties of
    0.2.

    First weights, dropout, batch, gradient norm and 60,000 steps of Adam, their first stage, are as
    others report them, not checked.
    """
    sizes = {"embedding": 1024, "width": 1024, "encoder_layers": 8, "decoder_layers": 8}
    penalties = {"beam": 8, "length_penalty": 0.2, "coverage": 0.2}
    return {
        **merge(PAPER, {"training": {"steps": 60_000}, "decoding": penalties}),
        "system": {
            "name": "gnmt",
            **sizes,
            **{"uniform": 0.04, "dropout": 0.2},
            "attention": _additive(1024),
        },
        "vocabulary": {"kind": "bpe", "size": 32_000},
        "batch": {"size": 128, **UP_TO_50},
        "schedule": {"name": "constant", "peak": 2e-4},
    }


def _cgru_paper() -> dict[str, Any]:
    """The toolkit's systems at WMT 2016: 500 and 1,024 wide, batches of 80, gradient norm 1,
    Adadelta, beam of 12; from memory, unchecked.

    Otherwise than there: 32,000 shared pieces (theirs were some 90,000); the number of updates is
    ours.
    """
    sizes = {"embedding": 500, "encoder": 1024, "decoder": 1024, "readout": 500, "normal": 0.01}
    return {
        **merge(PAPER, ADADELTA, {"training": {"steps": 300_000, "clip": 1.0}}),
        "system": {"name": "cgru", **sizes, "attention": _additive(2048)},
        "vocabulary": {"kind": "bpe", "size": 32_000},
        "batch": {"size": 80, **UP_TO_50},
    }


def _rctm_paper() -> dict[str, Any]:
    """Kalchbrenner and Blunsom 2013 at a width of 256, trained by Adam; others report this width,
    and Adagrad, for theirs: not checked.

    They rescored translations of others; the beam is ours.
    """
    return {
        **merge(PAPER, {"training": {"steps": 100_000}}),
        "system": {"name": "rctm", "width": 256, "longest": 51},
        "vocabulary": _word_vocabulary(30_000),
        "batch": {"size": 128, **UP_TO_50},
        "schedule": {"name": "constant", "peak": 1e-3},
    }


def _convs2s_paper() -> dict[str, Any]:
    """Gehring et al. 2017, English-Romanian: 20 + 20 layers of 512, 40,000 shared pieces,
    Nesterov's momentum, gradient norm 0.1.

    Otherwise than there: a rate that falls linearly, where theirs was divided by 10 whenever the
    validation loss stopped falling, and scores divided by the penalty of GNMT instead of the
    length.
    """
    sizes = {"embedding": 512, "width": 512, "encoder_layers": 20, "decoder_layers": 20}
    changes = {
        "training": {"per": "token", "steps": 400_000, "clip": 0.1},
        "decoding": {"beam": 5, "length_penalty": 1.0},
    }
    return {
        **merge(PAPER, changes),
        "system": {
            "name": "convs2s",
            "attention": {"name": "single", "score": "dot"},
            "positions": {"name": "learned", "length": 1024, "stddev": 0.1},
            **sizes,
            "dropout": 0.2,
        },
        "vocabulary": {"kind": "bpe", "size": 40_000},
        "batch": {"buckets": (20, 40, 80, 176), "max_length": 176},
        "optimizer": {"name": "sgd", "momentum": 0.99, "nesterov": True},
        "schedule": {"name": "linear", "peak": 0.25},
    }


def _transformer_base() -> dict[str, Any]:
    """Vaswani et al. 2017, base: 37,000 shared pieces, 25,000 tokens a batch, 100,000 updates."""
    attention = {"name": "multihead", "heads": 8, "dropout": 0.0}
    sizes = {"width": 512, "layers": 6, "hidden": 2048, "dropout": 0.1}
    return {
        "system": {
            "name": "transformer",
            **_three_times(attention),
            "positions": "sinusoidal",
            **sizes,
            **{"norm": "post", "share": "all"},
        },
        "vocabulary": {"kind": "bpe", "size": 37_000, "min_frequency": 2},
        "batch": {
            "size": 25_000,
            "unit": "tokens",
            "buckets": (16, 32, 64, 128, 256),
            "max_length": 256,
        },
        "optimizer": {"name": "adam", "b2": 0.98, "eps": 1e-9},
        "schedule": {"name": "inverse_sqrt", "peak": (512 * 4000) ** -0.5, "warmup": 4000},
        "training": {
            "steps": 100_000,
            "clip": 0.0,
            "label_smoothing": 0.1,
            "output_bias": "zeros",
            "evaluate_every": 5000,
        },
        "checkpoint": {"every": 5000, "keep": 5},
        "decoding": {"beam": 4, "max_ratio": 1.0, "max_extra": 50},
    }


_ALL = (
    _rnnsearch,
    _transformer,
    _rnn_encoder_decoder,
    _seq2seq,
    _luong,
    _gnmt,
    _cgru,
    _rctm,
    _convs2s,
    _lstmn_seq2seq,
    _pointer_generator,
    _rnnsearch_paper,
    _rnn_encoder_decoder_paper,
    _seq2seq_paper,
    _luong_paper,
    _gnmt_paper,
    _cgru_paper,
    _rctm_paper,
    _convs2s_paper,
    _transformer_base,
)
_SYSTEMS = {system.__name__[1:]: system for system in _ALL}
