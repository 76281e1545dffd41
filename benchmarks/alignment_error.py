"""Does the attention of a trained translation system know which word is which? Its alignment error
rate on gold alignments.

    python -m benchmarks.alignment_error runs/tatoeba --gold=HANSARDS/test --gold=HANSARDS/dev --longest=0 --longest=10

A gold PREFIX names three files with a line for each sentence pair: PREFIX.en and PREFIX.fr, words
split on blanks, and PREFIX.align with links `i-j` (sure) and `ipj` (possible), i the word of the
first language, j of the second, from 0. Which languages: `--source`, `--target` (what the system
translates) and `--first` (whose words i counts, if not the source's).

The gold translation is forced on the system; pieces become words (a source word gets the sum over
its pieces, a target word the mean; the end mark gets nothing); each target word is linked to the
source word with the largest weight (Luong et al. 2015). Row t of the weights is read in two ways:
"predicted", as the look for the word the step predicts, y_t, which is what it is in RNNsearch; and
"read", for the word the step has just read, y_{t-1}, which fits where the query holds that word
(Transformers). Beside them two baselines: the diagonal, and uniform chance (exact expectation). For
each corpus, and its pairs of at most `--longest` words on both sides (0: all): pairs, target words,
sure and possible links, and in percent the error rate, the precision on possible and the recall of
sure links.

Gold corpora are split into words and so spaced unlike ordinary text. The system is given ordinary
spacing ("order , please ." as "order, please."; rules for English and French below) unless
`--spacing=gold`; words and links stay those of the gold files.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlab.analysis import alignment
from attnlab.analysis.alignment import Gold, Link
from attnlab.commands import session, take_overrides
from attnlab.data.files import read_lines
from attnlab.errors import UserError
from attnlab.progress import table
from benchmarks import rounds

SPACING: Mapping[str, Sequence[tuple[str, str]]] = {
    "en": ((r" (?=[.,;:!?)%]|n't\b|'(?:s|t|re|ve|ll|d|m)\b)", ""), (r"(?<=\() ", "")),
    "fr": ((r" (?=[.,)])", ""), (r"(?<=\() |(?<=\w') ", ""), (r"(?<=\w) - (?=\w)", "-")),
}
BATCH = 16  # pairs forced at once; gold corpora are small


class Pair(NamedTuple):
    """A gold sentence pair: the words of both sides and their links, source index first."""

    source: list[str]
    target: list[str]
    gold: Gold


def main() -> None:
    """Print the table."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir", help="a trained run")
    parser.add_argument(
        "--gold", action="append", required=True, metavar="PREFIX", help="again for more corpora"
    )
    parser.add_argument(
        "--source", default="en", help="ending of the files in the language the system reads"
    )
    parser.add_argument("--target", default="fr", help="and of those in the language it writes")
    parser.add_argument(
        "--first", help="the language of the first index of a link (default: the source)"
    )
    parser.add_argument(
        "--longest",
        action="append",
        type=int,
        metavar="N",
        help="pairs of at most N words (default: 0, all)",
    )
    parser.add_argument(
        "--map",
        metavar="NAME",
        help="one attention map, heads averaged (default: the system's own choice)",
    )
    parser.add_argument("--spacing", choices=("ordinary", "gold"), default="ordinary")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(rest)
    if chosen.first not in (None, chosen.source, chosen.target):
        raise UserError(
            f"--first={chosen.first} is neither --source={chosen.source} nor"
            f" --target={chosen.target}"
        )
    flip = chosen.first == chosen.target
    corpora = {
        prefix: read_pairs(prefix, chosen.source, chosen.target, flip=flip)
        for prefix in chosen.gold
    }
    run = session.open_run(
        session.stored_run(
            argparse.Namespace(workdir=chosen.workdir, config=None, overrides=overrides)
        )
    )
    task, params, step = run.task, run.params, run.step
    languages = (chosen.source, chosen.target) if chosen.spacing == "ordinary" else ("", "")
    rows: list[tuple[Any, ...]] = []
    for prefix, pairs in corpora.items():
        links = readings(task, params, pairs, languages, chosen.map)
        for longest in chosen.longest or [0]:
            rows += score(f"{Path(prefix).parent.name}/{Path(prefix).name}", pairs, links, longest)
    columns = (
        "corpus",
        "longest",
        "pairs",
        "words",
        "sure",
        "possible",
        "links by",
        "error %",
        "precision %",
        "recall %",
    )
    table(
        f"alignment error of {chosen.workdir}, step {step}; {chosen.spacing} spacing, map"
        f" {chosen.map or 'of the system'}",
        columns,
        rows,
    )
    rounds.save(
        chosen.json,
        {
            "rows": [dict(zip(columns, row, strict=True)) for row in rows],
            "step": step,
            "spacing": chosen.spacing,
        },
    )


def read_pairs(prefix: str, source: str, target: str, *, flip: bool) -> list[Pair]:
    """The pairs of a gold corpus.

    Raises:
      UserError: unreadable, files of unequal length, or a link to a word that is not there.
    """
    left, right = (read_lines(Path(f"{prefix}.{language}")) for language in (source, target))
    golds = alignment.read_gold(f"{prefix}.align")
    if not len(left) == len(right) == len(golds):
        raise UserError(
            f"{prefix}: {len(left)} lines of {source}, {len(right)} of {target}, {len(golds)} of"
            " align; line n of each must match"
        )
    pairs = [
        Pair(a.split(), b.split(), gold.flipped() if flip else gold)
        for a, b, gold in zip(left, right, golds, strict=True)
    ]
    for number, pair in enumerate(pairs, 1):
        if any(i >= len(pair.source) or j >= len(pair.target) for i, j in pair.gold.possible):
            raise UserError(
                f"{prefix}.align, line {number}: a link to a word that is not there; is --first the"
                " other language?"
            )
    return pairs


def readings(
    task: Any, params: Any, pairs: Sequence[Pair], languages: tuple[str, str], name: str | None
) -> dict[str, list[set[Link]]]:
    """The links of every pair by each way of reading the weights."""
    texts = [
        (spaced(pair.source, languages[0]), spaced(pair.target, languages[1])) for pair in pairs
    ]
    links: dict[str, list[set[Link]]] = {
        "attention, predicted": [],
        "attention, read": [],
        "diagonal": [],
    }
    for pair, (weights, pieces) in zip(pairs, attention(task, params, texts, name), strict=True):
        source, target = (
            alignment.membership(
                side, [vocabulary.normalize(word) for word in words], vocabulary.marks
            )
            for side, vocabulary, words in zip(pieces, task.vocabularies, pair[:2], strict=True)
        )
        links["attention, predicted"].append(
            alignment.links(alignment.word_weights(weights, source, target))
        )
        # The step that predicts y_t has read y_{t-1}; the one that predicts EOS has read the last
        # word.
        links["attention, read"].append(
            alignment.links(alignment.word_weights(weights[1:], source, target[:-1]))
        )
        links["diagonal"].append(alignment.diagonal(len(pair.target), len(pair.source)))
    return links


def attention(
    task: Any, params: Any, texts: Sequence[tuple[str, str]], name: str | None
) -> list[tuple[np.ndarray, list[list[str]]]]:
    """For each pair of texts the weights [T,S] of forcing the second on the first, and the pieces
    of both, EOS at the end.

    Raises:
      UserError: there is no map `name`, or not between target and source.
    """
    import jax

    from attnlab.attention.protocol import MAPS
    from attnlab.data import corpus
    from attnlab.data.batching import evaluation_batches
    from attnlab.errors import nearest

    @jax.jit
    def forced(params: Any, source: jax.Array, target: jax.Array) -> jax.Array:
        read = source, task.shifted(target)
        _, collected = task.system.apply({"params": params}, *read, mutable=[MAPS])
        maps = {
            key: map_
            for key, map_ in task.system.maps(collected[MAPS]).items()
            if (map_.rows, map_.columns) == ("target", "source")
        }
        if name is None:
            weights: jax.Array = task.system.alignment(maps)
            return weights
        if name not in maps:
            raise UserError(f"--map={name}; {nearest(name, maps)}")
        return maps[name].weights.mean(axis=1)

    examples = corpus.encode(task.vocabularies, texts)
    by_index: dict[int, tuple[np.ndarray, list[list[str]]]] = {}
    for indices, batch in evaluation_batches(
        examples, size=BATCH, buckets=task.config.batch.buckets
    ):
        weights = np.asarray(forced(params, batch["source"], batch["target"]))
        for row, index in enumerate(indices.tolist()):
            if index >= 0:
                ids = [side[index] for side in examples.sequences]
                pieces = [
                    vocabulary.tokens(side)
                    for vocabulary, side in zip(task.vocabularies, ids, strict=True)
                ]
                by_index[index] = weights[row, : len(ids[1]), : len(ids[0])], pieces
    return [by_index[index] for index in range(len(texts))]


def score(
    corpus: str, pairs: Sequence[Pair], readings: Mapping[str, list[set[Link]]], longest: int
) -> list[tuple[Any, ...]]:
    """The rows of the table for the pairs of at most `longest` words (0: all)."""
    indices = [
        n
        for n, pair in enumerate(pairs)
        if not longest or max(len(pair.source), len(pair.target)) <= longest
    ]
    golds = [pairs[n].gold for n in indices]
    sure, possible = (
        alignment.pooled(gold.sure for gold in golds),
        alignment.pooled(gold.possible for gold in golds),
    )
    lengths = [(len(pairs[n].source), len(pairs[n].target)) for n in indices]
    about = (
        corpus,
        longest or "all",
        len(indices),
        sum(target for _, target in lengths),
        len(sure),
        len(possible),
    )
    rows: list[tuple[Any, ...]] = []
    for name, links in readings.items():
        chosen = alignment.pooled(links[n] for n in indices)
        figures = (
            alignment.error_rate(chosen, sure, possible),
            alignment.precision(chosen, possible),
            alignment.precision(sure, chosen),
        )
        rows.append((*about, name, *(round(100 * figure, 1) for figure in figures)))
    return [*rows, (*about, "chance", round(100 * alignment.chance(golds, lengths), 1), None, None)]


def spaced(words: Sequence[str], language: str) -> str:
    """Words as a text with the ordinary spacing of a language; of another than English and French
    with a blank between all.
    """
    text = " ".join(words)
    for pattern, replacement in SPACING.get(language, ()):
        text = re.sub(pattern, replacement, text)
    return text


if __name__ == "__main__":
    rounds.main(main)
