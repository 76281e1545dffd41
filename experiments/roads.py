"""The roads to the Transformer: every recurrent and convolutional system of translation, and the
Transformer, on one text, equally large.

    python launch.py sweep experiments/roads.py --dir=runs/roads
    python launch.py sweep experiments/roads.py:FOLDER --dir=runs/roads-text
    python launch.py sweep experiments/roads.py:FOLDER:fr-en --dir=runs/roads-text

Without an argument: sentences of the built-in grammar. With a folder of parallel text (train.de,
train.en, valid.de, ...; other endings as the last word) that text in 6,000 shared pieces, three
epochs of 29,000 pairs. Each system gets as many parameters as RNNsearch. On text the learning rate
of every system is the better one of two on the validation split, found with the first seed (`pip
install '.[search]'`). The claim is the field's own: who looks at the source anew before every word
translates better than who carries one vector through the sentence, and feeding the last look back
in helps. The Transformer is a row of the table; the claim is about those before it.
"""

from typing import Any

from attnlab.errors import UserError
from attnlab.experiments import Budget, Claim, Contrast, Experiment, Search, better, choice, rows

FIXED = ("RCTM", "RNN encoder-decoder", "sequence to sequence")
LOOKING = ("RNNsearch", "conditional GRU", "Luong", "GNMT", "LSTMN", "ConvS2S")
GENERAL = {"system.attention": "single", "system.attention.score": "general"}


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on the built-in grammar, or on the parallel files of the folder in the
    argument.
    """
    width, base = (128, of_text(argument)) if argument else (48, of_grammar())
    dropout = 0.2 if argument else 0.0
    systems = {
        **without_attention(width, dropout, base["batch.max_length"]),
        **with_attention(width, dropout),
    }
    knobs = {
        name: "system.width"
        for name in systems
        if name not in ("RNN encoder-decoder", "RNNsearch", "conditional GRU")
    }
    knobs["Transformer"] = "system.hidden"
    average = {
        **{name: 1 / len(LOOKING) for name in LOOKING},
        **{name: -1 / len(FIXED) for name in FIXED},
    }
    return Experiment(
        question=(
            "Which system translates best, of those that led from the recurrent encoder-decoder to"
            " the Transformer, and the Transformer?"
        ),
        config="configs/translation.py:rnnsearch",
        base=base,
        compare=rows(systems),
        seeds=(0, 1, 2),
        baseline="RNNsearch",
        measure=("bleu", "max"),
        budget=Budget(match="parameters", knob="system.decoder", within=0.02, knobs=knobs),
        search=(
            Search({"schedule.peak": choice(6e-3, 1.2e-2)}, sampler="grid", trials=2)
            if argument
            else None
        ),
        claim=Claim(
            "On average those that look at the source anew for every word translate better than"
            " those that carry one vector, and feeding the last look back in helps",
            (Contrast(average), better("Luong", "Luong, no feeding")),
        ),
    )


def without_attention(width: int, dropout: float, longest: int) -> dict[str, dict[str, Any]]:
    """Those that carry one vector through the sentence."""
    halves = {"system.embedding": width, "system.dropout": dropout}
    return {
        "RCTM": {"system": "rctm", "system.longest": longest, "system.dropout": dropout},
        "RNN encoder-decoder": {
            "system": "rnn_encoder_decoder",
            "system.encoder": 2 * width,
            "system.maxout": width,
            **halves,
        },
        "sequence to sequence": {"system": "seq2seq", "system.layers": 2, **halves},
    }


def with_attention(width: int, dropout: float) -> dict[str, dict[str, Any]]:
    """Those that look at the source anew for every word."""
    halves = {"system.embedding": width, "system.dropout": dropout}
    additive = {
        "system.attention": "single",
        "system.attention.score": "additive",
        "system.attention.score.hidden": width,
    }
    inter = {
        name.replace("attention", "inter_attention"): value for name, value in additive.items()
    }
    luong = {"system": "luong", **GENERAL, "system.layers": 2, **halves}
    return {
        "RNNsearch": {
            "system.encoder": width,
            "system.decoder": 2 * width,
            "system.maxout": width,
            **halves,
            "system.attention.score.hidden": width,
        },
        "conditional GRU": {
            "system": "cgru",
            "system.encoder": width,
            "system.readout": width,
            **additive,
            **halves,
        },
        "Luong, no feeding": {**luong, "system.feeding": "none"},
        "Luong": luong,
        "Luong, local-p": {**luong, "system.attention.alignment": "local_p"},
        "GNMT": {"system": "gnmt", **additive, **halves},
        "LSTMN": {"system": "lstmn_seq2seq", **additive, **inter, **halves},
        "ConvS2S": {
            "system": "convs2s",
            "system.attention": "single",
            "system.attention.score": "dot",
            "system.positions": "learned",
            "system.positions.stddev": 0.1,
            **halves,
        },
        "Transformer": transformer(width, dropout),
    }


def transformer(width: int, dropout: float) -> dict[str, Any]:
    """As wide as the others' embeddings; source, target and output have a matrix each, as there."""
    slots = ("encoder", "decoder", "cross")
    return {
        "system": "transformer",
        **{f"system.{slot}_attention": "multihead" for slot in slots},
        **{f"system.{slot}_attention.heads": 4 for slot in slots},
        "system.positions": "sinusoidal",
        "system.share": "none",
        "system.output_bias": True,
        "system.width": width,
        "system.dropout": dropout,
    }


def of_grammar() -> dict[str, Any]:
    """The built-in grammar, word by word."""
    return {
        "data": "grammar",
        "vocabulary.kind": "word",
        "batch.buckets": (16, 24),
        "batch.max_length": 24,
        "training.steps": 800,
        "decoding.method": "greedy",
    }


def of_text(argument: str) -> dict[str, Any]:
    """Parallel text.

    Raises:
      UserError: the languages are no two endings.
    """
    folder, _, languages = argument.partition(":")
    source, dash, target = (languages or "de-en").partition("-")
    if not (source and dash and target):
        raise UserError(
            f"experiments/roads.py:{argument}: expected the endings of both languages, such as"
            " 'de-en'"
        )
    return {
        "data": "files",
        "data.directory": folder,
        "data.source": source,
        "data.target": target,
        "vocabulary.kind": "bpe",
        "vocabulary.size": 6000,
        "vocabulary.min_frequency": 2,
        "vocabulary.lowercase": True,
        "batch.buckets": (12, 16, 20, 26, 34, 50),
        "batch.max_length": 50,
        "schedule": "linear",
        "schedule.warmup": 200,
        "training.steps": 1374,
        "training.label_smoothing": 0.1,
        "training.evaluate_every": 229,
        "checkpoint.every": 229,
        "decoding.length_penalty": 1.0,
    }
