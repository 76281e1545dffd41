"""Language modelling, on sequences of keys and values unless told otherwise.

    python launch.py train --config=configs/language_modelling.py:lstm --workdir=runs/lstm

Arguments: lstm, attention, key_value, key_value_predict, ngram, lstmn (small, for two CPU cores),
each of them with _paper behind it (published sizes), nanogpt_paper (tiny Shakespeare by characters)
and decoder (small; `configs/pretrained.py` takes the sizes and weights of GPT-2, Llama, ...). The
built-in texts can be foretold only by looking back: `recall` is the share of values that are right
where their key has occurred. Your own text, a line a text (train.txt, valid.txt, test.txt, plain or
.gz), as one stream with truncated back-propagation:

    --config.data=text --config.data.directory=my/folder --config.batch.texts=joined --config.batch.max_length=35
    --config.vocabulary.kind=char|word|bpe --config.decoding.batch=1

Where texts are read apart (the default), longer ones than batch.max_length are read in windows
(`batch.longer`). A corpus that is too large for memory, prepared by `launch.py prepare
--to=FOLDER/train --from=FILES`, with the vocabulary of its shards, in rows without padding; `packed`
is for the decoder:

    --config.data=shards --config.data.directory=FOLDER --config.batch.texts=packed --config.batch.max_length=128

One file for all: --config.data.train='input.txt[:90%]' --config.data.valid='input.txt[90%:95%]'
--config.data.test='input.txt[95%:]'. Where texts are joined `decoding.batch` is the number of lanes
that a split is scored in: 1 is the exact score of the whole stream, more are faster. `generate`
writes each line of its input to the end.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "lstm") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/language_modelling.py")())


SHARED = {
    "task": "language_modelling",
    "data": "associations",
    "vocabulary": {"kind": "word", "size": 10_000, "min_frequency": 1},
    "batch": {"texts": "apart", "max_length": 41, "longer": "windows"},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 2500, "output_bias": "unigram", "evaluate_every": 500},
    "checkpoint": {"every": 500},
    "decoding": {"method": "sample", "max_ratio": 1.0, "max_extra": 50},
}
"""What does not depend on the system."""
PATIENT = {
    "schedule": {"name": "constant", "peak": 6e-3, "warmup": 100},
    "training": {"steps": 5000},
}
"""A rate that does not fall: what looks back learns nothing for long, and then all at once."""
STREAM = {
    "data": "text",
    "vocabulary": {"size": 10_003},  # PTB and 4 signs
    "batch": {"size": 20, "texts": "joined", "max_length": 35},
    "decoding": {"batch": 20, "max_ratio": 0.0, "max_extra": 100},
}
"""The user's text as one stream: train.txt, valid.txt and test.txt in the folder `data.directory`."""


def _additive(hidden: int) -> dict[str, Any]:
    """Attention of one head by the score of Bahdanau et al. 2015."""
    return {"name": "single", "score": {"name": "additive", "hidden": hidden}}


def _lstm() -> dict[str, Any]:
    return {"system": {"name": "lstm_lm", "embedding": 32, "width": 64}}


def _attention() -> dict[str, Any]:
    """Daniluk et al. 2017; the window is the whole text. Recall stays near 0.3, then rises to 1
    within a few hundred updates.

    Seen once: after 2,700 updates, with first embeddings of N(0, 1 / width).
    """
    return {**PATIENT, "system": {**_daniluk("single", 56, 1), "window": 39}}


def _key_value() -> dict[str, Any]:
    return {**PATIENT, "system": {**_daniluk("key_value", 36, 2), "window": 39}}


def _key_value_predict() -> dict[str, Any]:
    return {**PATIENT, "system": {**_daniluk("key_value_predict", 28, 3), "window": 39}}


def _ngram() -> dict[str, Any]:
    """N = 4, the paper's."""
    return {**PATIENT, "system": {"name": "ngram_rnn", "order": 4, "embedding": 32, "width": 28}}


def _lstmn() -> dict[str, Any]:
    """Cheng et al. 2016, looking back at the whole text."""
    sizes = {"embedding": 32, "width": 48, "span": 40}
    return {"system": {"name": "lstmn_lm", "attention": _additive(48), **sizes}}


def _daniluk(mechanism: str, width: int, parts: int) -> dict[str, Any]:
    """A model that attends by a mechanism which cuts states into so many parts of one width."""
    return {
        "name": "attention_lm",
        "attention": {**_additive(width), "name": mechanism},
        "embedding": 32,
        "state": parts * width,
        "width": width,
        "merge": "tanh" if parts == 1 else "none",
    }


def _decoder() -> dict[str, Any]:
    """Radford et al. 2018 with norms in front, as GPT-2 has them."""
    return {
        "training": {"output_bias": "zeros"},
        "system": {
            "name": "decoder",
            "attention": {"name": "multihead", "heads": 4, "bias": True},
            "positions": {"name": "learned", "length": 160},
            "width": 48,
            "hidden": 192,
        },
    }


def _nanogpt_paper() -> dict[str, Any]:
    """Karpathy's nanoGPT, the setting that its README gives for a CPU: tiny Shakespeare by
    characters, 0.8 million parameters, random crops, no biases.

    Validated in pieces of 64 characters, each read from nothing, as there; all pieces, where nanoGPT
    draws some. It also decays embeddings, which we do not.
    """
    rate = {"peak": 1e-3, "warmup": 100, "floor": 1e-4}
    return {
        **STREAM,
        "vocabulary": {"kind": "char"},
        "batch": {"size": 12, "texts": "crops", "max_length": 64},
        "schedule": {"name": "cosine", **rate},
        "optimizer": {"name": "adamw", "b2": 0.99, "weight_decay": 0.1},
        "training": {"steps": 2000, "clip": 1.0, "output_bias": "zeros", "evaluate_every": 500},
        "system": {
            "name": "decoder",
            "attention": {"name": "multihead", "heads": 4, "bias": False},
            "positions": {"name": "learned", "length": 164},
            "feed_forward": {"name": "gelu", "bias": False},
            "normalisation": {"name": "layer_norm", "epsilon": 1e-5, "use_bias": False},
            "initial": "gpt2",
            "width": 128,
            "hidden": 512,
            "layers": 4,
            "dropout": 0.0,
        },
    }


def _lstm_paper() -> dict[str, Any]:
    """Zaremba et al. 2014, medium: Penn Treebank, tokenised as it comes; 39 epochs of 1,328 steps,
    the rate falls from the 7th on.

    Its loss is summed over time and averaged over rows. Validation in 20 lanes; the paper scores
    the test split as one stream.
    """
    epoch = 1328
    falls = {"peak": 1.0, "hold": 6 * epoch, "every": epoch, "factor": 1 / 1.2}
    sizes = {"embedding": 650, "width": 650, "layers": 2}
    return {
        **merge(STREAM, _by_epochs(epoch, 39)),
        "system": {"name": "lstm_lm", **sizes, "uniform": 0.05, "dropout": 0.5},
        "schedule": {"name": "stepped", **falls},
    }


def _by_epochs(epoch: int, count: int) -> dict[str, Any]:
    """Plain gradient descent on Penn Treebank, `count` epochs of so many updates, gradient norm
    5.
    """
    return {
        "vocabulary": {"kind": "spaced"},
        "optimizer": "sgd",
        "training": {
            "steps": count * epoch,
            "clip": 5.0,
            "per": "sentence",
            "output_bias": "zeros",
            "log_every": 100,
            "evaluate_every": epoch,
        },
        "checkpoint": {"every": epoch},
    }


def _daniluk_paper(system: dict[str, Any]) -> dict[str, Any]:
    """Daniluk et al. 2017: 20 tokens of each lane at a time, and `carry` "state", as there.

    Adam and its rate, 64 lanes, gradient norm 5 and first weights in [-0.1, 0.1] are as others
    report them, not checked. Widths are ours: in each of the models 47 million parameters with
    77,000 words, for the paper compares at equal totals.
    """
    return {
        **merge(STREAM, {"vocabulary": {"size": 77_000}, "batch": {"size": 64, "max_length": 20}}),
        "training": {
            "steps": 100_000,
            "clip": 5.0,
            "log_every": 100,
            "evaluate_every": 10_000,
        },
        "system": {**system, "embedding": 300, "uniform": 0.1},
        "schedule": {"name": "constant", "peak": 1e-3},
        "checkpoint": {"every": 5000},
    }


def _attention_paper() -> dict[str, Any]:
    return _daniluk_paper({**_daniluk("single", 300, 1), "window": 10, "carry": "state"})


def _key_value_paper() -> dict[str, Any]:
    return _daniluk_paper({**_daniluk("key_value", 285, 2), "window": 10, "carry": "state"})


def _key_value_predict_paper() -> dict[str, Any]:
    return _daniluk_paper({**_daniluk("key_value_predict", 265, 3), "window": 5, "carry": "state"})


def _ngram_paper() -> dict[str, Any]:
    return _daniluk_paper({"name": "ngram_rnn", "order": 4, "width": 265})


def _lstmn_paper() -> dict[str, Any]:
    """Cheng et al. 2016: Penn Treebank, sentence by sentence, 40 at a time, gradient norm 5; the
    rate falls after every epoch.

    Its loss is summed over time and averaged over rows, as its rate wants it. The length of
    training and of the tape are ours.
    """
    epoch = 1052
    sizes = {"embedding": 150, "width": 300, "span": 82}
    falls = {"peak": 0.65, "hold": epoch, "every": epoch, "factor": 0.85}
    apart = {"size": 40, "texts": "apart", "max_length": 83}
    return {
        **merge(STREAM, _by_epochs(epoch, 25), {"batch": apart}),
        "system": {"name": "lstmn_lm", "attention": _additive(300), **sizes},
        "schedule": {"name": "stepped", **falls},
    }


_SYSTEMS = {
    "lstm": _lstm,
    "attention": _attention,
    "key_value": _key_value,
    "key_value_predict": _key_value_predict,
    "ngram": _ngram,
    "lstmn": _lstmn,
    "decoder": _decoder,
    "nanogpt_paper": _nanogpt_paper,
    "lstm_paper": _lstm_paper,
    "attention_paper": _attention_paper,
    "key_value_paper": _key_value_paper,
    "key_value_predict_paper": _key_value_predict_paper,
    "ngram_paper": _ngram_paper,
    "lstmn_paper": _lstmn_paper,
}
