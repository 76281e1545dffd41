"""Language modelling, on sequences of keys and values unless told otherwise.

    python launch.py train --config=configs/language_modelling.py:lstm --workdir=runs/lstm

Arguments: lstm, attention, key_value, key_value_predict, ngram, lstmn (small, for two CPU cores),
each of them with _paper behind it (published sizes). The built-in texts can be foretold only by
looking back: `recall` is the share of values that are right where their key has occurred. Your own
text, a line a text (train.txt, valid.txt, test.txt, plain or .gz), as one stream with truncated
back-propagation:

    --config.data=text --config.data.directory=my/folder --config.batch.texts=joined --config.batch.max_length=35
    --config.vocabulary.kind=char|word|bpe --config.decoding.batch=1

One file for all: --config.data.train='input.txt[:90%]' --config.data.valid='input.txt[90%:95%]'
--config.data.test='input.txt[95%:]'. Where texts are joined `decoding.batch` is the number of lanes
that a split is scored in: 1 is the exact score of the whole stream, more are faster. `generate`
writes each line of its input to the end.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest


def get_config(system: str = "lstm") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    if system not in _SYSTEMS:
        raise UserError(
            f"configs/language_modelling.py has no system {system!r}; {nearest(system, _SYSTEMS)}"
        )
    return ConfigDict({**_shared(), **_SYSTEMS[system]()})


def _shared() -> dict[str, Any]:
    """What does not depend on the system."""
    return {
        "task": "language_modelling",
        "seed": 0,
        "data": {"name": "associations"},
        "vocabulary": {"kind": "word", "size": 10_000, "min_frequency": 1, "lowercase": False},
        # texts "apart": `size` texts of at most `max_length` tokens; "joined": `size` lanes of one
        # stream, `max_length` tokens of each; "in_turn": the same, but nothing is known at the
        # beginning of a text.
        "batch": {"size": 64, "texts": "apart", "max_length": 41},
        "optimizer": {"name": "adam"},
        "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
        "training": {
            "steps": 2500,
            "accumulate": 1,
            "clip": 1.0,
            "label_smoothing": 0.0,
            "per": "token",
            "ema": 0.0,
            "compute": "float32",
            "output_bias": "unigram",
            "log_every": 50,
            "evaluate_every": 500,
        },
        "checkpoint": {"every": 500, "keep": 2, "by": "loss"},
        "parallel": {"backend": "auto", "devices": 0},
        "decoding": {"method": "sample", "batch": 64, "max_ratio": 1.0, "max_extra": 50},
    }


def _of_text(kind: str, steps: int, **training: Any) -> dict[str, Any]:
    """The user's text as one stream: train.txt, valid.txt and test.txt in the folder
    `data.directory`.
    """
    return {
        "data": {"name": "text"},
        "vocabulary": {
            "kind": kind,
            "size": 10_003,
            "min_frequency": 1,
            "lowercase": False,
        },  # PTB and 4 signs
        "batch": {"size": 20, "texts": "joined", "max_length": 35},
        "training": {**_shared()["training"], "steps": steps, **training},
        "decoding": {"method": "sample", "batch": 20, "max_ratio": 0.0, "max_extra": 100},
    }


def _lstm() -> dict[str, Any]:
    return {"system": {"name": "lstm_lm", "embedding": 32, "width": 64}}


def _attention() -> dict[str, Any]:
    """Daniluk et al. 2017; the window is the whole text. Recall stays near 0.3, then rises to 1
    within a few hundred updates.

    Seen once: after 2,700 updates, with first embeddings of N(0, 1 / width).
    """
    return {**_patient(), "system": {**_daniluk("single", 56, 1), "window": 39}}


def _key_value() -> dict[str, Any]:
    return {**_patient(), "system": {**_daniluk("key_value", 36, 2), "window": 39}}


def _key_value_predict() -> dict[str, Any]:
    return {**_patient(), "system": {**_daniluk("key_value_predict", 28, 3), "window": 39}}


def _ngram() -> dict[str, Any]:
    """N = 4, the paper's."""
    return {**_patient(), "system": {"name": "ngram_rnn", "order": 4, "embedding": 32, "width": 28}}


def _patient() -> dict[str, Any]:
    """A rate that does not fall: what looks back learns nothing for long, and then all at once."""
    return {
        "schedule": {"name": "constant", "peak": 6e-3, "warmup": 100},
        "training": {**_shared()["training"], "steps": 5000},
    }


def _lstmn() -> dict[str, Any]:
    """Cheng et al. 2016, looking back at the whole text."""
    attention = {"name": "single", "score": {"name": "additive", "hidden": 48}}
    return {
        "system": {
            "name": "lstmn_lm",
            "attention": attention,
            "embedding": 32,
            "width": 48,
            "span": 40,
        }
    }


def _daniluk(mechanism: str, width: int, parts: int) -> dict[str, Any]:
    """A model that attends by a mechanism which cuts states into so many parts of one width."""
    attention = {"name": mechanism, "score": {"name": "additive", "hidden": width}}
    merge = "tanh" if parts == 1 else "none"
    return {
        "name": "attention_lm",
        "attention": attention,
        "embedding": 32,
        "state": parts * width,
        "width": width,
        "merge": merge,
    }


def _lstm_paper() -> dict[str, Any]:
    """Zaremba et al. 2014, medium: Penn Treebank, tokenised as it comes; 39 epochs of 1,328 steps,
    the rate falls from the 7th on.

    Its loss is summed over time and averaged over rows. Validation in 20 lanes; the paper scores
    the test split as one stream.
    """
    epoch = 1328
    training = {
        "clip": 5.0,
        "per": "sentence",
        "output_bias": "zeros",
        "log_every": 100,
        "evaluate_every": epoch,
    }
    return {
        **_of_text("spaced", 39 * epoch, **training),
        "system": {
            "name": "lstm_lm",
            "embedding": 650,
            "width": 650,
            "layers": 2,
            "uniform": 0.05,
            "dropout": 0.5,
        },
        "optimizer": {"name": "sgd"},
        "schedule": {
            "name": "stepped",
            "peak": 1.0,
            "hold": 6 * epoch,
            "every": epoch,
            "factor": 1 / 1.2,
        },
        "checkpoint": {"every": epoch, "keep": 2, "by": "loss"},
    }


def _daniluk_paper(system: dict[str, Any]) -> dict[str, Any]:
    """Daniluk et al. 2017: 20 tokens of each lane at a time, and `carry` "state", as there.

    Adam and its rate, 64 lanes, gradient norm 5 and first weights in [-0.1, 0.1] are as others
    report them, not checked. Widths are ours: in each of the models 47 million parameters with
    77,000 words, for the paper compares at equal totals.
    """
    training = {"clip": 5.0, "log_every": 100, "evaluate_every": 10_000}
    text = _of_text("word", 100_000, **training)
    return {
        **text,
        "vocabulary": {**text["vocabulary"], "size": 77_000},
        "batch": {"size": 64, "texts": "joined", "max_length": 20},
        "system": {**system, "embedding": 300, "uniform": 0.1},
        "schedule": {"name": "constant", "peak": 1e-3},
        "checkpoint": {"every": 5000, "keep": 2, "by": "loss"},
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
    attention = {"name": "single", "score": {"name": "additive", "hidden": 300}}
    return {
        **_of_text(
            "spaced",
            25 * epoch,
            clip=5.0,
            per="sentence",
            output_bias="zeros",
            log_every=100,
            evaluate_every=epoch,
        ),
        "batch": {"size": 40, "texts": "apart", "max_length": 83},
        "system": {
            "name": "lstmn_lm",
            "attention": attention,
            "embedding": 150,
            "width": 300,
            "span": 82,
        },
        "optimizer": {"name": "sgd"},
        "schedule": {
            "name": "stepped",
            "peak": 0.65,
            "hold": epoch,
            "every": epoch,
            "factor": 0.85,
        },
        "checkpoint": {"every": epoch, "keep": 2, "by": "loss"},
    }


_SYSTEMS = {
    "lstm": _lstm,
    "attention": _attention,
    "key_value": _key_value,
    "key_value_predict": _key_value_predict,
    "ngram": _ngram,
    "lstmn": _lstmn,
    "lstm_paper": _lstm_paper,
    "attention_paper": _attention_paper,
    "key_value_paper": _key_value_paper,
    "key_value_predict_paper": _key_value_predict_paper,
    "ngram_paper": _ngram_paper,
    "lstmn_paper": _lstmn_paper,
}
