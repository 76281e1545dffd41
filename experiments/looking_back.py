"""What does a language model gain by looking back at what it has read? An LSTM against those that
do, equally large.

    python launch.py sweep experiments/looking_back.py --dir=runs/looking-back
    python launch.py sweep experiments/looking_back.py:FOLDER --dir=runs/looking-back-words
    python launch.py sweep experiments/looking_back.py:FOLDER:char --dir=runs/looking-back-characters

Daniluk et al. 2017 look back at the last outputs of an LSTM (attention, key-value,
key-value-predict) or use them as they are (4-gram); Cheng et al. 2016 go on from an attended past
(LSTMN). Without an argument: keys and values, where the right answer can only be looked up. With a
folder of text (train.txt, valid.txt, test.txt; plain, .gz or .xz) that text as one stream, word by
word or, by the last word of the argument, character by character. Every system has as many
parameters as the LSTM. On text the learning rate of every system is the better one of two on the
validation split, found with the first seed (`pip install '.[search]'`).
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.errors import UserError, nearest
from attnlab.experiments import Budget, Claim, Experiment, Search, better, choice, rows


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on keys and values, or on the text of the folder in the argument.

    Raises:
      UserError: no such folder of texts, or the last word is neither "word" nor "char".
    """
    base = of_text(argument) if argument else of_pairs()
    width, window, dropout, coarse = (
        base.pop(name) for name in ("width", "window", "dropout", "coarse")
    )
    systems = those(width, window, dropout)
    knobs = dict.fromkeys(("attention", "key-value", "key-value-predict"), "system.state")
    for name, size in coarse.items():
        systems[name] |= size
        knobs[name] = "system.embedding"
    if argument:
        claim = Claim(
            "Attention to the last outputs lowers the loss of an LSTM",
            (better("attention", "LSTM"),),
        )
    else:
        finds = tuple(better(name, "LSTM", by=0.3) for name in ("attention", "key-value-predict"))
        claim = Claim("Attention finds values that an LSTM of its size cannot hold", finds)
    return Experiment(
        question="What does a language model gain by looking back?",
        config="configs/language_modelling.py:lstm",
        base=base,
        compare=rows(systems),
        seeds=(0, 1, 2),  # a trial takes minutes
        baseline="LSTM",
        measure=("loss", "min") if argument else ("recall", "max"),
        budget=Budget(match="parameters", knob="system.width", knobs=knobs),
        claim=claim,
        search=(
            Search({"schedule.peak": choice(2e-3, 6e-3)}, sampler="grid", trials=2)
            if argument
            else None
        ),
    )


def those(width: int, window: int, dropout: float) -> dict[str, dict[str, Any]]:
    """The systems that are compared."""
    sizes = {"system.embedding": width // 2, "system.dropout": dropout}
    looking = {"system": "attention_lm", "system.window": window, "system.width": width, **sizes}
    score = {"system.attention.score": "additive", "system.attention.score.hidden": width}
    additive = {"system.attention": "single", **score}
    itself = {"system.merge": "none"}
    return {
        "LSTM": {"system": "lstm_lm", "system.width": width, **sizes},
        "attention": {**looking, **additive},
        "key-value": {**looking, **itself, "system.attention": "key_value", **score},
        "key-value-predict": {
            **looking,
            **itself,
            "system.attention": "key_value_predict",
            **score,
            "system.state": 3 * (width // 3),
        },
        "4-gram": {"system": "ngram_rnn", **sizes},
        "LSTMN": {"system": "lstmn_lm", **additive, "system.span": window, **sizes},
    }


def of_pairs() -> dict[str, Any]:
    """Keys and values, all of a text in sight; where the steps of a width are coarse the embeddings
    make up for it.

    The rate does not fall: what looks back learns nothing for long, and then all at once.
    """
    coarse = {
        "key-value": {"system.state": 52},
        "key-value-predict": {"system.state": 54},
        "4-gram": {"system.width": 21},
        "LSTMN": {"system.width": 48},
    }
    patient = {"schedule": "constant", "schedule.peak": 6e-3, "training.steps": 5000}
    return {"width": 64, "window": 40, "dropout": 0.0, "coarse": coarse, **patient}


def of_text(argument: str) -> dict[str, Any]:
    """The text of a folder."""
    folder, _, kind = argument.partition(":")
    kind = kind or "word"
    if kind not in ("word", "char"):
        raise UserError(
            f"experiments/looking_back.py:{argument}: {kind!r}; {nearest(kind, ('word', 'char'))}"
        )
    find_file(folder, "train.txt")
    joined = {
        "batch.texts": "joined",
        "batch.size": 32,
        "batch.max_length": 35 if kind == "word" else 64,
    }
    return {
        **{"width": 256, "window": 10, "dropout": 0.3 if kind == "word" else 0.1, "coarse": {}},
        **{
            "data": "text",
            "data.directory": folder,
            "vocabulary.kind": kind,
            "vocabulary.size": 10_000,
        },
        "vocabulary.min_frequency": 2 if kind == "word" else 1,
        **joined,
        "training.steps": 2000,
        "decoding.batch": 16,
    }
