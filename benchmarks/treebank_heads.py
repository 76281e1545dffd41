"""Do heads of an encoder specialise? Syntax, neighbours, rare words and delimiters in a treebank.

    python -m benchmarks.treebank_heads RUN --conllu=FILE --train=FILE

RUN is a trained tagger, a masked language model, or a model of others that `launch.py import` made a
run of; the sentences of the file `--conllu` are read. Maps between pieces become maps between words.
Syntax: how often the largest weight of a head on another word lies on the word's head ("head") or on
a dependent ("dependent"), by relation, beside the best fixed offset; "tree" is the undirected
attachment score. Patterns: how often the largest weight is on the previous or next word, the word
that is rarest in the file `--train`, a delimiter, beside uniform attention ("chance"), the mean over
sentences. Head and offset are chosen on every second sentence and scored on the others, with 95 %
intervals over sentences. `--first` reads the parameters before training.

Source: E. Voita et al., "Analyzing Multi-Head Self-Attention", ACL 2019; K. Clark et al., "What Does
BERT Look At?", BlackboxNLP 2019.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import attnlab
from attnlab.analysis.heads import HeadStatistics
from attnlab.analysis.inside import maps_between_words
from attnlab.analysis.pointing import Maps, heads_of, syntax_scores
from attnlab.data.tagged import Conllu, Sentence
from attnlab.progress import table
from attnlab.records.items import Items
from benchmarks import rounds

PATTERNS = "previous", "next", "rare", "delimiter"
COLUMNS = "pattern", "map", "head", "share", "low", "high", "chance"


def main() -> None:
    """Print the tables."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("workdir", metavar="RUN")
    parser.add_argument("--conllu", type=Path, required=True, metavar="FILE", help="to be read")
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="counted words")
    parser.add_argument("--least", type=int, default=100, help="fewest questions of a relation")
    parser.add_argument("--first", action="store_true", help="parameters before training")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    run = attnlab.load(chosen.workdir)
    params = run.task.init(jax.random.key(run.config.seed)) if chosen.first else run.params
    read = maps_between_words(run.task, params, sentences_of(chosen.conllu))
    sentences, maps = [sentence for sentence, _ in read], [named for _, named in read]
    syntax = syntax_scores(sentences, maps).best(chosen.least)
    words = Counter(w.lower() for s in sentences_of(chosen.train) for w in s.words)
    tables = {"syntax": syntax, "patterns": patterns(sentences, maps, words)}
    for name, records in tables.items():
        rows = [[*map(shown, record.values())] for record in records]
        table(f"{chosen.workdir}: {name}, {len(sentences)} sentences", [*records[0]], rows)
    rounds.save(chosen.json, tables)


def sentences_of(file: Path) -> list[Sentence]:
    """The sentences of a file in CoNLL-U, with relations as tags."""
    return Conllu(str(file.parent), test=file.name, tags="deprel").tagged("test")


def patterns(
    sentences: Sequence[Sentence], maps: Sequence[Maps], frequencies: Counter[str]
) -> list[dict[str, Any]]:
    """The records of the second table."""
    records = []
    for sentence, named in zip(sentences, maps, strict=True):
        statistics = HeadStatistics(frequencies=frequencies)
        for name, weights in named.items():
            statistics.add(name, weights, [word.lower() for word in sentence.words])
        records.append(statistics.records())
    table_of = []
    for pattern in PATTERNS:
        names = f"{pattern}_argmax", f"{pattern}_chance"
        share, chance = np.array([[[r[n] for r in of] for of in records] for n in names])
        head = int(np.nanmean(share[::2], axis=0).argmax())
        seen = share[1::2, head][~np.isnan(share[1::2, head])]
        items = Items.of({"share": ("ratio", np.stack([seen, np.ones_like(seen)], axis=1))})
        numbers = items.score("share"), *items.interval("share"), np.nanmean(chance[1::2, head])
        row = pattern, *heads_of(maps[0])[head], *map(float, numbers)
        table_of.append(dict(zip(COLUMNS, row, strict=True)))
    return table_of


def shown(value: Any) -> Any:
    """A number with three decimals; all else as it is."""
    return round(float(value), 3) if isinstance(value, float) else value


if __name__ == "__main__":
    rounds.main(main)
