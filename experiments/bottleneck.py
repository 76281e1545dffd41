"""How much fits into a vector of fixed size? The RNN Encoder-Decoder against RNNsearch as the
source grows longer.

    python launch.py sweep experiments/bottleneck.py --dir=runs/bottleneck
    python launch.py sweep experiments/bottleneck.py:widths --dir=runs/bottleneck-widths
    python launch.py sweep experiments/bottleneck.py:FOLDER --dir=runs/bottleneck-text
    python launch.py sweep experiments/bottleneck.py:FOLDER:fr-en --dir=runs/bottleneck-text

Cho et al. 2014 put the whole source into one vector; Bahdanau et al. 2015 blame it for what goes
wrong with long sentences, and attend. Without an argument: made-up words to be copied, 4, 8 or 12
of them. With a folder of parallel text (train.de, train.en, valid.de, ...; other endings as the
last word): its shortest and its longest third, by words of the source. Each system is trained and
tested on sources of one length, and the fixed vector gets as many parameters as attention has. The
claim is a difference of differences: what attention gains grows with the length. With "widths":
fixed vectors of 32, 64 and 128 numbers, for 4 and 8 words; these are not equally large.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.data.files import ParallelFiles
from attnlab.errors import UserError
from attnlab.experiments import Axis, Budget, Claim, Contrast, Experiment, better, cross, rows

SYSTEM, SCORE = "configs/translation.py:rnnsearch", "system.attention.score.hidden"
LONGEST = 50  # words of a sentence; longer ones are left out, as Bahdanau et al. do


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on made-up words, with one width or several, or on the parallel files of the
    folder in the argument.
    """
    if not argument:
        return of_words(4, 8, 12)
    if argument == "widths":
        return of_widths(32, 64, 128)
    folder, _, languages = argument.partition(":")
    return of_text(folder, languages or "de-en")


def of_words(*counts: int) -> Experiment:
    """Words to be copied; `counts` says how many, the smallest first. One width of batches for all:
    equal programs are compiled once.
    """
    base = {**copying(counts[-1]), **sizes(32)}
    lengths = rows(dict(map(length_row, counts)))
    return experiment(base, 32, lengths, "exact", at_least=0.2, seeds=(0, 1, 2, 3, 4))


def of_widths(*widths: int) -> Experiment:
    """Fixed vectors of several widths, the smallest first, for 4 and 8 words."""
    states = rows({f"{width} numbers": {"system.encoder": width} for width in widths})
    narrow, wide = (f"{width} numbers, 8 words" for width in (widths[0], widths[-1]))
    return Experiment(
        question="How much fits into a vector of fixed size, as it grows wider?",
        config="configs/translation.py:rnn_encoder_decoder",
        base={**copying(8), **sizes(32)},
        compare=cross(states, rows(dict(map(length_row, (4, 8))))),
        seeds=(0, 1, 2, 3, 4),
        baseline=narrow,
        measure=("exact", "max"),
        claim=Claim("A wider vector holds more of 8 words", (better(wide, narrow, by=0.1),)),
    )


def copying(longest: int) -> dict[str, Any]:
    """Made-up words to be copied; one width of batches, with the end of the sentence."""
    return {
        "data": "copying",
        "data.valid": 500,
        "data.symbols": 16,
        "vocabulary.kind": "word",
        "batch.buckets": (longest + 1,),
        "batch.max_length": longest + 1,
        "training.steps": 1000,
        "schedule.warmup": 50,
        "decoding.method": "greedy",
    }


def length_row(count: int) -> tuple[str, dict[str, Any]]:
    """The name and the settings of texts of so many words."""
    return f"{count} words", {"data.shortest": count, "data.longest": count}


def of_text(folder: str, languages: str) -> Experiment:
    """The shortest and the longest third of the parallel text in a folder.

    Raises:
      UserError: the languages are no two endings, the files cannot be read, or their sentences are
        all of one length.
    """
    source, dash, target = languages.partition("-")
    if not (source and dash and target):
        raise UserError(
            f"experiments/bottleneck.py:{folder}:{languages}: expected the endings of both"
            " languages, such as 'de-en'"
        )
    counts = sorted(
        len(text.split())
        for text, _ in ParallelFiles(folder, source=source, target=target).pairs("train")
    )
    short = counts[(len(counts) - 1) // 3]
    long = max(short + 1, counts[2 * len(counts) // 3])
    if long > min(counts[-1], LONGEST):
        raise UserError(
            f"{folder}: no third of the training sentences is longer than another, by words up to"
            f" {LONGEST}"
        )
    base = {
        "data": "of_length",
        "data.of.directory": folder,
        "data.of.source": source,
        "data.of.target": target,
        "vocabulary.kind": "bpe",
        "vocabulary.size": 6000,
        "batch.buckets": (16, 32, 64, 96),
        "batch.max_length": 96,
        "training.steps": 3000,
        "training.evaluate_every": 500,
        "schedule.peak": 2e-3,
        "schedule.warmup": 200,
    }
    lengths = {
        f"up to {short} words": {"data.shortest": 1, "data.longest": short},
        f"{long} to {LONGEST} words": {"data.shortest": long, "data.longest": LONGEST},
    }
    return experiment(
        {**base, **sizes(128)}, 128, rows(lengths), "bleu", at_least=0.0, seeds=(0, 1, 2)
    )


def sizes(width: int) -> dict[str, Any]:
    """The settings that both systems share, for a small width."""
    return {"system.embedding": width, "system.decoder": 2 * width, "system.maxout": width}


def experiment(
    base: Mapping[str, Any],
    width: int,
    lengths: Axis,
    measure: str,
    at_least: float,
    seeds: tuple[int, ...],
) -> Experiment:
    """Both systems at every length; the fixed vector is as wide as what attention reads of a word,
    2 x `width`.
    """
    systems = rows(
        {
            "fixed vector": {"system": "rnn_encoder_decoder", "system.encoder": 2 * width},
            "attention": {"system.encoder": width, SCORE: width},
        }
    )
    short, long = lengths[0].name, lengths[-1].name
    gain = {
        f"attention, {long}": 1.0,
        f"fixed vector, {long}": -1.0,
        f"attention, {short}": -1.0,
        f"fixed vector, {short}": 1.0,
    }
    return Experiment(
        question=(
            "Does one vector of fixed size between encoder and decoder hold up as the source grows"
            " longer?"
        ),
        config=SYSTEM,
        base=base,
        compare=cross(systems, lengths),
        seeds=seeds,
        baseline=f"fixed vector, {short}",
        measure=(measure, "max"),
        budget=Budget(match="parameters", knob="system.decoder", to=f"attention, {short}"),
        claim=Claim(
            f"What attention gains over a fixed vector is larger with {long} than with {short}",
            (Contrast(gain, at_least),),
        ),
    )
